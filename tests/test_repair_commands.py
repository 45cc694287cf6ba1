"""`calmoe repair` and `calmoe apply`: what they write, what they say, what they refuse."""

import inspect
import json

import numpy as np
import pytest
import torch
import typer

from calmoe.calibration import Calibrator
from calmoe.commands import app
from calmoe.commands.options import _column_options
from calmoe.metrics import nll
from calmoe.predictions import Predictions
from calmoe.worlds import binary
from command_line import calmoe, refused
from haste import briefly

pytestmark = pytest.mark.usefixtures("brief")


def named(world, rows, seed):
    drawn = world.sample(rows, seed)
    return Predictions(output=drawn.output, labels=drawn.labels, metadata={"classes": ["no", "yes"]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Overconfident predictions, a calibrator for them, and other rows."""
    place = tmp_path_factory.mktemp("repair")
    world = binary.miscalibrated(0, temperature=2.5)
    named(world, 900, 0).save(place / "validation.csv")
    named(world, 2000, 1).save(place / "test.safetensors")
    with briefly():
        result = calmoe("repair", place / "validation.csv", "--out", place / "calibrator.json")
    assert result.exit_code == 0, result.output
    (place / "said.txt").write_text(result.stdout)
    return place


def test_repair_says_what_it_chose_and_what_to_do_next(folder):
    said = (folder / "said.txt").read_text()
    assert "one temperature (recommended)" in said
    assert "900 rows, cross-fitted: " in said
    assert f"calmoe apply {folder / 'calibrator.json'}" in said.replace("\n", "")
    calibrator = Calibrator.load(folder / "calibrator.json")
    assert calibrator.kind == "Temperature"
    assert calibrator.classes == ("no", "yes")
    assert calibrator.note.startswith("fitted on 900 rows of validation.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet", "safetensors"])
def test_applied_predictions_are_the_calibrators(folder, tmp_path, ending):
    out = tmp_path / f"repaired.{ending}"
    result = calmoe("apply", folder / "calibrator.json", folder / "test.safetensors", "--out", out)
    assert result.exit_code == 0, result.output
    before, after = Predictions.load(folder / "test.safetensors"), Predictions.load(out)
    expected = Calibrator.load(folder / "calibrator.json").transform(before)
    np.testing.assert_allclose(after.output.probs, expected.output.probs, atol=1e-6)
    assert torch.equal(after.labels, before.labels)
    assert nll(after.output.log_probs, after.labels) < nll(before.output.log_probs, before.labels)


def test_the_class_that_is_judged_may_be_named(folder, tmp_path):
    for event in ("yes", "1"):
        out = tmp_path / f"{event}.json"
        result = calmoe("repair", folder / "validation.csv", "--of", event, "--out", out)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "yes.json").read_bytes() == (tmp_path / "1.json").read_bytes()
    assert "0..1" in refused("repair", folder / "validation.csv", "--of", "2", "--out", tmp_path / "2.json")
    refused("repair", folder / "validation.csv", "--of", "maybe", "--out", tmp_path / "3.json")


def test_the_sentence_is_of_the_kind_that_was_asked_for(folder, tmp_path):
    out = tmp_path / "v.json"
    said = calmoe("repair", folder / "validation.csv", "--kind", "vector", "--out", out).stdout
    assert "Vector scaling changes the NLL by" in said
    assert "Recommended is one temperature" in said
    out = tmp_path / "n.json"
    said = calmoe("repair", folder / "validation.csv", "--kind", "nothing", "--out", out).stdout
    assert "No repair leaves the ECE at" in said


def test_rows_that_it_was_fitted_on_are_told(folder, tmp_path):
    out = tmp_path / "flattered.csv"
    result = calmoe("apply", folder / "calibrator.json", folder / "validation.csv", "--out", out)
    assert "these very rows" in result.stdout


def test_classes_in_another_order_are_put_right_or_refused(folder, tmp_path):
    test = Predictions.load(folder / "test.safetensors")
    calmoe(
        *("repair", folder / "validation.csv", "--kind", "vector", "--out", tmp_path / "v.json"),
    )
    flipped = Predictions(
        output=type(test.output)(
            test.output.log_probs.flip(1), test.output.log_routing, test.output.expert_log_probs.flip(2)
        ),
        labels=1 - test.labels,
        metadata={"classes": ["yes", "no"]},
    )
    flipped.save(tmp_path / "flipped.csv")
    flipped.save(tmp_path / "flipped.safetensors")
    result = calmoe(
        "apply", tmp_path / "v.json", tmp_path / "flipped.csv", "--out", tmp_path / "a.safetensors"
    )
    assert result.exit_code == 0, result.output
    expected = Calibrator.load(tmp_path / "v.json").transform(test)
    read = Predictions.load(tmp_path / "a.safetensors")
    assert read.class_names == ("no", "yes")
    np.testing.assert_allclose(read.output.probs, expected.output.probs, atol=1e-6)
    said = refused(
        "apply", tmp_path / "v.json", tmp_path / "flipped.safetensors", "--out", tmp_path / "b.csv"
    )
    assert "classes" in said


def test_predictions_without_labels_and_with_other_columns_are_taken(folder, tmp_path):
    (tmp_path / "raw.csv").write_text("p_no,p_yes\n0.9,0.1\n0.2,0.8\n")
    out = tmp_path / "out.csv"
    columns = ("--probs", "p_no,p_yes", "--classes", "no,yes")
    result = calmoe("apply", folder / "calibrator.json", tmp_path / "raw.csv", *columns, "--out", out)
    assert result.exit_code == 0, result.output
    assert Predictions.load(out).labels is None
    assert 0.5 < float(Predictions.load(out).output.probs[0, 0]) < 0.9


def test_nothing_may_be_the_answer(tmp_path):
    named(binary.calibrated(1), 800, 0).save(tmp_path / "true.safetensors")
    result = calmoe("repair", tmp_path / "true.safetensors", "--out", tmp_path / "c.json")
    assert result.exit_code == 0, result.output
    assert "No repair is recommended" in result.stdout
    assert Calibrator.load(tmp_path / "c.json").kind == "Identity"


def test_mistakes_are_one_line_and_leave_nothing(folder, tmp_path):
    file, calibrator = folder / "validation.csv", folder / "calibrator.json"
    before = calibrator.read_bytes()
    named(binary.calibrated(1), 150, 0).save(tmp_path / "few.csv")
    (tmp_path / "bad.json").write_text(json.dumps(json.loads(before) | {"temperature": 0}))
    (tmp_path / "unlabelled.csv").write_text("prob_0,prob_1\n0.9,0.1\n")
    kept = set(tmp_path.iterdir())
    mistakes = [
        ("repair", tmp_path / "none.csv", "--out", tmp_path / "c.json"),
        ("repair", file, "--out", calibrator),  # is there
        ("repair", file, "--out", tmp_path / "c.txt"),
        ("repair", file, "--out", tmp_path / "no" / "c.json"),
        ("repair", file, "--out", ""),
        ("repair", file),
        ("repair", file, "--kind", "magic", "--out", tmp_path / "c.json"),
        ("repair", tmp_path / "few.csv", "--out", tmp_path / "c.json"),
        ("repair", tmp_path / "unlabelled.csv", "--out", tmp_path / "c.json"),
        ("apply", calibrator, file, "--out", file),
        ("apply", calibrator, file, "--out", tmp_path / "a.npz"),
        ("apply", calibrator, tmp_path / "none.csv", "--out", tmp_path / "a.csv"),
        ("apply", tmp_path / "bad.json", file, "--out", tmp_path / "a.csv"),
        ("apply", file, file, "--out", tmp_path / "a.csv"),
        ("apply", calibrator, tmp_path, "--out", tmp_path / "a"),  # a folder without a model
        ("apply", calibrator, tmp_path, "--label", "y", "--out", tmp_path / "a"),
    ]
    for mistake in mistakes:
        refused(*mistake)
    assert calibrator.read_bytes() == before
    assert set(tmp_path.iterdir()) == kept


@pytest.mark.parametrize("command", ["repair", "apply"])
def test_help_shows_an_example(command):
    said = calmoe(command, "--help").stdout
    assert f"Example: calmoe {command} " in said


def test_commands_that_read_files_have_the_same_options():
    def options(name):
        command = typer.main.get_command(app).commands[name]
        return {param.name: param.help for param in command.params}

    shared = inspect.signature(_column_options).parameters
    for name in ("audit", "repair", "apply"):
        assert list(shared) == [each for each in options(name) if each in shared]
    added = options("add")
    assert "groups" not in added
    assert {each: options("audit")[each] for each in shared if each != "groups"}.items() <= added.items()
    assert options("repair")["of"] == options("audit")["of"]
