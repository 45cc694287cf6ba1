"""Does the audit find what is hidden, and say where it comes from? Worlds of known truth answer."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from calmoe.auditing import Configurations, hidden
from calmoe.auditing.statistics.sequential import Lessons
from calmoe.errors import check_known
from calmoe.render.grid import Entry, Grid, Heading, count, label
from calmoe.worlds.cancellation import WORLDS
from calmoe.worlds.multiclass import Multiclass

LEVEL = 0.05
ORIGINS = {
    "by class": "mixture's own vector",
    "by class, one expert": "mixture's own vector",
    "by class, 100 classes": "mixture's own vector",
    "by expert vector": "routing",
    "by routing": "routing",
}
"""Where what is hidden comes from; the other worlds hide nothing."""


def audit_worlds(
    worlds: Annotated[int, typer.Option(help="Random worlds of each kind.")] = 200,
    rows: Annotated[int, typer.Option(help="Rows drawn from each.")] = 5000,
    first: Annotated[int, typer.Option(help="The first world's seed.")] = 70_000,
    kinds: Annotated[str, typer.Option(help="Kinds to try, with semicolons between; all unless given.")] = "",
) -> None:
    """Does the audit find what is hidden in known worlds?

    Its power, level, validity and attribution in worlds of known truth. Prints a line a world kind when it
    is done, and a table at the end.

    Example: python -m studies audit-worlds --worlds 20
    """
    chosen = [kind.strip() for kind in kinds.split(";") if kind.strip()] or list(WORLDS)
    for kind in chosen:
        check_known("kind of world", kind, WORLDS)
    found = {}
    for kind in chosen:
        found[kind] = [judged(WORLDS[kind], kind, rows, seed) for seed in range(first, first + worlds)]
        print(table({kind: found[kind]}, rows).markdown(), flush=True)
    if len(chosen) > 1:
        print(table(found, rows).markdown())


def judged(make: Callable[[int], Multiclass], kind: str, rows: int, seed: int) -> dict[str, Any]:
    """What the audit says of one world, and whether that is so."""
    world = make(seed)
    seen = Configurations.of(world.sample(rows, seed=1_000_000 + seed))
    answer = hidden(seen, Lessons(seen, seed), seed=seed)
    return {
        "rejects “nothing hidden”": answer.p_hidden < LEVEL,
        "rejects m = f": answer.p_calibrated < LEVEL,
        "rejects “V says nothing”": answer.p_without_routing < LEVEL,
        "rejects “routing adds nothing”": answer.p_routing < LEVEL,
        "E|m(S) − f| ≥ bound": answer.witness.low <= world.hidden + 1e-9,
        "E|m(V) − f| ≥ bound": answer.without_routing.low <= world.without_routing + 1e-9,
        "E|m(S) − m(V)| ≥ bound": answer.routing_adds.low <= world.routing_adds + 1e-9,
        "bound / E|m(S) − f|": max(answer.witness.low, 0.0) / world.hidden if kind in ORIGINS else None,
        "origin right": answer.origin == ORIGINS.get(kind),
        "origin wrong": answer.origin not in (ORIGINS.get(kind), "not decided"),
        "not decided": not answer.decided,
    }


def table(found: dict[str, list[dict[str, Any]]], rows: int) -> Grid:
    """A row a kind of world; the means over worlds."""
    names = list(next(iter(found.values()))[0])
    columns = (
        Heading("world", ("world",)),
        Heading("worlds", ("worlds",)),
        *(Heading(name, (name,)) for name in names),
    )
    lines = []
    for kind, answers in found.items():
        means = _means(answers)
        cells = (Entry("–", (float("nan"),)) if means[n] is None else _share(means[n]) for n in names)
        lines.append((label(kind, kind), count(len(answers)), *cells))
    return Grid(f"Worlds of {rows:,} rows: how often", columns, (tuple(lines),))


def _share(value: float) -> Entry:
    return Entry(f"{value:.3f}", (value,))


def _means(answers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    values = defaultdict(list)
    for answer in answers:
        for name, value in answer.items():
            values[name].append(value)
    return {
        name: None if each[0] is None else sum(map(float, each)) / len(each) for name, each in values.items()
    }
