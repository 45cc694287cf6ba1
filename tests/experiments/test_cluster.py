"""`--engine ray`: a real Ray, started here, with two workers; one test, since every start takes seconds."""

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from calmoe.errors import InputError
from calmoe.experiments.engines import cluster
from calmoe.experiments.engines.cluster import Cluster, Resources, parse_resources
from calmoe.experiments.engines.schedule import Schedule
from calmoe.experiments.runner import LOCAL, run
from calmoe.experiments.spec import load_preset, narrowed, with_settings
from calmoe.experiments.store import RunFolder, read_results
from command_line import refused
from meanwhile import meanwhile
from run_folders import contents
from second_process import HELD, held_hear
from sizes import at_full_size_only, at_size

DIGITS = narrowed(load_preset("digits"), seeds=(42, 43))  # all eight methods, as `calmoe run digits` has them


def descendants(process):
    """The processes below this one, those that end meanwhile left out."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [below for child in children for below in (int(child), *descendants(child))]


def title(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def tasks():
    """The workers below this process that train now; between two nodes a worker has another title."""
    return [each for each in descendants(os.getpid()) if title(each).startswith(b"ray::train_remotely")]


@pytest.fixture
def interruptible():
    """Ctrl-C is heard, also where tests run with `&`."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_neither_lost_workers_nor_ctrl_c_change_anything(tiny, quiet, tmp_path, beginnings, monkeypatch):
    """The digits plan on two workers of a Ray that is started here; they are killed in the middle.

    Then the same again, which Ctrl-C ends in the middle: the Ray ends, and one process goes on.
    """
    settings = ["epochs=12", "warmup=5", "batch=32"]
    methods = ("vanilla", "mocae", "robust")
    plan = at_size(narrowed(with_settings(tiny, settings), methods=methods, seeds=(42, 43)), DIGITS)
    monkeypatch.setenv("RAY_worker_niceness", "0")  # it would be 15, which is too nice beside other tests
    alone, killed = tmp_path / "alone", []
    assert run(plan, alone, console=quiet).exit_code == 0
    starts = Cluster(jobs=2, checkpoint_seconds=0.0)
    starts.device("cpu")
    guest = Cluster(jobs=2, checkpoint_seconds=0.0)  # it finds a Ray, and leaves it

    def went_on():
        return any(epoch > node.stage.start for node, epoch in beginnings)  # from a checkpoint

    def kill():
        """One worker or both, where both nodes have new checkpoints; again if one was done just then."""
        states = {*tmp_path.glob("run/nodes/*/state-*")}
        new = {state.parent for state in states - seen if not (state.parent / "done.json").exists()}
        if len(killed) < 3 and len(new) == 2 and len(workers := tasks()) == 2 and not went_on():
            killed.append(workers)
            seen.update(states)
            for worker in workers[: at_size(1, 2)]:
                os.kill(worker, signal.SIGKILL)

    seen = set()
    with meanwhile(kill):
        outcome = run(plan, tmp_path / "run", engine=guest, console=quiet)
    assert killed
    assert went_on()
    assert outcome.exit_code == 0
    results = (alone / "results.jsonl").read_bytes()
    assert (tmp_path / "run" / "results.jsonl").read_bytes() == results
    assert contents(tmp_path / "run") == contents(alone)
    assert RunFolder(tmp_path / "run").sessions()[0]["device"] == "Ray, 1 machine"
    assert len(read_results(tmp_path / "run")) == len(plan.methods) * len(plan.seeds)

    def interrupt():
        """While Python waits: once the process died here, it seems by a signal within a call of Ray."""
        if HELD.is_set():
            os.kill(os.getpid(), signal.SIGINT)
        return HELD.is_set()

    HELD.clear()

    monkeypatch.setattr(Schedule, "hear", held_hear)
    with meanwhile(interrupt), pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "stopped", engine=starts, console=quiet)
    assert not starts.ray.is_initialized()
    assert not tasks()
    assert not (tmp_path / "stopped" / "results.jsonl").exists()
    assert run(plan, tmp_path / "stopped", console=quiet).exit_code == 0
    assert (tmp_path / "stopped" / "results.jsonl").read_bytes() == results
    assert contents(tmp_path / "stopped") == contents(alone)


@pytest.mark.slow
@at_full_size_only()
@pytest.mark.parametrize("send", [os.kill, os.killpg])  # to the command, or to all of its group
def test_ctrl_c_ends_the_command_and_its_ray(send, quiet, tmp_path):
    """In a process of its own, as a terminal starts it; resumed by one process, and by another Ray."""
    options = [f"--set={setting}" for setting in ("epochs=12", "warmup=5")]
    words = ["run", "digits", "--seeds=42", *options, f"--out={tmp_path / 'run'}", "--engine=ray", "--jobs=2"]
    command = [sys.executable, "-m", "calmoe", *words]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    while not any(tmp_path.glob("run/nodes/*/done.json")):
        assert process.poll() is None
        time.sleep(0.01)
    below = descendants(process.pid)
    send(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.startswith("stopped; the same command goes on")
    assert said.count("\n") == 1
    deadline = time.monotonic() + 30
    while any(b"ray" in title(each) for each in below) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(b"ray" in title(each) for each in below)
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    plan = narrowed(with_settings(load_preset("digits"), ["epochs=12", "warmup=5"]), seeds=(42,))
    for folder, engine in (("alone", LOCAL), ("run", LOCAL), ("again", Cluster(jobs=2))):
        assert run(plan, tmp_path / folder, engine=engine, console=quiet).exit_code == 0
        assert contents(tmp_path / folder) == contents(tmp_path / "alone")


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'calmoe[ray]'" in refused(
        "run", "digits", "--engine", "ray", "--out", tmp_path / "run"
    )
    assert not (tmp_path / "run").exists()
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())["project"]
    assert any(each.startswith("ray") for each in project["optional-dependencies"]["ray"])


def test_options_of_a_cluster_are_for_a_cluster(tmp_path):
    for option in ("--address=auto", "--resources=gpus=1"):
        assert "--engine ray" in refused("run", "digits", option, "--out", tmp_path / "run")
    assert "unknown engine 'slurm'" in refused("run", "digits", "--engine=slurm", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resources_are_read_or_refused():
    assert parse_resources("") == Resources()
    assert parse_resources(" cores=2, gpus=0.25,memory=8") == Resources(cores=2, gpus=0.25, memory=8)
    for wrong in ("gpus", "gpus=x", "gpus=-1", "gpus=nan", "gpus=inf", "disks=1", "cores=1_0"):
        with pytest.raises(InputError, match="resource"):
            parse_resources(wrong)


@pytest.mark.parametrize("cores", [None, 0.5, 3.0])
def test_a_ray_of_our_own_has_room_for_every_job(monkeypatch, cores):
    """Whatever the threads of a node: as many as this process has, or one."""
    room = {}
    ray = SimpleNamespace(
        is_initialized=lambda: bool(room),
        init=lambda num_cpus, **_: room.update(CPU=num_cpus),
        cluster_resources=lambda: room,
    )
    monkeypatch.setattr(cluster, "_import_ray", lambda: ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    engine = Cluster(jobs=3, resources=Resources(cores=cores))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    device = engine.device("cpu")
    for count in (1, 2):
        needs = engine._needs(SimpleNamespace(device=device, threads=count))
        assert 3 * needs["CPU"] <= room["CPU"]


def test_files_from_elsewhere_stay_within_their_node(tmp_path):
    folder, key = RunFolder(tmp_path), "0" * 32
    for name in ("../escaped", "spec.json", "state-1", ".hidden"):
        with pytest.raises(InputError, match="no file of a node"):
            folder.keep(key, {name: b""})
    states = {f"state-{epoch:05d}-{'a' * 32}.safetensors": b"state" for epoch in (1, 2)}
    for name in states:
        folder.keep(key, {name: states[name]})
    assert [*folder.state_files(key)] == [max(states)]
    folder.keep(key, {"history.json": b"[]"})
    assert [*folder.state_files(key)] == [max(states)]
