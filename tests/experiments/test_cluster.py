"""`--engine ray`: a real Ray, started here, with two workers; one test, since every start takes seconds."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from calmoe.errors import InputError
from calmoe.experiments.engines import cluster
from calmoe.experiments.engines.cluster import Cluster, Resources, parse_resources
from calmoe.experiments.runner import run
from calmoe.experiments.spec import narrowed, with_settings
from calmoe.experiments.store import RunFolder, read_results
from command_line import refused
from run_folders import contents


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


@pytest.mark.slow
def test_lost_workers_change_nothing(tiny, quiet, tmp_path, beginnings):
    spec = narrowed(with_settings(tiny, ["epochs=12", "warmup=5"]), seeds=(42, 43))
    assert run(spec, tmp_path / "alone", console=quiet).exit_code == 0
    folder, killed = tmp_path / "run", []

    def kill():
        while not any(folder.glob("nodes/*/state-*")):
            time.sleep(0.005)
        while not killed:  # between two nodes a worker has another title
            for process in descendants(os.getpid()):
                if title(process).startswith(b"ray::train_remotely"):
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    engine = Cluster(jobs=2, checkpoint_seconds=0.0)
    outcome = run(spec, folder, engine=engine, console=quiet)
    killer.join(timeout=10)
    assert killed
    assert any(epoch > node.stage.start for node, epoch in beginnings)  # from a checkpoint
    assert outcome.exit_code == 0
    assert (folder / "results.jsonl").read_bytes() == (tmp_path / "alone" / "results.jsonl").read_bytes()
    assert contents(folder) == contents(tmp_path / "alone")
    assert not engine.ray.is_initialized()
    assert RunFolder(folder).sessions()[0]["device"] == "Ray, 1 machine"
    assert len(read_results(folder)) == len(spec.methods) * 2


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'calmoe[ray]'" in refused(
        "run", "digits", "--engine", "ray", "--out", tmp_path / "run"
    )
    assert not (tmp_path / "run").exists()


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
