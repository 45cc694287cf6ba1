"""A run that is opened: planned once, hashed once, judged anew only where something changed."""

import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from calmoe import Predictions
from calmoe.calibration import Temperature
from calmoe.commands import app
from calmoe.errors import InputError
from calmoe.experiments import record as record_module
from calmoe.experiments.added_predictions import add_predictions
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.sealing import write_sealed
from calmoe.experiments.spec import narrowed, with_settings
from calmoe.experiments.store import RunFolder, read_results
from calmoe.experiments.sweep import make_sweep
from calmoe.methods import METHODS, OBJECTIVES, Method, Recipe, Setting, register
from calmoe.metrics import nll
from calmoe.objectives import ERM
from calmoe.report.columns import COLUMNS
from calmoe.report.write import write_report


@pytest.fixture
def opened_files():
    """How often each path was opened, by whatever means."""
    counts, active = Counter(), [True]

    def hook(event, arguments):  # Python keeps audit hooks to its end: this one falls silent
        if active and event == "open" and isinstance(arguments[0], str | Path):
            counts[str(arguments[0])] += 1

    sys.addaudithook(hook)
    yield counts
    active.clear()


def test_a_rerun_with_nothing_to_do_plans_once_and_reads_each_sealed_file_once(
    finished, tiny, quiet, monkeypatch, opened_files
):
    plans = []
    genuine = record_module.make_plan
    monkeypatch.setattr(record_module, "make_plan", lambda *a: plans.append(a) or genuine(*a))
    run(tiny, finished, console=quiet)  # what was finished by the fixture: nothing to train
    plans.clear()
    opened_files.clear()
    assert run(tiny, finished, console=quiet).exit_code == 0
    assert len(plans) == 1
    sealed = [*finished.glob("nodes/*/*"), finished / "results.jsonl", finished / "done.json"]
    assert len(sealed) > 15
    assert {opened_files[str(path)] for path in sealed} <= {1}
    assert any(opened_files[str(path)] == 1 for path in finished.glob("nodes/*/test.safetensors"))


def test_results_are_judged_anew_where_predictions_changed(finished, tiny, quiet):
    before = read_results(finished)
    rows = [row | {"ece": 0.5} for row in before]
    RunFolder(finished).write_results(rows)  # sealed, but not of these predictions
    assert run(tiny, finished, console=quiet).rows == before
    Run.open(finished).write_results(rows)  # sealed with what it was made of
    assert run(tiny, finished, console=quiet).rows == rows
    assert run(tiny, finished, only_report=True, console=quiet).rows == before


def test_an_old_record_opens_and_goes_on(finished, reference, tiny, quiet):
    """A folder whose record has no version, and settings that came later are missing in it."""
    folder = RunFolder(finished)
    record = folder.record()
    table = record.as_json()
    for name in ("forget_moments", "precision", "gamma"):
        del table["spec"]["training"][name]
    write_sealed(finished / "spec.json", table)
    assert Run.open(finished).record == record
    assert run(narrowed(tiny, seeds=(43,)), finished, console=quiet).exit_code == 0
    assert [row for row in read_results(finished) if row["seed"] == 42] == read_results(reference)


# --- a method and an objective of one's own


class Weighed(ERM):
    """The mean loss times a weight: what a new objective with a setting looks like."""

    def __init__(self, weight, loss):
        super().__init__(loss=loss)
        object.__setattr__(self, "weight", weight)

    def reduce(self, losses, output, labels, group=None):
        return self.weight * super().reduce(losses, output, labels, group)


@pytest.fixture
def own_method():
    OBJECTIVES["weighed"] = Recipe(Weighed, own={"weight": Setting(1.0, low=0.5, high=4)})
    register(Method(name="mine", title="My Method", objective="weighed"))
    yield
    del METHODS["mine"], OBJECTIVES["weighed"]


@pytest.mark.usefixtures("undrawn")
def test_an_objective_with_a_setting_trains_sweeps_resumes_and_is_reported(own_method, tiny, quiet, tmp_path):
    spec = narrowed(tiny, methods=("vanilla", "mine"))
    outcome = run(with_settings(spec, ["weight=4"]), tmp_path / "run", console=quiet)
    assert outcome.exit_code == 0
    assert run(with_settings(spec, ["weight=4"]), tmp_path / "run", console=quiet).rows == outcome.rows
    assert write_report([tmp_path / "run"], tmp_path / "report").page.read_text().count("My Method") > 2
    with pytest.raises(InputError, match=r"training\.own\.weight is 4\.0 there"):
        run(with_settings(spec, ["weight=2"]), tmp_path / "run", console=quiet)
    with pytest.raises(InputError, match=r"training\.own\.weight must be between 0\.5 and 4"):
        with_settings(spec, ["weight=9"])

    mine, sweep = narrowed(spec, methods=("mine",)), make_sweep("weight", (1, 4))
    swept = run(mine, tmp_path / "sweep", sweep=sweep, console=quiet)
    losses = {row["value"]: row["nll"] for row in swept.rows}
    alone = {row["method"]: row["nll"] for row in outcome.rows}
    assert losses[1] == alone["vanilla"]  # the default weight changes nothing
    assert losses[4] == alone["mine"] != losses[1]
    page = write_report([tmp_path / "sweep"], tmp_path / "sweep-report").page.read_text()
    assert "Sweep of weight" in page


def test_an_unknown_word_on_a_card_is_refused():
    with pytest.raises(InputError, match="head must be one of mixture, single"):
        Method(name="mine", head="triple")
    with pytest.raises(InputError, match="another method called 'vanilla'"):
        register(Method(name="vanilla"))
    with pytest.raises(InputError, match="cannot be called"):
        register(Method(name="../mine"))


def test_a_setting_of_ones_own_has_a_name_of_its_own(own_method, tiny):
    OBJECTIVES["clash"] = Recipe(Weighed, own={"gamma": Setting(1.0)})
    try:
        with pytest.raises(InputError, match="declares 'gamma', which is a setting of calmoe"):
            with_settings(tiny, ["gamma=3"])
        OBJECTIVES["clash"] = Recipe(Weighed, own={"weight": Setting(2.0)})
        with pytest.raises(InputError, match="'weight' otherwise than another objective"):
            with_settings(tiny, ["weight=3"])
    finally:
        del OBJECTIVES["clash"]


def test_rows_that_were_judged_otherwise_are_judged_anew(finished, monkeypatch):
    rows = [row | {"ece": 0.5} for row in read_results(finished)]
    Run.open(finished).write_results(rows)
    assert Run.open(finished).rows == rows
    monkeypatch.setattr("calmoe.experiments.run.BINS", 20)
    assert Run.open(finished).rows != rows
    monkeypatch.undo()
    RunFolder(finished).write_results(rows)  # by a calmoe that did not say how it judged
    assert Run.open(finished).rows == rows


def test_every_column_is_one_that_rows_have(reference):
    always = {column for column in COLUMNS if not column.startswith("views_")}
    assert always <= set(read_results(reference)[0])


# --- predictions from elsewhere


def predictions(finished, method="vanilla"):
    opened = Run.open(finished)
    (model,) = opened.read_models(methods=[method])
    return model


@pytest.mark.usefixtures("unrendered")
def test_predictions_from_elsewhere_stand_in_tables_and_figures(finished, tiny, quiet, tmp_path):
    model = predictions(finished)
    opened = add_predictions(finished, "theirs", 42, model.validation, model.test)
    rows = {row["method"]: row for row in read_results(finished)}
    assert {**rows["theirs"], "method": "vanilla"} == rows["vanilla"]
    assert [m.method for m in opened.read_models()][-1] == "theirs"
    report = write_report([finished], tmp_path / "report")
    assert "theirs" in report.page.read_text()
    assert "theirs" in (tmp_path / "report/tables.md").read_text()
    again = run(narrowed(tiny, seeds=(42, 43)), finished, console=quiet)  # the run goes on around them
    assert [row["method"] for row in again.rows if row["seed"] == 42][-1] == "theirs"


def test_a_plain_matrix_of_probabilities_is_enough(finished, tmp_path):
    model = predictions(finished)
    for split in ("validation", "test"):
        probs = getattr(model, split).output.probs
        Predictions.from_probs(probs).save(tmp_path / f"{split}.safetensors")
    options = [f"--{split}={tmp_path / split}.safetensors" for split in ("validation", "test")]
    result = CliRunner().invoke(app, ["add", str(finished), "theirs", *options])  # under the run's first seed
    assert result.exit_code == 0, result.output
    assert "note: a file has no labels" in result.stdout
    assert {row["seed"] for row in read_results(finished)} == {42}
    assert "theirs" in result.stdout
    assert "theirs" in {row["method"] for row in read_results(finished)}


def test_columns_of_another_tool_join_a_run(finished, tmp_path):
    """Columns in another order than the run's classes, and labels under another name."""
    model = predictions(finished)
    options = ["--label", "truth"]
    for split in ("validation", "test"):
        probs, labels = getattr(model, split).output.probs.double().numpy(), getattr(model, split).labels
        columns = {"truth": [str(label) for label in labels.tolist()]}
        columns |= {f"p_{c}": probs[:, c] for c in reversed(range(probs.shape[1]))}
        pq.write_table(pa.table(columns), tmp_path / f"{split}.parquet")
        options.append(f"--{split}={tmp_path / split}.parquet")
    result = CliRunner().invoke(app, ["add", str(finished), "theirs", *options])
    assert result.exit_code == 0, result.output
    assert "test.parquet: labels 'truth'; probabilities p_9, p_8" in result.stdout
    rows = {row["method"]: row for row in read_results(finished)}
    assert rows["theirs"]["ece"] == pytest.approx(rows["vanilla"]["ece"], abs=1e-6)


def test_other_rows_and_taken_names_are_refused(finished):
    model = predictions(finished)
    labels = model.test.known_labels.clone()
    labels[3] = (labels[3] + 1) % 10
    with pytest.raises(InputError, match="test: the label of row 4 is"):
        add_predictions(finished, "theirs", 42, model.validation, replace(model.test, labels=labels))
    with pytest.raises(InputError, match="the run has"):
        add_predictions(finished, "theirs", 42, model.test, model.test)
    for name in ("vanilla", "../theirs", ""):
        with pytest.raises(InputError, match="give a new name"):
            add_predictions(finished, name, 42, model.validation, model.test)
    assert "theirs" not in {row["method"] for row in read_results(finished)}


def test_added_predictions_that_are_damaged_count_no_more(finished, tiny, quiet):
    model = predictions(finished)
    add_predictions(finished, "theirs", 42, model.validation, model.test)
    added = Run.open(finished).record.added[0]
    path = finished / "nodes" / added.key / "test.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    rows = run(tiny, finished, console=quiet).rows
    assert "theirs" not in {row["method"] for row in rows}


def test_predictions_have_a_home_in_another_copy(finished, tmp_path):
    model = predictions(finished)
    add_predictions(finished, "theirs", 42, model.validation, model.test)
    copy = shutil.copytree(finished, tmp_path / "copy")
    assert Run.open(Path(copy)).rows == read_results(finished)
    assert torch.equal(predictions(copy, "theirs").test.output.log_probs, model.test.output.log_probs)


# --- averaged weights and pooled views


@pytest.mark.usefixtures("undrawn")
def test_one_training_is_read_four_ways(tiny, quiet, tmp_path):
    """Average and last weights, with and without views: each has its scores, and old keys stay."""
    spec = narrowed(with_settings(tiny, ["average=0.9", "views=5"]), methods=("vanilla", "mocae", "sharp"))
    outcome = run(spec, tmp_path / "run", console=quiet)
    assert outcome.exit_code == 0
    plain = run(narrowed(tiny, methods=("vanilla", "sharp")), tmp_path / "plain", console=quiet)
    last = {row["method"]: row for row in plain.rows}
    for row in outcome.rows:
        for reading in ("views_", "last_", "last_views_"):
            assert {
                f"{reading}{name}" for name in ("accuracy", "ece_ts", "nll_ts", "hard_ece_ts")
            } <= row.keys()
        assert set(COLUMNS) <= set(row)
        if row["method"] in last:
            for name in ("accuracy", "ece", "nll_ts", "brier"):
                assert row[f"last_{name}"] == last[row["method"]][name]
            assert row["nll"] != row["last_nll"]
    opened = Run.open(tmp_path / "run")
    predictions = opened.folder.predictions(opened.finished()[0].key)
    assert (
        predictions["views_test"].output.log_routing.shape[1]
        == 5 * predictions["test"].output.log_routing.shape[1]
    )
    weights = safetensors.torch.load_file(opened.folder.node(opened.finished()[0].key) / "model.safetensors")
    assert not any(name.startswith("average.") for name in weights)
    warmups = [{n.key for n in r.nodes if not n.method} for r in (opened, Run.open(tmp_path / "plain"))]
    assert warmups[0] == warmups[1]  # what follows the warm-up does not change it
    page = write_report([tmp_path / "run"], tmp_path / "report").page.read_text()
    assert "ECE+views+TS" in page


def test_the_recommended_recipe_predicts_what_its_views_say_together(tiny, quiet, tmp_path):
    spec = narrowed(with_settings(tiny, ["rho=0.2", "views=5"]), methods=("recommended", "sharp_single"))
    rows = {row["method"]: row for row in run(spec, tmp_path / "run", console=quiet).rows}
    recommended, single = rows["recommended"], rows["sharp_single"]
    for name in ("accuracy", "ece", "ece_ts", "nll_ts", "hard_ece_ts"):
        assert recommended[name] == single[f"views_{name}"]  # the same training, read otherwise
    assert not any(name.startswith(("views_", "last_")) for name in recommended)


def test_a_recipe_that_pools_views_fits_its_temperature_on_pooled_rows(tiny, quiet, tmp_path):
    """Under the published protocol too: the augmented copy of a validation row is one view, not all."""
    spec = narrowed(tiny, methods=("recommended",), protocol="published")
    (row,) = run(spec, tmp_path / "run", console=quiet).rows
    (model,) = Run.open(tmp_path / "run").read_models()
    assert model.validation.num_experts == model.test.num_experts == 5
    fitted = Temperature("published").fit(model.validation.output.log_probs, model.validation.labels)
    assert row["temperature"] == fitted.temperature_


def test_a_sweep_chooses_by_validation_rows_as_the_model_will_see_rows(tiny, quiet, tmp_path):
    spec = narrowed(with_settings(tiny, ["views=5"]), methods=("vanilla",))
    (row,) = run(spec, tmp_path / "run", console=quiet).rows
    opened = Run.open(tmp_path / "run")
    pooled = opened.folder.predictions(opened.finished()[0].key)["views_validation"]
    tempered = Temperature().fit(pooled.output.log_probs, pooled.labels).transform(pooled.output.log_probs)
    assert row["validation_nll_ts"] == nll(tempered, pooled.labels)


def test_texts_and_tables_have_no_views(tiny, quiet, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="digits has 5 views: give views=5 or fewer"):
        run(with_settings(tiny, ["views=10"]), tmp_path / "run", console=quiet)
    assert not (tmp_path / "run").exists()
