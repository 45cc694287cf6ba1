"""CivilComments from a file in WILDS' layout, with a tiny DistilBERT, to the report; and what is refused."""

import json
import re
import shutil

import pytest

from calmoe.experiments.spec import load_preset
from calmoe.experiments.store import RunFolder, read_results
from calmoe.methods import METHODS
from calmoe.predictions import Predictions
from calmoe.training import Trainer
from command_line import calmoe
from encoders import (
    COLUMNS,
    IDENTITIES,
    WORDS,
    save_encoder,
    save_model,
    save_tokenizer,
    write_comments,
)
from sizes import at_size

SMALL = [
    "--methods",
    "single,vanilla,mocae,fgr,robust",
    "--seeds",
    "42",
    "--set",
    "epochs=2",
    "--set",
    "warmup=1",
]
SMALL += ["--set", "learning_rate=1e-3", "--set", "router_hidden=8", *at_size(["--set", "batch=128"], [])]


def run(data, encoder, out, *more):
    return calmoe(
        "run", "civilcomments", "--data", data, "--set", f"weights={encoder}", *SMALL, "--out", out, *more
    )


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comments")
    write_comments(folder, 400)
    return folder


@pytest.fixture(scope="module")
def finished(encoder, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    result = run(data, encoder, out)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return out, result.stdout


def test_the_presets_hold_the_papers_settings():
    civil, hate = load_preset("civilcomments"), load_preset("hatexplain")
    for spec in (civil, hate):
        training = spec.training
        paper = (m.name for m in METHODS.values() if m.family in ("baseline", "robust"))
        assert spec.methods == (*paper, "entropic", "robust_brier")
        assert spec.seeds == (42, 43, 44, 45, 46)
        assert (training.epochs, training.warmup, training.batch) == (5, 2, 32)
        assert (training.learning_rate, training.weight_decay, training.eta) == (2e-5, 1e-4, 2.0)
        assert (spec.model.backbone, spec.model.experts, spec.model.router_hidden) == ("encoder", 4, 128)
    assert (civil.model.pooling, hate.model.pooling) == ("cls", "mean")


def test_the_table_is_judged_under_the_protocol_that_chose_the_rows(finished):
    out, shown = finished
    told = " ".join(shown.split())
    assert re.search(r"civilcomments, \S+ \(the paper: DistilBERT\), .*epochs=2, .*corrected protocol", told)
    rows = read_results(out)
    assert [row["protocol"] for row in rows] == ["corrected"] * 5
    assert {(row["n"], row["n_hard"]) for row in rows} == {(80, hard_rows(out))}
    assert all(row["hard_ece"] is not None for row in rows)


def hard_rows(out):
    path = next(out.glob("nodes/*/test.safetensors"))
    return int(Predictions.load(path).groups["identity_any"].sum())


def test_the_groups_are_the_identities(finished):
    out, _ = finished
    groups = Predictions.load(next(out.glob("nodes/*/test.safetensors"))).groups
    assert set(groups) == {*IDENTITIES, "identity_any"}
    assert all(column.dtype == bool for column in groups.values())


@pytest.mark.usefixtures("unrendered")
@pytest.mark.slow
def test_the_report_and_the_comparison_with_the_paper(data, encoder, tmp_path):
    out, to = tmp_path / "published", tmp_path / "report"
    assert run(data, encoder, out, "--protocol", "published").exit_code == 0
    result = calmoe("report", out, "--to", to)
    assert result.exit_code == 0, result.output
    assert (to / "report.html").is_file()
    assert "beside the paper" in (to / "tables.md").read_text()
    drawn = result.stdout.partition("figures: ")[2].partition("\n")[0].split(", ")
    assert {"reliability", "reliability_scaled", "groups", "groups_scaled"} <= {*drawn}
    assert "no figure examples: the data are texts, not images" in result.stdout
    page = (to / "report.html").read_text()
    assert "calmoe run civilcomments --data DIR" in page
    assert calmoe("compare", out).exit_code == 0


def test_running_again_trains_nothing_even_if_the_encoder_has_moved(
    finished, encoder, data, tmp_path, monkeypatch
):
    out = shutil.copytree(finished[0], tmp_path / "run")
    moved = shutil.copytree(encoder, tmp_path / "moved")
    monkeypatch.setattr(Trainer, "train", lambda *_: pytest.fail("trained again"))
    assert run(data, moved, out).exit_code == 0
    assert json.loads((out / "spec.json").read_text())["spec"]["model"]["weights"] == str(moved)
    assert read_results(out) == read_results(finished[0])
    shutil.rmtree(moved)
    only = calmoe("run", "civilcomments", *SMALL, "--out", out, "--only-report")  # needs no encoder at all
    assert only.exit_code == 0, only.output


def test_other_weights_are_another_run(finished, encoder, data, tmp_path):
    other = save_encoder(tmp_path / "other", dropout=0.5)
    result = run(data, other, finished[0])
    assert result.exit_code == 2
    said = "holds another run (the weights differ: other weights than those this folder was trained on):"
    assert said in result.stderr
    assert RunFolder(finished[0]).record().weights not in result.stderr


def test_other_texts_are_another_run(finished, encoder, tmp_path):
    write_comments(tmp_path, 399)
    result = run(tmp_path, encoder, finished[0])
    assert result.exit_code == 2
    said = "(the data differ: other images or texts than those this folder was trained on): give another"
    assert said in result.stderr


def cut(encoder):
    path = encoder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


BROKEN = {
    "cannot be read": cut,
    "reads at most 64 tokens": lambda encoder: save_model(encoder, positions=64),
    "has 20 tokens, the model vectors for 19": lambda encoder: save_tokenizer(encoder, [*WORDS, "more"]),
}


@pytest.mark.parametrize("said", BROKEN)
def test_an_encoder_that_is_refused_leaves_no_folder_behind(data, encoder, tmp_path, said):
    """So that the same command runs once the file is repaired; a dry run tells it as well."""
    broken = shutil.copytree(encoder, tmp_path / "encoder")
    BROKEN[said](broken)
    fresh = tmp_path / "data"
    fresh.mkdir()
    write_comments(fresh, 400)
    for more in ([], ["--dry-run"]):
        result = run(fresh, broken, tmp_path / "run", *more)
        assert result.exit_code == 2, result.output
        assert said in result.stderr
        assert not (tmp_path / "run").exists()
        assert not (fresh / ".calmoe-cache").exists()
    shutil.rmtree(broken)
    shutil.copytree(encoder, broken)
    assert run(data, broken, tmp_path / "run", "--dry-run").exit_code == 0


def test_stopped_and_continued_is_bit_for_bit_the_same(finished, encoder, data, tmp_path):
    """Stopped after its first epoch, then continued by the same command; dropout included."""
    out = tmp_path / "stopped"
    stopped = run(data, encoder, out, "--time-limit", "0")
    assert stopped.exit_code == 3, stopped.output
    assert run(data, encoder, out).exit_code == 0
    assert read_results(out) == read_results(finished[0])


def missing(name):
    return lambda data, encoder: (encoder / name).unlink()


@pytest.mark.parametrize(
    ("break_it", "named"),
    [
        (
            lambda data, _: (data / "all_data_with_identities.csv").unlink(),
            "all_data_with_identities.csv is miss",
        ),
        (
            lambda data, _: write_comments(
                data, columns=[name for name in COLUMNS if name != "identity_any"]
            ),
            "all_data_with_identities.csv, header: no column identity_any",
        ),
        (
            lambda data, _: (data / "all_data_with_identities.csv").write_bytes(
                (data / "all_data_with_identities.csv").read_bytes().replace("é".encode(), b"\xe9")
            ),
            "all_data_with_identities.csv, row 1 (line 3): it is not UTF-8",
        ),
        (missing("model.safetensors"), "model.safetensors is missing"),
        (missing("tokenizer.json"), "tokenizer.json (or vocab.txt) is missing"),
        (missing("config.json"), "config.json is missing"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(data, encoder, tmp_path, break_it, named):
    folders = shutil.copytree(data, tmp_path / "data"), shutil.copytree(encoder, tmp_path / "encoder")
    break_it(*folders)
    result = run(*folders, tmp_path / "run")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert named in result.stderr
    assert str(tmp_path) in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "civilcomments"], "civilcomments needs a folder"),
        (["run", "civilcomments", "--data", "DATA"], "text needs an encoder: give a folder"),
        (["run", "hatexplain"], "hatexplain needs a folder"),
        (
            ["run", "civilcomments", "--data", "DATA", "--set", "backbone=resnet18"],
            "civilcomments and the backbone 'resnet18' do not go together: texts need 'encoder'",
        ),
        (["run", "civilcomments", "--set", "pooling=max"], "unknown pooling 'max'"),
        (["data", "civilcomments", "--to", "x"], "civilcomments is not downloaded for you: get WILDS'"),
        (["data", "hatexplain", "--to", "x"], "get dataset.json and post_id_divisions.json from"),
    ],
)
def test_what_the_command_lacks_is_said(data, arguments, said):
    result = calmoe(*(str(data) if word == "DATA" else word for word in arguments))
    assert result.exit_code == 2
    assert said in result.stderr
