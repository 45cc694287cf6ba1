"""The standing attack in small, and the attack itself: it sees what gets through, and nothing else."""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from random import Random

import numpy as np
import pytest

import forked
from attack import calibrator_files, data_files, model_files, running
from attack.__main__ import ATTACKS
from attack.damage import damaged, damaged_json
from attack.figures import Tally, table
from attack.prediction_files import TARGETS, calmoe_safetensors, csv_files, foreign_safetensors, npz, parquet
from attack.readings import check_predictions
from attack.running import Foreign, Lost, Target, Wrong
from attack.watching import unchanged
from calmoe.errors import InputError
from calmoe.predictions import Predictions
from sizes import at_size


def test_nothing_gets_through():
    """Bombs and kills have tests of their own: they take longer."""
    chosen = [f"--only={name}" for name in ATTACKS if name not in ("bombs", "kills")]
    command = [sys.executable, "-m", "attack", f"--scale={at_size(0.001, 0.02)}", *chosen]
    ended = forked.run(command, text=True, hasty=at_size(True, False))
    assert ended.returncode == 0, ended.stdout + ended.stderr


# --- the strict readings agree with calmoe's on whole files


@pytest.mark.parametrize(
    ("suffix", "seeds"),
    [
        (".safetensors", calmoe_safetensors),
        (".safetensors", foreign_safetensors),
        (".npz", npz),
        (".csv", csv_files),
        (".parquet", parquet),
    ],
)
def test_readings_agree_on_whole_files(suffix, seeds, tmp_path):
    (tmp_path / "seeds").mkdir()
    for number, content in enumerate(seeds(tmp_path / "seeds")):
        path = tmp_path / f"{number}{suffix}"
        path.write_bytes(content)
        check_predictions(Predictions.load(path), path)


@pytest.mark.parametrize(
    ("whole", "other"),
    [
        (b"prob_0,prob_1,label\n0.5,0.5,0\n0.1,0.9,1\n", b"prob_0,prob_1,label\n0.5,0.5,0\n"),
        (b"prob_0,prob_1,label\n0.5,0.5,0\n", b"prob_0,prob_1,label\n0.5,0.5,1\n"),
        (b"prob_0,prob_1,label\n0.5,0.5,0\n", b"prob_0,prob_1,label\n0.4,0.6,0\n"),
        (b"prob_0,prob_1,label,a\n0.5,0.5,0,x\n", b"prob_0,prob_1,label,a\n0.5,0.5,0,y\n"),
        (b"prob_0,prob_1,label,a\n0.5,0.5,0,1\n", b"prob_0,prob_1,label,b\n0.5,0.5,0,1\n"),
        (b"prob_0,prob_1,a\n0.5,0.5,x\n", b'prob_0,prob_1,a\n0.5,0.5,"x\n'),
        (b"prob_0,prob_1\n0.5,0.5\n", b"prob_0,prob_1,prob_01\n0.5,0.5,0.5\n"),
        (b"prob_0,prob_1\n0.5,0.5\n", b"prob_0,prob_1\n0.5,0.5_0\n"),
        (b"prob_0,prob_1,a\n0.5,0.5,x\n", b"prob_0,prob_1,a\n0.5,0.5,x\0\n"),
        (b"prob_0,prob_1\n0.5,0.5\n", b"prob_0,prob_1\n0.5,0.5,1\n"),
    ],
)
def test_readings_tell_another_file(whole, other, tmp_path):
    path = tmp_path / "predictions.csv"
    path.write_bytes(whole)
    predictions = Predictions.load(path)
    path.write_bytes(other)
    with pytest.raises(Wrong):
        check_predictions(predictions, path)


@pytest.mark.parametrize(
    "target",
    [*calibrator_files.TARGETS, *model_files.TARGETS, *data_files.TARGETS],
    ids=lambda target: target.name,
)
def test_whole_seeds_load(target, tmp_path, monkeypatch):
    """Without damage every attempt loads: what is refused later is refused for its damage."""
    monkeypatch.chdir(tmp_path)
    for module in (calibrator_files, data_files, model_files):
        for name in [name for name in vars(module) if name.startswith("damaged")]:
            monkeypatch.setattr(module, name, _whole_json if name == "damaged_json" else _whole)
    (tmp_path / "seeds").mkdir()
    (tmp_path / "case").mkdir()
    target.attempt(Mild(0), target.prepare(tmp_path / "seeds"), tmp_path / "case")


class Mild(Random):
    """Draws no hostile case where it is asked for a share."""

    def random(self):
        return 0.999


def _whole(data, *_, **__):
    return data


def _whole_json(value, *_):
    return json.dumps(value).encode()


# --- the workers count what happens


def _target(attempt):
    return Target("trial", 10, lambda folder: None, lambda random, seeds, folder: attempt(folder))


def _raise(error):
    raise error


def _run(attempt):
    (tally,) = running.attack([_target(attempt)], scale=1, seed=0, progress=lambda *_: None)
    assert tally.cases == 10
    return tally


def _changes_a_file(folder):
    (folder / "mine").write_bytes(b"mine")
    with unchanged(folder):
        (folder / "mine").write_bytes(b"yours")


@pytest.mark.parametrize(
    ("kind", "attempt"),
    [
        ("loaded", lambda folder: None),
        ("refused", lambda folder: _raise(InputError("no"))),
        ("tracebacks", lambda folder: _raise(InputError("two\nlines"))),
        ("tracebacks", lambda folder: _raise(KeyError("x"))),
        ("tracebacks", lambda folder: input("yes? ")),
        ("tracebacks", lambda folder: os.kill(os.getpid(), signal.SIGKILL)),
        ("wrong", lambda folder: _raise(Wrong("short"))),
        ("foreign", lambda folder: _raise(Foreign("gone"))),
        ("foreign", _changes_a_file),
        ("lost", lambda folder: _raise(Lost(1))),
    ],
)
def test_every_ending_is_counted(kind, attempt, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "KEPT", tmp_path)
    tally = _run(attempt)
    assert getattr(tally, kind) == 10
    assert tally.failed == (0 if kind in ("loaded", "refused") else 10)
    assert len(tally.failures) == (1 if tally.failed else 0)


def test_a_hang_is_ended_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "KEPT", tmp_path)
    monkeypatch.setattr(running, "LONGEST", 0.2)
    assert _run(lambda folder: time.sleep(60)).hangs == 10


def test_memory_is_measured_and_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "KEPT", tmp_path)
    monkeypatch.setattr(running, "MOST_DATA", 1 << 27)
    count = at_size(20_000_000, 40_000_000)  # of 8 bytes, more than it gets at first
    assert -20 < _run(lambda folder: np.ones(count)).memory_mb - 8 * count / 1e6 < 80
    monkeypatch.setattr(running, "MORE_DATA", 1 << 28)
    assert 256 < _run(_swallows_that_memory_ran_out).memory_mb < 300


def _swallows_that_memory_ran_out(folder):
    try:
        np.ones(40_000_000)
    except MemoryError:
        raise InputError("too large") from None


def test_cases_depend_on_seed_and_number_alone(tmp_path):
    target = next(target for target in TARGETS if target.name == "csv")
    contents = []
    for _ in range(2):
        with suppress(InputError):
            running._attempt(target, csv_files(tmp_path), 1, 7, running._fresh(tmp_path / "case"))
        contents.append((tmp_path / "case" / "predictions.csv").read_bytes())
    assert contents[0] == contents[1]


def test_damage_is_damage():
    whole = b'{"temperature": 1.5, "status": "optimum"}'
    changed = {damaged(whole, Random(seed)) for seed in range(200)}
    assert len(changed) > 150
    assert len({damaged_json({"a": [1, {"b": "c"}]}, Random(seed)) for seed in range(200)}) > 100


def test_tallies_add_up():
    total = (
        Tally("all").merge(Tally("a", cases=2, lost=3, memory_mb=7)).merge(Tally("b", cases=1, memory_mb=5))
    )
    assert (total.cases, total.lost, total.memory_mb, total.failed) == (3, 3, 7, 3)
    assert table([total]).count("\n") == 3
