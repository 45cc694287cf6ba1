import logging.handlers
import queue
import sys

import pytest
from typer.testing import CliRunner

from calmoe.commands import app
from calmoe.errors import InputError
from calmoe.experiments.open_sweep import OpenSweep
from calmoe.experiments.spec import narrowed
from calmoe.experiments.store import read_results
from calmoe.experiments.sweep import make_points
from calmoe.experiments.tuning import Objective, next_point, optuna_study, tuned
from calmoe.experiments.watcher import TimeUp
from calmoe.training import Trainer

optuna = pytest.importorskip("optuna")
SPACE = ["eta=0..4", "warmup=0..2"]


@pytest.fixture
def robust(tiny):
    return narrowed(tiny, methods=("robust",), seeds=(42, 43))


def trials(study):
    return [(trial.params, trial.value, trial.state.name) for trial in study.trials]


def bowl(_, sweep):
    """A validation NLL without a training: lowest at η = 1.5 and a warm-up of 1."""
    ((eta, warmup),) = sweep.points
    return (eta - 1.5) ** 2 + (warmup - 1) ** 2


def test_a_study_that_is_stopped_and_goes_on_is_the_undisturbed_one(robust, quiet, tmp_path, monkeypatch):
    whole = Objective(robust, tmp_path / "whole", SPACE, console=quiet)
    undisturbed = trials(optuna_study(whole, 3))
    outcome = tuned(whole, 3)
    trained, train = [], Trainer.train

    def stopping(self, stage, seed, state, *rest):
        if len(trained) == 4:
            trained.append(None)
            raise KeyboardInterrupt
        trained.append((seed, stage, rest[-1]))
        return train(self, stage, seed, state, *rest)

    monkeypatch.setattr(Trainer, "train", stopping)
    with pytest.raises(KeyboardInterrupt):
        optuna_study(Objective(robust, tmp_path / "stopped", SPACE, console=quiet), 3)
    again = Objective(robust, tmp_path / "stopped", SPACE, console=quiet)
    number, point = next_point(again, 3)
    assert [*point.points[0]] == [*undisturbed[number - 1][0].values()]
    assert trials(optuna_study(again, 3)) == undisturbed
    finished = [entry for entry in trained if entry is not None]
    assert len(finished) == len({str(entry) for entry in finished})  # nothing twice
    assert tuned(again, 3).rows == outcome.rows
    assert len(trained) == len(finished) + 1  # and a finished study trains nothing
    assert next_point(again, 3) is None
    for name in ("spec.json", "results.jsonl"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    sweep = again.asked[0]
    rows = [
        row for row in outcome.rows if row["point"] == dict(zip(sweep.settings, sweep.points[0], strict=True))
    ]
    corrected = [row["validation_nll_ts"] for row in rows if row["protocol"] == "corrected"]
    assert sum(corrected) / len(corrected) == pytest.approx(undisturbed[0][1], rel=1e-12)


def test_a_longer_study_begins_as_a_shorter_one_and_finds_the_bowl(robust, quiet, tmp_path, monkeypatch):
    """20 trials: TPE learns from the values after ten."""
    monkeypatch.setattr(OpenSweep, "validation_nll_ts", bowl)
    objective = Objective(robust, tmp_path, SPACE, console=quiet)
    long, short = optuna_study(objective, 20, seed=3), optuna_study(objective, 14, seed=3)
    assert trials(long)[:14] == trials(short)
    assert trials(optuna_study(objective, 14, seed=4)) != trials(short)
    assert long.best_value < 0.1


def test_the_objective_works_in_a_study_of_ones_own(robust, quiet, tmp_path, monkeypatch):
    monkeypatch.setattr(OpenSweep, "validation_nll_ts", bowl)
    space = ["eta=0,1.5", "warmup=1", "hidden=[8],[8,8]"]
    asked = []
    monkeypatch.setattr(
        OpenSweep, "validation_nll_ts", lambda _, sweep: asked.append(sweep.points[0]) or sweep.points[0][0]
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(Objective(robust, tmp_path, space, console=quiet), n_trials=6)
    assert {point[1] for point in asked} == {(8,), (8, 8)}
    assert {point[0] for point in asked} == {0, 1.5}
    assert study.best_params["eta"] == 0


def test_a_point_that_diverges_is_pruned_and_the_study_goes_on(robust, quiet, tmp_path, monkeypatch):
    monkeypatch.setattr(
        OpenSweep, "validation_nll_ts", lambda self, s: None if s.points[0][0] > 2 else bowl(self, s)
    )
    study = optuna_study(Objective(robust, tmp_path, SPACE, console=quiet), 8)
    states = {trial.state.name: trial.params["eta"] for trial in study.trials}
    assert states.keys() == {"PRUNED", "COMPLETE"}
    assert states["PRUNED"] > 2 >= states["COMPLETE"]


def test_a_model_that_diverges_has_no_value(robust, quiet, tmp_path):
    sweep = OpenSweep(robust, tmp_path, console=quiet)
    point = make_points(["weight_decay", "learning_rate"], [(1e30, 10)])
    assert sweep.known(point) is None
    assert sweep.validation_nll_ts(point) is None
    assert any("seed 42" in name for name in sweep.failed)


def test_the_command_tunes_draws_its_next_point_and_reports(tmp_path):
    small = ["--set", "epochs=2", "--set", "warmup=1", "--set", "hidden=[8]", "--seeds", "42"]
    out = ["--out", str(tmp_path / "study")]

    def calmoe(*words):
        return CliRunner().invoke(app, ["sweep", "digits", *words, *small, *out])

    drawn = calmoe("eta=0..4", "--optuna", "2", "--dry-run")
    assert "trial 1 of 2 is next" in drawn.output
    assert not (tmp_path / "study").exists()
    done = calmoe("eta=0..4", "--optuna", "2", "--seed", "5")
    assert done.exit_code == 0, done.output
    assert "validation NLL+TS chooses η" in " ".join(done.output.split())
    assert len({row["value"] for row in read_results(tmp_path / "study")}) == 2
    assert "all 2 trials are finished" in " ".join(
        calmoe("eta=0..4", "--optuna", "2", "--seed", "5", "--dry-run").output.split()
    )
    assert calmoe("--only-report").exit_code == 0
    stopped = calmoe("eta=0..4", "--optuna", "9", "--time-limit", "0")
    assert stopped.exit_code == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eta=0..4", "--optuna", "0"], "--optuna"),
        (["eta=0..4", "--optuna", "2", "--random", "2"], "--random and --optuna: give one"),
        (["eta=0..4", "--optuna", "2", "--methods", "robust,entropic"], "one method"),
        (["eta=0..4", "--optuna", "2", "--tensorboard"], "--tensorboard"),
        (["eta=0..4", "--optuna", "100000"], "1 to 1,000 trials"),
        (["eta=0..4"], "--random 20 or --optuna 20"),
        (["eta=0,1", "--seed", "1"], "--seed is of"),
        (["eta=0,1", "--values", "1"], "--values goes with"),
        (["eta", "--optuna", "2"], "such as eta=0..4"),
        (["eta", "warmup"], "name one dataset"),
        (["etta"], "setting to sweep"),
        ([], "name one dataset"),
        (["--only-report"], "--out DIR"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["sweep", "digits", *words])
    assert refused.exit_code == 2
    assert message in refused.output
    assert len(refused.output.splitlines()) == 1
    assert not [*tmp_path.iterdir()]


def test_without_optuna_a_line_names_the_extra(robust, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"pip install 'calmoe\[optuna\]'"):
        Objective(robust, tmp_path / "study", SPACE)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("ending", [TimeUp(), InputError("no such file")])
def test_what_ends_a_study_shows_no_traceback(robust, quiet, tmp_path, monkeypatch, ending):
    def end(*_):
        raise ending

    monkeypatch.setattr(OpenSweep, "validation_nll_ts", end)
    objective = Objective(robust, tmp_path / "run", SPACE, console=quiet)
    records = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(records)
    logging.getLogger().addHandler(handler)
    optuna.logging.enable_propagation()
    with pytest.raises(type(ending)):
        optuna_study(objective, 3)
    optuna.logging.disable_propagation()
    logging.getLogger().removeHandler(handler)
    assert records.empty()
