"""What the study lacks is trained once, a target, seed and warm-up at a time, and stops in time."""

import os
import signal
from multiprocessing import active_children

import pytest

from calmoe.errors import InputError
from calmoe.predictions import Predictions
from forked import in_place_of_subprocess
from meanwhile import meanwhile
from studies.rows import read_lines, write_lines
from studies.train_truer import GRIDS, Grid, lacking, train_truer

EVERY = ["vanilla", "sharp", "single"]


@pytest.fixture(autouse=True)
def _quick_processes(monkeypatch):
    monkeypatch.setattr("studies.train_truer.subprocess", in_place_of_subprocess)


def reading(target, seed, method, views=1):
    return {"target": target, "seed": seed, "method": method, "weights": "last", "views": views}


def write(path, *models):
    write_lines(path, (reading(*model) for model in models))
    return path


def test_what_rows_hold_is_not_lacking():
    grid = Grid(range(2), targets=("a", "b"))
    assert sum(len(piece.methods) for piece in lacking(grid, set(), EVERY)) == 2 * 2 * 3
    held = {("a", 0, "vanilla"), ("b", 1, "single"), ("b", 1, "sharp")}
    names = [(piece.name, piece.methods) for piece in lacking(grid, held, EVERY)]
    assert names[:2] == [("a-0-sharp", ("sharp",)), ("a-0-single", ("single",))]
    assert names[-1] == ("b-1-vanilla", ("vanilla",))
    assert len(names) == 9
    robust = [*EVERY, "robust_brier", "sharp_brier"]
    names = [(piece.name, piece.methods) for piece in lacking(grid, held, robust)]
    assert ("a-0-sharp", ("sharp", "sharp_brier")) in names  # one warm-up, one folder
    assert ("a-0-vanilla", ("robust_brier",)) in names  # whose folder keeps its name as rows come in


def test_digits_lack_one_method_and_it_is_trained(tmp_path, capsys):
    held = [("", seed, method) for seed in GRIDS["digits"].seeds for method in ("single", "sharp")]
    rows = write(tmp_path / "rows.jsonl", *held[2:])
    options = {"data": None, "weights": None, "settings": ["epochs=2", "warmup=1"], "methods": "single,sharp"}
    to, kept = tmp_path / "work", tmp_path / "kept.jsonl"
    train_truer("digits", rows, to, limit=600.0, jobs=2, new_rows=kept, dry_run=False, **options)
    new = read_lines(kept)
    assert {(row["seed"], row["method"]) for row in new} == {(42, "single"), (42, "sharp")}
    assert {(row["weights"], row["views"]) for row in new} == {
        (w, v) for w in ("last", "averaged") for v in (1, 5)
    }
    assert Predictions.load(to / "predictions/42-sharp-test.npz").num_experts == 4
    assert capsys.readouterr().out.count("rc 0") == 2

    write_lines(rows, [*read_lines(rows), *new])  # the same command again, with the new rows appended
    options |= {"methods": "single,sharp,vanilla", "seeds": "42"}
    train_truer("digits", rows, to, limit=600.0, jobs=2, new_rows=kept, **options)
    assert {(row["seed"], row["method"]) for row in read_lines(kept)} == {(42, "vanilla")}


def test_new_rows_that_nobody_appended_stay_and_appended_ones_go(tmp_path):
    rows, kept = tmp_path / "rows.jsonl", tmp_path / "kept.jsonl"
    write(rows, ("", 42, "single"))
    write(kept, ("", 42, "single"), ("", 44, "single"))  # 44: of another machine, which is gone
    (tmp_path / "work").mkdir()
    write(tmp_path / "work/43-single.rows.jsonl", ("", 43, "single"), ("", 43, "single", 5))
    train_truer("digits", rows, tmp_path / "work", limit=0.0, new_rows=kept)
    models = [("", 44, "single"), ("", 43, "single"), ("", 43, "single", 5)]
    assert read_lines(kept) == [reading(*model) for model in models]


def test_no_time_no_training_and_bad_input_is_refused(tmp_path):
    options = {"data": None, "weights": None, "settings": None, "dry_run": False}
    missing = tmp_path / "rows.jsonl"
    train_truer("digits", missing, tmp_path / "work", limit=0.0, jobs=1, methods=None, **options)
    assert not list((tmp_path / "work").iterdir())
    with pytest.raises(InputError, match="unknown method of the study"):
        train_truer("digits", missing, tmp_path / "work", limit=9.0, jobs=1, methods="vanila", **options)
    with pytest.raises(InputError, match="unknown target"):
        train_truer("pacs", missing, tmp_path / "work", limit=9.0, targets="skech", **options)
    with pytest.raises(InputError, match="seed 99 is not in the study"):
        train_truer("digits", missing, tmp_path / "work", limit=9.0, seeds="42,99", **options)
    options["settings"] = ["epoch=1"]
    with pytest.raises(InputError, match="did you mean"):
        train_truer("digits", missing, tmp_path / "work", limit=60.0, jobs=1, methods="single", **options)


def test_only_the_seeds_that_are_asked_for(tmp_path, capsys):
    options = {"methods": "single", "seeds": "50-51", "dry_run": True}
    train_truer("digits", tmp_path / "none.jsonl", tmp_path / "work", **options)
    assert capsys.readouterr().out.split() == ["50-single", "single", "51-single", "single"]


def test_a_training_that_hangs_is_ended(tmp_path, capsys, monkeypatch):
    """It hangs after its first epoch."""
    monkeypatch.setattr("studies.train_truer.GRACE", -594.0)
    log, others = tmp_path / "work/42-single.log", {*active_children()}

    def hang():
        begun = log.exists() and "epoch 1/20000" in log.read_text()
        for process in {*active_children()} - others if begun else ():
            os.kill(process.pid, signal.SIGSTOP)
        return begun

    options = {
        "data": None,
        "weights": None,
        "settings": ["epochs=20000"],
        "methods": "single",
        "seeds": "42",
    }
    with meanwhile(hang):
        train_truer(
            "digits",
            tmp_path / "none.jsonl",
            tmp_path / "work",
            limit=600.0,
            jobs=1,
            dry_run=False,
            **options,
        )
    assert "42-single hung and was killed" in capsys.readouterr().out
    assert "seed 42 single epoch 1/20000" in log.read_text()
    assert not (tmp_path / "work/new-rows.jsonl").exists()
