"""Cases in forked workers: a case that hangs, crashes or eats memory is counted, and the next one runs.

A case is a function of (seed, attack, number) alone, so that any of them can be run again. What it raises
says how it ended: nothing, the file was loaded; InputError, it was refused; Wrong, Foreign and Lost, see
below; anything else is a traceback.
"""

import builtins
import contextlib
import ctypes
import gc
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

from attack.figures import MEMORY_LIMIT, SHOWN, Progress, Tally
from attack.memory import limit_data, peak, start_measuring, starved
from calmoe.errors import InputError
from sizes import at_size

LONGEST = 10.0  # seconds of a case, not counting those in which other processes had the core
BATCH = 50
WORKERS = 2
MOST_DATA = 2 << 30  # bytes beyond the baseline, after which malloc fails
MORE_DATA = 4 << 30  # for those that it failed, to see what they really take
KEPT = Path(tempfile.gettempdir()) / "calmoe-attack"
FORK = get_context("fork")


class Wrong(Exception):
    """It loaded, and is not what an independent strict reading finds."""


class Foreign(Exception):
    """A file changed that the command had no business with, or code from a file ran."""


class Lost(Exception):
    """Results that were there are gone; the argument says how many bytes."""


class Forbidden(BaseException):
    """Something asked a question on standard input, or reached for the network."""


@dataclass(frozen=True)
class Target:
    """What is attacked: `prepare` makes the seeds once, `attempt` makes and reads one case in a folder."""

    name: str
    cases: int  # at scale 1
    prepare: Callable[[Path], Any]
    attempt: Callable[[Random, Any, Path], None]


@dataclass
class Ending:
    """How a case ended."""

    number: int
    kind: str  # a count of Tally
    detail: str = ""
    place: str = ""  # where: failures at one place are shown once
    memory_mb: float = 0.0
    amount: int = 1


@dataclass
class Worker:
    """A forked process, and the cases that it was given and has not ended."""

    process: Any
    pipe: Connection
    waiting: deque[int] = field(default_factory=deque)
    since: float = 0.0  # on its own clock

    @property
    def clock(self) -> float:
        """Seconds, without those in which it waited for a core: a busy machine makes nothing hang."""
        try:
            queued = float(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # it has ended, or the kernel does not tell
            queued = 0.0
        return time.monotonic() - queued


def attack(targets: Sequence[Target], scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Every target's tally."""
    total = sum(number_of_cases(target, scale) for target in targets)
    tallies: list[Tally] = []

    def told(done: int, failures: int) -> None:
        progress(done + sum(t.cases for t in tallies), total, failures + sum(t.failed for t in tallies))

    for target in targets:
        tallies.append(_attack(target, number_of_cases(target, scale), seed, told))
    return tallies


def number_of_cases(target: Target, scale: float) -> int:
    """At least five or ten: a seed is made for them anyway."""
    return max(at_size(5, 10), round(target.cases * scale))


def replay(target: Target, seed: int, number: int, folder: Path) -> None:
    """One case again, in this process, with whatever it raises."""
    forbid()
    seeds = target.prepare(_fresh(folder / "seeds"))
    _attempt(target, seeds, seed, number, _fresh(folder / "case"))


def forbid() -> None:
    """From here on nothing asks on standard input or reaches for the network."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise Forbidden("standard input or the network was asked")

    sys.stdin = open(os.devnull)  # noqa: SIM115
    for owner, name in ((socket, "getaddrinfo"), (socket.socket, "connect"), (builtins, "input")):
        setattr(owner, name, refuse)


def _attack(target: Target, cases: int, seed: int, progress: Callable[[int, int], None]) -> Tally:
    tally, began = Tally(target.name), time.monotonic()
    places: dict[str, list[Any]] = {}  # by place: how many, and the first one's line
    for kept in KEPT.glob(f"{target.name}-{seed}-*"):
        shutil.rmtree(kept, ignore_errors=True)
    with _scratch() as scratch:
        seeds = target.prepare(_fresh(scratch / "seeds"))
        left = deque(range(cases))
        useful = min(WORKERS, -(-cases // BATCH))
        workers = [_start(target, seeds, seed, scratch / f"worker-{i}") for i in range(useful)]
        while tally.cases < cases:
            for worker in workers:
                if not worker.waiting:
                    _give(worker, left)
            endings: list[Ending] = []
            for i, worker in enumerate(workers):
                if worker.waiting and (found := _listen(worker)):
                    endings += found
                    if found[-1].kind in ("hangs", "crashes"):
                        _keep(scratch / f"worker-{i}", f"{target.name}-{seed}-{found[-1].number}")
                        left.extendleft(reversed(worker.waiting))
                        workers[i] = _start(target, seeds, seed, scratch / f"worker-{i}")
            if not endings:
                wait([worker.pipe for worker in workers if worker.waiting], timeout=0.2)
            for ending in endings:
                _count(tally, ending, places, seed)
            progress(tally.cases, tally.failed)
        for worker in workers:
            worker.pipe.send(None)
            worker.process.join()
    tally.failures = [f"{count} × {line}" for count, line in places.values()][:SHOWN]
    tally.seconds = time.monotonic() - began
    return tally


def _count(tally: Tally, ending: Ending, places: dict[str, list[Any]], seed: int) -> None:
    kind = "tracebacks" if ending.kind == "crashes" else ending.kind
    tally.cases += 1
    tally.memory_mb = max(tally.memory_mb, ending.memory_mb)
    setattr(tally, kind, getattr(tally, kind) + ending.amount)
    if kind not in ("loaded", "refused") or ending.memory_mb >= MEMORY_LIMIT:
        again = f"--replay {tally.name}:{ending.number} --seed {seed}"
        line = f"{tally.name}, case {ending.number}: {kind}: {ending.detail} ({again})"
        if ending.memory_mb >= MEMORY_LIMIT:
            line = f"{ending.memory_mb:,.0f} MB: {line}"
        places.setdefault(f"{kind} {ending.place or ending.detail}", [0, line])[0] += 1


def _give(worker: Worker, left: deque[int]) -> None:
    batch = [left.popleft() for _ in range(min(BATCH, len(left)))]
    if batch:
        worker.waiting.extend(batch)
        worker.since = worker.clock
        worker.pipe.send(batch)


def _listen(worker: Worker) -> list[Ending]:
    """What the worker has told since; that it is silent for too long, or dead, is an ending too."""
    endings: list[Ending] = []
    try:
        while worker.waiting and worker.pipe.poll():
            endings.append(worker.pipe.recv())
            worker.waiting.popleft()
            worker.since = worker.clock
    except (EOFError, OSError):
        worker.process.join()
        code = worker.process.exitcode
        endings.append(Ending(worker.waiting.popleft(), "crashes", f"the process died ({code})"))
        return endings
    if worker.waiting and worker.clock - worker.since > LONGEST:
        worker.process.kill()
        worker.process.join()
        endings.append(Ending(worker.waiting.popleft(), "hangs", f"no end after {LONGEST:.0f} s"))
    return endings


def _start(target: Target, seeds: Any, seed: int, folder: Path) -> Worker:
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=_work, args=(theirs, ours, target, seeds, seed, folder))
    process.start()
    theirs.close()
    return Worker(process, ours)


def _work(pipe: Connection, other: Connection, target: Target, seeds: Any, seed: int, folder: Path) -> None:
    other.close()
    gc.freeze()  # what it inherits need not be looked through
    _die_with_parent()
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    forbid()
    limit_data(MOST_DATA)
    while (batch := pipe.recv()) is not None:
        for number in batch:
            pipe.send(_run(target, seeds, seed, number, _fresh(folder)))


def _run(target: Target, seeds: Any, seed: int, number: int, folder: Path) -> Ending:
    before = start_measuring()
    try:
        _attempt(target, seeds, seed, number, folder)
        ending = Ending(number, "loaded")
    except BaseException as error:
        ending = _ending(number, error)
        if starved(error):
            ending = _with_more_memory(target, seeds, seed, number, folder)
    ending.memory_mb = max(ending.memory_mb, peak() - before)
    if ending.kind not in ("loaded", "refused") or ending.memory_mb >= MEMORY_LIMIT:
        _keep(folder, f"{target.name}-{seed}-{number}")
    return ending


def _ending(number: int, error: BaseException) -> Ending:
    name = type(error).__name__
    detail = f"{name}: {' '.join(str(error).split())[:300]}"
    if isinstance(error, InputError):
        one_line = "\n" not in str(error).strip()
        return Ending(number, "refused" if one_line else "tracebacks", detail, "more than one line")
    if isinstance(error, Wrong | Foreign):
        return Ending(number, name.lower(), detail, re.sub(r"'.*'|\d+", "", str(error).partition(":")[0]))
    if isinstance(error, Lost):
        return Ending(number, "lost", detail, "lost", amount=error.args[0])
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "calmoe" in frame.filename] or frames
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
    return Ending(number, "tracebacks", f"{detail} in {where}", f"{name} {where}")


def _with_more_memory(target: Target, seeds: Any, seed: int, number: int, folder: Path) -> Ending:
    """The case again in a fork that may have more; one that asks for still more counts as that much."""
    ours, theirs = FORK.Pipe()

    def work() -> None:
        _die_with_parent()
        limit_data(MORE_DATA)
        before, asked = start_measuring(), 0.0
        try:
            _attempt(target, seeds, seed, number, _fresh(folder))
            ending = Ending(number, "loaded")
        except BaseException as error:
            ending, asked = _ending(number, error), MORE_DATA / 1e6 if starved(error) else 0.0
        ending.memory_mb = max(asked, peak() - before)
        theirs.send(ending)

    process = FORK.Process(target=work)
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        return Ending(number, "tracebacks", "the process died for want of memory")
    finally:
        process.join()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no orphans


def _keep(folder: Path, name: str) -> None:
    if len(list(KEPT.glob(f"{name.rpartition('-')[0]}-*"))) < SHOWN:
        with contextlib.suppress(OSError):
            shutil.copytree(folder, KEPT / name, symlinks=True, dirs_exist_ok=True)


def _attempt(target: Target, seeds: Any, seed: int, number: int, folder: Path) -> None:
    """The case, with its folder as the current one: code from a file would leave its traces there."""
    os.chdir(folder)
    target.attempt(Random(f"{seed}/{target.name}/{number}"), seeds, folder)


def _fresh(folder: Path) -> Path:
    """The folder, empty."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """In memory where that is possible: thousands of small files."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None, prefix="attack-") as folder:
        yield Path(folder)
