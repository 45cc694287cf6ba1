"""The attack on all that is written: killed at every file operation, at any time, by two at once."""

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from attack import disks
from attack.children import KILLED, prepare
from attack.figures import Progress, Tally
from attack.trials import COMMANDS, SLOW, Library, Trial
from forked import server

LARGE = 0.1  # the scale from which on there is time for slow commands, and for those that draw
DRAWS = ("report of a sweep",)
AT_RANDOM = 30  # runs that are killed at random times, so often each:
TIMES = 4
AT_ONCE = 5  # pairs of processes of each command

Case = Callable[[], Tally]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Every case at scale 1, and a seeded sample below; a tally for each kind of attack and command."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    names = [name for name in COMMANDS if scale >= LARGE or name not in (*SLOW, *DRAWS)]
    with (
        tempfile.TemporaryDirectory(prefix="calmoe-kills-") as folder,
        ProcessPoolExecutor(2, server(), prepare, (scale >= LARGE,)) as pool,
    ):
        library = Library(Path(folder))
        library.begin()
        for layer in _layers(names):
            list(pool.map(library.add, layer))
        families = {
            family: _sample(cases, scale, f"{seed} {family}")
            for family, cases in all_cases(library, names, seed).items()
        }
        tallies = {family: Tally(family) for family in families}
        waiting = {pool.submit(case): family for family, cases in families.items() for case in cases}
        for done, future in enumerate(as_completed(waiting), start=1):
            tallies[waiting[future]].merge(future.result())
            progress(done, len(waiting), sum(tally.failed for tally in tallies.values()))
    return list(tallies.values())


def all_cases(library: Library, names: Iterable[str], seed: int) -> dict[str, list[Case]]:
    """By kind of attack and command."""
    families: dict[str, list[Case]] = {}
    for name in names:
        families[f"killed: {name}"] = list(kills(library, name))
    families["killed at random: run"] = [
        partial(kill_at_random, library, f"{seed} {number}") for number in range(AT_RANDOM)
    ]
    families["killed, then more asked: run"] = [
        partial(kill_and_ask_more, library, number)
        for number in range(len(library.facts("run")["operations"]))
    ]
    families["two at once"] = [
        partial(two_at_once, library, name, f"{seed} {number}")
        for name in names
        for number in range(1 if name in SLOW else AT_ONCE)
    ]
    return families | disks.all_cases(library, names)


def kills(library: Library, name: str) -> Iterator[Case]:
    """Before each operation and, where a file is about to be whole, when half of it is written.

    The folder is the same before a file's fsync and before its renaming: a slow command is killed there once.
    """
    for number, (operation, _) in enumerate(library.facts(name)["operations"]):
        if operation == "fsync":
            yield partial(kill_at, library, name, number, True)
        if operation != "fsync" or name not in SLOW:
            yield partial(kill_at, library, name, number, False)


def kill_at(library: Library, name: str, number: int, torn: bool) -> Tally:
    """Killed before that operation, the same command ends as if it had not been."""
    with Trial(library, name) as trial:
        operation, path = library.facts(name)["operations"][number]
        trial.what = f"{name}, killed at operation {number} ({operation} {Path(path).name}{', torn' * torn})"
        end = trial.run(partial(_die, number, torn))
        if end.code != KILLED:
            trial.fail("wrong", 1, f"was not killed but ended with {end.code}")
        trial.resume()
        return trial.tally


def kill_and_ask_more(library: Library, number: int) -> Tally:
    """A run that is killed, and then asked for more methods, ends as one that was not."""
    with Trial(library, "run") as trial:
        trial.run(partial(_die, number, False))
        trial.name, trial.command = "run, methods added", COMMANDS["run, methods added"]
        trial.what = f"run, killed at operation {number}, then {trial.name}"
        trial.resume()
        return trial.tally


def kill_at_random(library: Library, seed: str) -> Tally:
    """A run that is killed several times, whatever it does just then, ends as if it had not been."""
    moments, usual = random.Random(seed), library.facts("run")["seconds"]
    with Trial(library, "run") as trial:
        trial.tally.cases = TIMES
        trial.what = f"run, killed at random times of seed {seed}"
        killed = 0
        while killed < TIMES:
            child = trial.start()
            time.sleep(moments.uniform(0, usual))
            os.kill(child.pid, signal.SIGKILL)
            killed += trial.note(child.wait(trial.limit)).code == KILLED
            trial.remember()
        trial.resume()
        return trial.tally


def two_at_once(library: Library, name: str, seed: str) -> Tally:
    """Of two in one folder each ends well or refuses, and the folder is as one alone leaves it."""
    moments, usual = random.Random(seed), library.facts(name)["seconds"]
    with Trial(library, name) as trial:
        trial.what = f"{name}, two at once, of seed {seed}"
        first = trial.start()
        time.sleep(moments.uniform(0, usual / 2))
        second = trial.start()
        ends = [trial.note(child.wait(trial.limit)) for child in (first, second)]
        trial.tally.refused += sum(end.is_refusal for end in ends)
        if all(end.code for end in ends):
            trial.fail("wrong", 1, f"none of the two came through: {ends[0].stderr.strip()}")
        trial.resume()
        return trial.tally


def _die(chosen: int, torn: bool, number: int, _: str, file: str | int) -> None:
    if number == chosen:
        if torn and isinstance(file, int):
            os.ftruncate(file, os.fstat(file).st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)


def _layers(names: Sequence[str]) -> Iterator[list[str]]:
    """The commands in such an order that what each comes after is there."""
    done, left = {""}, list(names)
    while left:
        layer = [name for name in left if COMMANDS[name].after in done]
        yield layer
        done.update(layer)
        left = [name for name in left if name not in done]


def _sample(cases: Sequence[Case], scale: float, seed: str) -> Sequence[Case]:
    count = min(len(cases), max(1, round(scale * len(cases))))
    return random.Random(seed).sample(cases, count)
