"""The engine of several processes on this machine: `calmoe run … --jobs N`."""

import json
import math
import os
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from calmoe.experiments.engines.nursery import Nursery
from calmoe.experiments.engines.schedule import Schedule
from calmoe.experiments.engines.work import Work, node_as_json
from calmoe.experiments.engines.worker import Message, raise_trouble, send_line
from calmoe.experiments.environment import describe
from calmoe.experiments.plan import Node
from calmoe.experiments.preparation import pick_device
from calmoe.experiments.run import Run
from calmoe.experiments.watcher import Watcher
from calmoe.render.console import say_notes

RETRIES = 1  # of a node whose worker died


class Processes:
    """Trains in `jobs` processes of this machine. They write into the folder, and hold its lock, too.

    nursery: one that was started before; it serves one call of `train`.
    """

    def __init__(
        self, jobs: int, nursery: Nursery | None = None, checkpoint_seconds: float | None = None
    ) -> None:
        self.jobs, self.checkpoint_seconds = jobs, checkpoint_seconds
        self.nursery = nursery

    def device(self, name: str) -> torch.device:
        return pick_device(name)

    def session(self, device: torch.device) -> dict[str, Any]:
        return describe(device)

    def train(self, nodes: Sequence[Node], work: Work, opened: Run, watcher: Watcher) -> dict[str, str]:
        """Train the nodes, as many at once as there are jobs."""
        say_notes(crowd_notes(self.jobs, work.device.type, work.threads), watcher.console)
        schedule = Schedule(nodes, opened, watcher, RETRIES)
        text = replace(work, checkpoint_seconds=self.checkpoint_seconds).as_text(opened.record.weights)
        nursery, self.nursery = self.nursery or Nursery(), None
        try:
            nursery.begin(text, opened.folder.lock)
            _Crew(nursery, min(self.jobs, len(nodes)), schedule, work.device).work()
        finally:
            nursery.close()
        return schedule.failed()


@dataclass
class _Seat:
    """A worker's place: its GPU, the socket to it, the node that it trains, and what it has half said."""

    environment: dict[str, str]
    connection: socket.socket
    node: Node | None = None
    rest: bytes = field(default=b"")


class _Crew:
    """The workers of a nursery; one that dies is replaced."""

    def __init__(self, nursery: Nursery, size: int, schedule: Schedule, device: torch.device) -> None:
        self.nursery, self.schedule = nursery, schedule
        self.selector = selectors.DefaultSelector()
        self.selector.register(nursery.control, selectors.EVENT_READ)
        gpus = _gpus() if device.type == "cuda" else []
        self.seats = [self._seat(_on_gpu(gpus[n % len(gpus)], size) if gpus else {}) for n in range(size)]

    def _seat(self, environment: dict[str, str]) -> _Seat:
        seat = _Seat(environment, self.nursery.fork())
        send_line(seat.connection, {"environment": environment})
        self.selector.register(seat.connection, selectors.EVENT_READ, seat)
        return seat

    def work(self) -> None:
        """Until nothing is left that could begin."""
        try:
            while True:
                for seat in self.seats:
                    if seat.node is None and self.schedule.waits:
                        self._begin(seat, self.schedule.next())
                if not self.schedule.training:
                    return
                for key, _ in self.selector.select():
                    if key.data is None:
                        self._hear_nursery()
                    else:
                        self._hear(key.data)
        finally:
            self.selector.close()
            for seat in self.seats:
                seat.connection.close()

    def _begin(self, seat: _Seat, node: Node) -> None:
        seat.node = node
        deadline = self.schedule.watcher.deadline
        seconds = None if deadline == math.inf else deadline - time.monotonic()
        folder = str(self.schedule.opened.folder.path.absolute())
        with suppress(OSError):  # it died while it had nothing to do; the selector will say so
            send_line(seat.connection, {"node": node_as_json(node), "folder": folder, "seconds": seconds})

    def _hear(self, seat: _Seat) -> None:
        try:
            data = seat.connection.recv(2**16)
        except OSError:
            data = b""
        if not data:
            self._replace(seat)
            return
        *lines, seat.rest = (seat.rest + data).split(b"\n")
        for line in lines:
            message: Message = json.loads(line)
            raise_trouble(message)
            assert seat.node is not None
            self.schedule.hear(seat.node, message)
            if seat.node.key not in self.schedule.training:
                seat.node = None

    def _replace(self, seat: _Seat) -> None:
        self.selector.unregister(seat.connection)
        seat.connection.close()
        if seat.node is not None:
            self.schedule.lost(seat.node)
        self.seats[self.seats.index(seat)] = self._seat(seat.environment)

    def _hear_nursery(self) -> None:
        """It says only what keeps all workers from beginning."""
        with self.nursery.control.makefile("rb") as stream:
            line = stream.readline()
        raise_trouble(json.loads(line) if line else {"kind": "broken", "trace": "all workers ended at once"})


def _gpus() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",") if given else [str(n) for n in range(torch.cuda.device_count())]


def _on_gpu(gpu: str, workers: int) -> dict[str, str]:
    """The environment of a worker on this GPU; to compile, it has its share of the cores."""
    return {"CUDA_VISIBLE_DEVICES": gpu, **compile_share(workers)}


def compile_share(workers: int) -> dict[str, str]:
    """The environment of one of so many trainings that compile at once; a setting from outside stays."""
    threads = os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, _cores() // workers)))
    return {"TORCHINDUCTOR_COMPILE_THREADS": threads}


def _cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shares_gpus() -> bool:
    """Whether CUDA's Multi-Process Service runs: without it, processes on one GPU take turns."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def crowd_notes(jobs: int, device: str, threads: int) -> list[str]:
    """What to say where workers get in each other's way."""
    if device == "cuda":
        takes_turns = jobs > len(_gpus()) and not _shares_gpus()
        note = "jobs on one GPU take turns; they work at once after `nvidia-cuda-mps-control -d`"
        return [note] if takes_turns else []
    if threads == 1 or jobs * threads <= _cores():
        return []
    return [  # calmoe does not lower the threads itself: the last digits of the results would be others
        f"{jobs} jobs with {threads} threads each share {_cores()} cores, for the results of one job; "
        "they are quicker with OMP_NUM_THREADS=1, for this and every later command on the folder"
    ]
