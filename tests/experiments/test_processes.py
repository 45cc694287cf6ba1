"""`--jobs N`: the results of one process, whatever is killed meanwhile."""

import io
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from calmoe.errors import InputError
from calmoe.experiments.engines import nursery as nursery_module
from calmoe.experiments.engines import processes
from calmoe.experiments.engines.nursery import VARIABLE, Nursery
from calmoe.experiments.engines.processes import Processes, crowd_notes
from calmoe.experiments.runner import run
from calmoe.experiments.spec import narrowed, with_settings
from calmoe.experiments.store import RunFolder
from calmoe.files import hold, open_lock
from calmoe.methods import METHODS, Method, register
from calmoe.plugins import load_plugin
from run_folders import contents
from second_process import held_command, started
from sizes import at_size

DEADLY = """
import os
import signal
import calmoe.methods as m
import torch._dynamo  # a second, once for all workers

def die(output, labels):
    if "CALMOE_WORKER" in os.environ:  # a run tries the loss before it begins
        os.kill(os.getpid(), signal.SIGKILL)
    return m.LOSSES["cross_entropy"](output, labels)

m.LOSSES.register("deadly", die)
m.register(m.Method(name="dies", loss="deadly", head="single"))
"""


@pytest.fixture(scope="module")
def work(tiny):
    return narrowed(
        with_settings(tiny, ["epochs=12", "warmup=5", "batch=32"]), seeds=at_size((42,), (42, 43))
    )


@pytest.fixture(scope="module")
def alone(work, quiet, tmp_path_factory):
    """What one process makes of it."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert run(work, folder, console=quiet).exit_code == 0
    return folder


def children(process):
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def wait_until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_workers_that_are_killed_change_nothing(work, alone, tmp_path, beginnings, monkeypatch):
    """Both workers are killed amid their nodes: others go on from the checkpoints, in the same command."""
    if at_size(True, False):
        monkeypatch.setattr(nursery_module, "MODULE", "warm_worker")
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    nursery, folder, killed, threads = Nursery(), tmp_path / "run", [], []

    def kill():
        wait_until(lambda: any(folder.glob("nodes/*/state-*")))
        threads.extend(os.listdir(f"/proc/{nursery.process.pid}/task"))
        for worker in children(nursery.process.pid):
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)

    killer = threading.Thread(target=kill)
    killer.start()
    console = Console(file=io.StringIO(), width=140)
    engine = Processes(2, nursery, checkpoint_seconds=0.0)
    assert run(work, folder, engine=engine, console=console).exit_code == 0
    killer.join()
    assert len(threads) == 1  # a fork copies one thread, and the locks that others hold
    assert len(killed) == 2
    assert any(epoch > node.stage.start for node, epoch in beginnings)  # from a checkpoint
    assert contents(folder) == contents(alone)
    ends = [
        line.split(" epoch ")[0] for line in console.file.getvalue().splitlines() if " epoch 12/12 " in line
    ]
    assert sorted(ends) == sorted(
        f"seed {seed} {m}" for seed in work.seeds for m in ("single", "vanilla", "robust")
    )
    with pytest.raises(ProcessLookupError):
        os.kill(nursery.process.pid, 0)


def test_a_node_that_kills_every_worker_fails_and_the_others_go_on(tiny, quiet, tmp_path, forget):
    (tmp_path / "deadly.py").write_text(DEADLY)
    load_plugin(tmp_path / "deadly.py")
    spec = narrowed(tiny, methods=("single", "dies"))
    outcome = run(spec, tmp_path / "run", engine=Processes(2), console=quiet)
    assert outcome.exit_code == 1
    assert [row["method"] for row in outcome.rows] == ["single"]
    (reason,) = outcome.failed.values()
    assert "died 2 times" in reason


@pytest.mark.parametrize(
    ("stop", "code"), at_size([(signal.SIGINT, 130)], [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
)
def test_a_stopped_command_leaves_a_free_folder_that_goes_on(stop, code, work, alone, quiet, tmp_path):
    folder = tmp_path / "run"
    options = [f"--set={setting}" for setting in ("epochs=12", "warmup=5", "hidden=[8]", "router_hidden=4")]
    methods = f"--methods={','.join(work.methods)}"
    seeds = f"--seeds={','.join(map(str, work.seeds))}"
    words = ("run", "digits", methods, seeds, *options, f"--out={folder}", "--jobs=2")
    process = started(*words, target=held_command)
    wait_until(lambda: any(folder.glob("nodes/*/done.json")))
    os.kill(process.pid, stop)
    process.join()
    assert process.exitcode == code
    if stop is signal.SIGKILL:  # the workers end by themselves; until then they keep others out
        wait_until(lambda: is_free(folder), seconds=30)
    assert is_free(folder)
    assert run(work, folder, console=quiet).exit_code == 0
    assert contents(folder) == contents(alone)


def is_free(folder):
    with open_lock(folder / ".lock") as lock:
        try:
            hold(lock.fileno(), "busy")
        except InputError:
            return False
    return True


def test_the_lock_is_known_while_it_is_held(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.locked():
        assert os.fstat(folder.lock).st_ino == (tmp_path / "run" / ".lock").stat().st_ino
        assert not is_free(folder.path)
    assert folder.lock == -1


def test_what_only_this_session_knows_is_refused(tiny, quiet, tmp_path, forget):
    exec("register(Method(name='mine', objective='tilted'))", {"register": register, "Method": Method})
    assert METHODS.origin("mine").where == "this session"
    with pytest.raises(InputError, match="put it into a file"):
        run(narrowed(tiny, methods=("mine",)), tmp_path / "run", engine=Processes(2), console=quiet)


def test_a_worker_starts_no_workers(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(InputError, match="__main__"):
        Nursery()


def test_jobs_that_share_a_gpu_without_mps_are_told_of_it(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "_gpus", lambda: ["0", "1"])
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert crowd_notes(2, "cuda", 1) == []  # one each
    assert len(crowd_notes(3, "cuda", 1)) == 1
    (tmp_path / "control").touch()
    assert crowd_notes(3, "cuda", 1) == []


def test_jobs_with_more_threads_than_cores_are_told_of_it(monkeypatch):
    monkeypatch.setattr(processes, "_cores", lambda: 4)
    assert crowd_notes(2, "cpu", 2) == crowd_notes(8, "cpu", 1) == []
    assert len(crowd_notes(3, "cpu", 2)) == 1


def test_workers_on_gpus_share_the_cores_to_compile(monkeypatch):
    monkeypatch.setattr(processes, "_cores", lambda: 16)
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    assert processes._on_gpu("1", 5) == {"CUDA_VISIBLE_DEVICES": "1", "TORCHINDUCTOR_COMPILE_THREADS": "3"}
    assert processes._on_gpu("0", 32)["TORCHINDUCTOR_COMPILE_THREADS"] == "1"
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "7")
    assert processes._on_gpu("0", 5)["TORCHINDUCTOR_COMPILE_THREADS"] == "7"


def test_a_nursery_that_is_gone_is_one_line(work, tmp_path, quiet):
    nursery = Nursery()
    os.kill(nursery.process.pid, signal.SIGKILL)
    nursery.process.wait()
    with pytest.raises(InputError, match="the process that starts workers ended"):
        run(work, tmp_path / "run", engine=Processes(2, nursery), console=quiet)
