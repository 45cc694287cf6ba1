"""`calmoe run` on several ranks: one leads, the others help; a lost one ends the run, which then goes on."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from calmoe import Predictions
from calmoe.experiments.store import RunFolder, read_results
from forked import server
from second_process import command
from sizes import at_full_size_only, at_size
from training_ranks import start_ranks

pytestmark = pytest.mark.slow  # several processes

SMOOTH = '''
import torch
from calmoe.backbones import BACKBONES, Backbone

class Smooth(Backbone):
    """Without a kink: rounding changes nothing much."""

    def __init__(self, input_shape):
        super().__init__()
        self.layer, self.out_features = torch.nn.Linear(64, 8), 8

    def forward(self, images):
        return self.layer(images.flatten(1)).tanh()

BACKBONES.register("smooth", Smooth)
'''
LATE = 120  # seconds; a lost rank ends the others within 30


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    plugin = tmp_path_factory.mktemp("plugin") / "smooth.py"
    plugin.write_text(SMOOTH)
    settings = ("backbone=smooth", "epochs=12", "warmup=1", "batch=100", "router_hidden=4")
    words = ["--plugin", str(plugin), "--methods", "robust", "--seeds", "42"]
    return [*words, *(word for setting in settings for word in ("--set", setting))]


def finished(processes):
    for process in processes:
        process.join(LATE)
    return [process.exitcode for process in processes]


def predicted(folder):
    (path,) = folder.glob("nodes/*/test.safetensors")
    return Predictions.load(path).output.probs


@pytest.fixture(scope="module")
def undisturbed(options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    process = server().Process(target=command, args=(["run", "digits", *options, "--out", str(folder)],))
    process.start()
    process.join(LATE)
    return folder


@pytest.fixture(scope="module")
def broken_off(options, tmp_path_factory):
    """A run on two ranks, one of which was killed in the middle; and the place of what they said."""
    place = tmp_path_factory.mktemp("broken")
    processes = start_ranks(2, ["run", "digits", *options, "--out", str(place / "run")], place)
    deadline = time.monotonic() + LATE
    while not (states := [*place.glob("run/nodes/*/state-0000[3-9]*")]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert states
    os.kill(processes[1].pid, signal.SIGKILL)
    before = time.monotonic()
    processes[0].join(30)
    assert time.monotonic() - before < 30
    assert finished(processes) == [4, -signal.SIGKILL]
    return place


def test_a_killed_rank_ends_the_run_with_one_line(broken_off):
    lines = (broken_off / "0.err").read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: rank 0 ")
    assert not (broken_off / "run" / "results.jsonl").exists()


@pytest.mark.parametrize("size", at_size([1, 3], [1, 2, 4]))
def test_it_goes_on_with_any_number_of_ranks(broken_off, undisturbed, options, tmp_path, size):
    folder = shutil.copytree(broken_off / "run", tmp_path / "run")
    processes = start_ranks(size, ["run", "digits", *options, "--out", str(folder)], tmp_path)
    assert finished(processes) == [0] * size
    torch.testing.assert_close(predicted(folder), predicted(undisturbed), rtol=0, atol=1e-5)
    assert [row["method"] for row in read_results(folder)] == ["robust"]
    assert [s.get("ranks", 1) for s in RunFolder(folder).sessions()] == [2, size]
    assert "robust" in (tmp_path / "0.out").read_text()
    for rank in range(1, size):
        assert not (tmp_path / f"{rank}.out").read_text() + (tmp_path / f"{rank}.err").read_text()


def test_what_is_wrong_is_said_once_and_nothing_is_written(tmp_path):
    folder = tmp_path / "run"
    too_small = ["run", "digits", "--set", "batch=1", "--out", str(folder)]
    unknown = ["run", "digits", "--no-such-option"]
    for arguments, codes in ((too_small, [2, 0]), (unknown, [2, 2])):
        assert finished(start_ranks(2, arguments, tmp_path)) == codes
        assert (tmp_path / "0.err").read_text().startswith("error: ")
        assert (tmp_path / "0.err").read_text().count("\n") == 1
        assert not (tmp_path / "1.err").read_text() + (tmp_path / "1.out").read_text()
        assert not folder.exists()


FAILING = """
import os
from calmoe.training import trainer

def no_memory(*_):
    raise RuntimeError("out of memory")

if os.environ["RANK"] == "0":
    trainer.Batches = no_memory
"""


def test_a_leader_that_fails_as_all_begin_ends_them_all(options, tmp_path):
    (tmp_path / "failing.py").write_text(SMOOTH + FAILING)
    words = ["--plugin", str(tmp_path / "failing.py"), *options[2:], "--out", str(tmp_path / "run")]
    processes = start_ranks(2, ["run", "digits", *words], tmp_path)
    before = time.monotonic()
    assert finished(processes) == [1, 4]
    assert time.monotonic() - before < LATE / 2
    assert "out of memory" in (tmp_path / "0.err").read_text()
    assert (tmp_path / "1.err").read_text().startswith("error: rank 1 stops")


UNLIKE = """
import os
from calmoe.data import ShiftDataset

if os.environ["RANK"] == "1":
    make = ShiftDataset.__post_init__

    def relabelled(self):
        make(self)
        self.train.labels[0] = (self.train.labels[0] + 1) % 10

    ShiftDataset.__post_init__ = relabelled
"""


def test_ranks_with_other_data_are_refused(options, tmp_path):
    (tmp_path / "unlike.py").write_text(SMOOTH + UNLIKE)
    words = ["--plugin", str(tmp_path / "unlike.py"), *options[2:], "--out", str(tmp_path / "run")]
    assert finished(start_ranks(2, ["run", "digits", *words], tmp_path)) == [2, 2]
    for rank in range(2):
        (line,) = (tmp_path / f"{rank}.err").read_text().splitlines()
        assert "rank 1 has other training data than rank 0" in line
    assert not [*tmp_path.glob("run/nodes/*/test.safetensors")]


GENTLE = """
from dataclasses import dataclass
from calmoe.methods import OBJECTIVES, Method, Recipe, register
from calmoe.objectives import Objective
from calmoe.reducers import mean

@dataclass(frozen=True)
class Alone(Objective):
    def reduce(self, losses, output, labels, group=None):
        return losses.mean()

@dataclass(frozen=True)
class Together(Objective):
    def reduce(self, losses, output, labels, group=None):
        return mean(losses.square(), group)

for name, kind in (("alone", Alone), ("together", Together)):
    OBJECTIVES.register(name, Recipe(kind))
    register(Method(name=name, objective=name))
"""


def test_an_objective_of_ones_own_must_be_that_of_all_ranks(tmp_path):
    (tmp_path / "gentle.py").write_text(GENTLE)
    options = [
        "--plugin",
        str(tmp_path / "gentle.py"),
        "--seeds",
        "1",
        "--set",
        "epochs=1",
        "--set",
        "warmup=0",
    ]
    for method, codes in (("together", [0, 0]), ("alone", [2, 0])):
        arguments = ["run", "digits", *options, "--methods", method, "--out", str(tmp_path / method)]
        assert finished(start_ranks(2, arguments, tmp_path)) == codes
    assert "'alone' is not that of all ranks' rows" in (tmp_path / "0.err").read_text()
    assert not (tmp_path / "1.err").read_text()


def launched_by_torchrun(size, arguments, folder, errors):
    """A process of torchrun's own, at a port that is free; its ranks' errors go into a file."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    return subprocess.Popen(
        [*words, "-m", "calmoe", *arguments, "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=errors.open("w"),
    )


@at_full_size_only()  # every process imports torch anew
@pytest.mark.parametrize("victim", [0, 1])
def test_under_torchrun_itself(undisturbed, options, tmp_path, victim):
    """It sends SIGTERM to the rank that is left, which says one line; two other ranks go on."""
    arguments, folder = ["run", "digits", *options], tmp_path / "run"
    killed, resumed = tmp_path / "killed.err", tmp_path / "resumed.err"
    torchrun = launched_by_torchrun(2, arguments, folder, killed)
    deadline = time.monotonic() + LATE
    while not [*folder.glob("nodes/*")] and time.monotonic() < deadline:
        time.sleep(0.01)
    ranks = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
    os.kill(int(ranks[victim]), signal.SIGKILL)
    before = time.monotonic()
    assert torchrun.wait(30) == 1
    assert time.monotonic() - before < 30
    lines = killed.read_text().splitlines()
    assert [line.split(" stops")[0] for line in lines if line.startswith("error: ")] == [
        f"error: rank {1 - victim}"
    ]
    assert launched_by_torchrun(2, arguments, folder, resumed).wait(LATE) == 0, resumed.read_text()
    torch.testing.assert_close(predicted(folder), predicted(undisturbed), rtol=0, atol=1e-5)
