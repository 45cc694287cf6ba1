"""Does the audit find what is hidden, and say where it comes from? Worlds of known truth answer."""

import json
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from calmoe.auditing import Configurations, Estimate, fragility, hidden
from calmoe.auditing.statistics.estimates import normal, spread
from calmoe.auditing.statistics.origin import NOT_DECIDED, OWN_VECTOR, ROUTING
from calmoe.auditing.statistics.sequential import Lessons
from calmoe.auditing.verdict import judge_truth
from calmoe.defaults import LEVEL
from calmoe.errors import InputError, check_known
from calmoe.files import write_whole
from calmoe.render.grid import Entry, Grid, Heading, count, label
from calmoe.worlds.binary import calibrated_experts
from calmoe.worlds.cancellation import WORLDS, by_class, by_routing, clean
from calmoe.worlds.finite import Finite
from studies.processes import answers
from studies.rows import ALPHA

FINE = 5000  # levels: hardly two rows of a file have the same vector


class Kind(NamedTuple):
    """A kind of world, and where what it hides comes from; None: it hides nothing, "": not asked."""

    make: Callable[[int], Finite]
    origin: str | None


KINDS = {
    **{name: Kind(make, None) for name, make in WORLDS.items() if name.startswith("clean")},
    "clean, every row its own vector": Kind(partial(clean, configurations=4 * FINE), None),
    **{name: Kind(make, OWN_VECTOR) for name, make in WORLDS.items() if name.startswith("by class")},
    "by class, every row its own vector": Kind(partial(by_class, levels=FINE), OWN_VECTOR),
    "by expert vector": Kind(WORLDS["by expert vector"], ROUTING),
    "by routing": Kind(by_routing, ROUTING),
    "by routing, every row its own vector": Kind(partial(by_routing, levels=FINE), ROUTING),
    "calibrated experts": Kind(calibrated_experts, ""),
}
"""Worlds that hide nothing; that cancel by ±0.1; and calibrated experts, each of whose vectors is one row of
router and experts: whatever they say, the vector says."""

Answer = dict[str, Any]
Task = tuple[str, int, int]  # the kind, the rows, the seed


def audit_worlds(
    worlds: Annotated[int, typer.Option(help="Random worlds of each kind.")] = 200,
    rows: Annotated[int, typer.Option(help="Rows drawn from each.")] = 5000,
    first: Annotated[int, typer.Option(help="The first world's seed.")] = 70_000,
    kinds: Annotated[str, typer.Option(help="Kinds to try, with semicolons between; all unless given.")] = "",
    jobs: Annotated[int, typer.Option(help="Processes; the answers are the same for any number.")] = 1,
    to: Annotated[Path | None, typer.Option(help="Keep each world's row here, as JSON lines.")] = None,
) -> None:
    """Does the audit find what is hidden in known worlds?

    Its power, level, validity and attribution in worlds of known truth: a table with a row a kind. With
    --to each world's row is kept as soon as it is known; the same command again goes on where it stopped.

    Example: python -m studies audit-worlds --worlds 20 --jobs 2 --to rows.jsonl
    """
    if worlds < 1 or rows < 1:
        raise InputError("--worlds and --rows must be at least 1")
    chosen = [kind.strip() for kind in kinds.split(";") if kind.strip()] or list(KINDS)
    for kind in chosen:
        check_known("kind of world", kind, KINDS)
    tasks = [(kind, rows, seed) for kind in chosen for seed in range(first, first + worlds)]
    known = read_answers(to) if to is not None and to.exists() else {}
    missing = [task for task in tasks if task not in known]
    for task, answer in answers(judged, missing, jobs, "worlds"):
        known[task] = answer
        if to is not None:
            keep(to, task, answer)
    print(table({kind: [known[t] for t in tasks if t[0] == kind] for kind in chosen}, rows).markdown())


def keep(path: Path, task: Task, answer: Answer) -> None:
    """One more line."""
    kind, rows, seed = task
    with path.open("a", encoding="utf-8") as stream:
        row = {"kind": kind, "rows": rows, "seed": seed, **answer}
        stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_answers(path: Path) -> dict[Task, Answer]:
    """The rows that `keep` wrote; a last line that was cut short is taken off the file."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_whole(path, whole.encode())
    known = {}
    for at, line in enumerate(whole.splitlines(), start=1):
        try:
            row = json.loads(line)
            task = row.pop("kind"), row.pop("rows"), row.pop("seed")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise InputError(f"{path}, line {at}: not a row of audit-worlds; give another --to") from None
        known[task] = row
    return known


def judged(task: Task) -> Answer:
    """What the audit says of one world, and whether that is so."""
    kind, rows, seed = task
    started, (make, origin) = time.process_time(), KINDS[kind]
    world = make(seed)
    with threadpool_limits(1):
        seen = Configurations.of(world.sample(rows, seed=1_000_000 + seed))
        lessons = Lessons(seen, seed)
        answer = hidden(seen, lessons, seed=seed)
        shifted = fragility(seen, lessons, radii=(0.1,), seed=seed)
    share = max(answer.witness.low, 0.0) / world.hidden if world.hidden > 1e-9 else None
    return {
        "rejects “nothing hidden”": answer.p_hidden < ALPHA,
        "rejects m = f": answer.p_calibrated < ALPHA,
        "rejects “V says nothing”": answer.p_without_routing < ALPHA,
        "rejects “routing adds nothing”": answer.p_routing < ALPHA,
        "E|m(S) − f| ≥ bound": answer.witness.low <= world.hidden + 1e-9,
        "cancelled ≥ bound": answer.cancelled.low <= world.cancellation() + 1e-9,
        "E|m(V) − f| ≥ bound": answer.without_routing.low <= world.without_routing + 1e-9,
        "E|m(S) − m(V)| ≥ bound": answer.routing_adds.low <= world.routing_adds + 1e-9,
        "ECE in its interval": answer.level_set.low <= world.ece() + 1e-9 <= answer.level_set.high + 2e-9,
        "bound / E|m(S) − f|": share,
        "origin right": answer.origin == origin if origin != "" else None,
        "origin wrong": answer.origin not in (origin, NOT_DECIDED) if origin != "" else None,
        "not decided": not answer.decided,
        "called off": judge_truth(answer.level_set, _balance(seen), LEVEL) == "off",
        "called fragile": shifted.steadiness == "fragile",
        "called steady": shifted.steadiness == "steady",
        "CPU seconds": time.process_time() - started,
    }


def _balance(seen: Configurations) -> Estimate:
    return normal(float(seen.residual.mean()), spread(seen.residual, seen.noise), LEVEL)


def table(answers: dict[str, list[Answer]], rows: int) -> Grid:
    """A row a kind of world; the means over worlds."""
    names = list(next(iter(answers.values()))[0])
    columns = (
        Heading("world", ("world",)),
        Heading("worlds", ("worlds",)),
        *(Heading(name, (name,)) for name in names),
    )
    lines = [
        (label(kind, kind), count(len(each)), *(_mean(answer[name] for answer in each) for name in names))
        for kind, each in answers.items()
    ]
    return Grid(f"Worlds of {rows:,} rows: how often", columns, (tuple(lines),))


def _mean(values: Iterable[float | None]) -> Entry:
    known = [float(value) for value in values if value is not None]
    if not known:
        return Entry("–", (float("nan"),))
    return Entry(f"{np.mean(known):.3f}", (float(np.mean(known)),))
