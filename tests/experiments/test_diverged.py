"""A model that diverged is not trained again: all that determines it is in its key."""

import io
import json

import pytest
import torch
from rich.console import Console

from calmoe.data import load_dataset
from calmoe.experiments.dry_run import show_plan
from calmoe.experiments.engines.remote import train_remotely
from calmoe.experiments.engines.work import Work, node_as_json
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.spec import narrowed, with_settings
from calmoe.experiments.store import DIVERGED, RunFolder
from calmoe.experiments.sweep import make_sweep
from calmoe.experiments.tuning import Objective, next_point, optuna_study, tuned
from calmoe.training import Diverged, Trainer

SEALED = ("spec.json", "environment.json", "results.jsonl", "done.json")


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=500)


@pytest.fixture
def trained(monkeypatch):
    """The stages that are trained; those of which `trained.wrong` is true diverge."""
    genuine = Trainer.train

    class Stages(list):
        wrong = staticmethod(lambda stage, settings: False)

    stages = Stages()

    def train(self, stage, seed, state, folder, watch, settings):
        stages.append(stage)
        if stages.wrong(stage, settings):
            raise Diverged("the loss is nan at epoch 2")
        return genuine(self, stage, seed, state, folder, watch, settings)

    monkeypatch.setattr(Trainer, "train", train)
    return stages


def lines(console):
    said = console.file.getvalue()
    console.file.seek(0)
    console.file.truncate()
    return said.splitlines()


def contents(folder):
    return [(folder / name).read_bytes() for name in SEALED]


def test_a_run_goes_on_without_it_and_says_so_in_a_line(tiny, console, tmp_path, trained):
    trained.wrong = lambda stage, settings: stage.objective == "tilted"
    first = run(tiny, tmp_path, console=console)
    before = contents(tmp_path)
    assert not any("earlier session" in line for line in lines(console))
    trained.clear()
    again = run(tiny, tmp_path, console=console)
    assert not trained
    assert again.failed == first.failed == {"seed 42 robust": "the loss is nan at epoch 2"}
    assert again.exit_code == 1
    (line,) = lines(console)
    assert line.startswith("note: seed 42 robust diverged in an earlier session and is not trained again")
    assert contents(tmp_path) == before
    assert Run.open(tmp_path).current_rows() == again.rows
    (mark,) = tmp_path.glob(f"nodes/*/{DIVERGED}")
    assert str(mark) in line
    assert run(tiny, tmp_path, only_report=True, console=console).failed == first.failed
    show_plan(tiny, tmp_path, console=console)
    drawn = lines(console)
    assert "0 to do in 0 nodes" in drawn[0]
    assert [line for line in drawn if "diverged" in line] == [line for line in drawn if "Robust" in line]
    trained.wrong = lambda stage, settings: False
    mark.unlink()  # as the line says
    assert run(tiny, tmp_path, console=console).exit_code == 0
    assert [stage.objective for stage in trained] == ["tilted"]


def test_what_forks_from_it_and_several_points_have_one_line(tiny, console, tmp_path, trained):
    trained.wrong = lambda stage, settings: stage.end == 1 and settings.batch < 64
    spec, sweep = narrowed(tiny, methods=("vanilla", "robust")), make_sweep("batch", (16, 32, 64))
    first = run(spec, tmp_path, sweep=sweep, console=console)
    lines(console)
    trained.clear()
    again = run(spec, tmp_path, sweep=sweep, console=console)
    assert not trained
    assert again.failed == first.failed
    assert again.failed["seed 42 robust batch 16"] == "its warm-up diverged"
    (line,) = lines(console)
    assert "seed 42 warm-up and 1 other diverged in an earlier session and are not trained again" in line
    trained.clear()
    run(spec, tmp_path, sweep=make_sweep("batch", (64, 128)), console=console)
    assert len(trained) == 3  # a new point: its warm-up and two methods
    assert not any("earlier session" in line for line in lines(console))


@pytest.mark.parametrize("damage", ["", "{}", '{"key": "", "reason": "x"}', None])
def test_a_mark_that_is_not_whole_does_not_count(tiny, console, tmp_path, trained, damage):
    spec = narrowed(tiny, methods=("single", "robust"))
    trained.wrong = lambda stage, settings: stage.objective == "tilted"
    run(spec, tmp_path, console=console)
    (mark,) = tmp_path.glob(f"nodes/*/{DIVERGED}")
    if damage is None:  # another node's
        key = next(node.key for node in Run.open(tmp_path).nodes if node.key != mark.parent.name)
        RunFolder(tmp_path).give_up(Run.open(tmp_path).nodes[0], "x")
        mark.unlink()
        (tmp_path / "nodes" / key / DIVERGED).rename(mark)
    else:
        mark.write_text(damage)
    trained.wrong = lambda stage, settings: False
    assert run(spec, tmp_path, console=console).exit_code == 0
    assert not mark.exists()


def test_a_study_prunes_it_again_without_training(tiny, console, tmp_path, trained):
    optuna = pytest.importorskip("optuna")
    spec = narrowed(tiny, methods=("robust",), seeds=(42, 43))
    trained.wrong = lambda stage, settings: stage.objective == "tilted" and settings.eta > 2.3

    def study():
        return Objective(spec, tmp_path, ["eta=0..4"], console=console)

    def trials(done):
        return [(trial.params, trial.value, trial.state) for trial in done.trials]

    first = trials(optuna_study(study(), 4))
    outcome = tuned(study(), 4)
    pruned = [state for _, _, state in first].count(optuna.trial.TrialState.PRUNED)
    assert 0 < pruned < 4
    before = contents(tmp_path)
    lines(console)
    trained.clear()
    assert trials(optuna_study(study(), 4)) == first
    assert not trained
    said = lines(console)
    assert len(said) == 4
    assert len([line for line in said if line.endswith("diverged before, not trained again")]) == pruned
    assert next_point(study(), 4) is None
    number, _ = next_point(study(), 5)
    assert number == 5
    again = tuned(study(), 4)
    assert (again.rows, again.failed) == (outcome.rows, outcome.failed)
    assert len(again.failed) == 2 * pruned
    assert contents(tmp_path) == before


def test_the_word_comes_back_from_another_machine(tiny, quiet, tmp_path):
    """A real divergence, as a Ray task has it."""
    wild = with_settings(narrowed(tiny, methods=("single",)), ["weight_decay=1e30", "learning_rate=10"])
    with pytest.raises(Exception, match="no results"):
        run(wild, tmp_path / "here", console=quiet)
    (node,) = Run.open(tmp_path / "here").nodes
    dataset = load_dataset("digits")
    work = Work(spec=wild, dataset=dataset, data=None, device=torch.device("cpu"), threads=1)
    folder = RunFolder(tmp_path / "there")
    told = [*train_remotely(work.as_text(""), json.dumps(node_as_json(node)), {}, None)]
    for _, files in told:
        folder.keep(node.key, files)
    reason = RunFolder(tmp_path / "here").divergence(node.key)
    assert told[-1][0] == {"kind": "diverged", "reason": reason}
    assert folder.divergence(node.key) == reason
