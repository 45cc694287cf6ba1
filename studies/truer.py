"""What sharp training, averaged weights and views gain over a plain mixture with a temperature."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, NamedTuple

import typer

from calmoe.defaults import LEVEL
from calmoe.errors import check_known
from calmoe.experiments.spec import parse_seeds
from calmoe.methods import card, in_order, method_title
from calmoe.render.grid import Entry, Grid, Heading, count, label, number, signed
from calmoe.render.wording import many
from calmoe.report.columns import column_title
from calmoe.report.rows_over_seeds import Row, Rows, measure
from studies.rows import DECIMALS, Values, bounds, by_key, less, place_of, read_lines
from studies.trainings import Error, Moves, other_run, over_seeds, rerun_moves

METRICS = ("accuracy", "nll_ts", "brier_ts", "ece_ts", "hard_ece_ts")
INSIDE = {"routing_entropy": "Routing entropy", "witness": "Hidden, at least"}  # which no other run knows
PLAIN = "vanilla,last,1"

Cell = tuple[str, str, int]  # method, weights, views


class Gain(NamedTuple):
    """A cell less another, in the mean over targets and seeds."""

    pairs: int
    estimate: float
    errors: tuple[Error, ...]  # none with one seed

    def bounds(self, comparisons: int = 1) -> tuple[float, float]:
        """The widest interval of any error; it holds together with those of all comparisons (Bonferroni)."""
        half = max((error.half(1 - (1 - LEVEL) / comparisons) for error in self.errors), default=math.nan)
        return self.estimate - half, self.estimate + half


def truer(
    cells: Annotated[Path, typer.Argument(help="Rows that `python -m studies cells` wrote.")],
    rerun: Annotated[
        Path | None,
        typer.Option(help="A folder with results.jsonl, again.jsonl: other runs of these seeds."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Only these, such as 42-44.")] = None,
    than: Annotated[
        str, typer.Option(help="METHOD,WEIGHTS,VIEWS: the cell that the others are compared with.")
    ] = PLAIN,
    only: Annotated[
        list[str] | None, typer.Option(help="This cell, and others by --only again: not corrected.")
    ] = None,
    alone: Annotated[
        str | None, typer.Option(help="One cell in full: by the seeds, with reruns, from the other run.")
    ] = None,
) -> None:
    """What do sharp training and views gain over a temperature?

    Prints two tables: the mean scores of each cell, and its differences from another cell, seed by seed: from
    Vanilla MoE, last weights, one view, unless --than names another. All scores follow a temperature fitted
    on validation. An interval is the wider of two: that of the seeds' scatter, and that which a rerun of the
    same seeds alone makes, where --rerun gives another run. How far a rerun moves the difference of two
    readings of one training is not known: there the seeds' scatter is all. The intervals of a table hold
    together: level 95 %, Bonferroni. A seed counts for a cell once all of its targets are there.

    With --only there is one table, of these cells, in which each interval pays for no other. With --alone
    there is one of all that is known of a cell that was chosen before; if the other run has the cell of
    --than, the difference from that one stands beside.

    Example: python -m studies truer results/truer/cifar10h.jsonl --rerun results/cifar10h
    """
    every = list(by_key(read_lines(cells), lambda row: (cell_of(row), place_of(row))).values())
    wanted = parse_seeds(seeds) if seeds else {row["seed"] for row in every}
    rows = complete([row for row in every if row["seed"] in wanted])
    baseline = parse_cell(than, rows)
    moved = rerun_moves(rerun, every, METRICS) if rerun else {}
    if alone:
        other = other_run(rerun, *baseline) if rerun else []
        grids = [alone_table(rows, parse_cell(alone, rows), baseline, moved, other)]
    elif only:
        grids = [gains_table(rows, baseline, moved, [parse_cell(name, rows) for name in only])]
    else:
        grids = [means_table(rows), gains_table(rows, baseline, moved)]
    for grid in grids:
        print(grid.markdown())


def cell_of(row: Mapping[str, Any]) -> Cell:
    return row["method"], row["weights"], row["views"]


def parse_cell(text: str, rows: Rows) -> Cell:
    """METHOD,WEIGHTS,VIEWS, as one of the cells that there are.

    >>> parse_cell("sharp,last,1", [{"method": "sharp", "weights": "last", "views": 1}])
    ('sharp', 'last', 1)
    """
    named = {",".join(map(str, cell_of(row))): cell_of(row) for row in rows}
    check_known("cell", text, tuple(named))
    return named[text]


def title_of(cell: Cell) -> str:
    """A cell in words.

    >>> title_of(("sharp", "last", 10))
    'Sharp MoE, last weights, 10 views'
    """
    method, weights, views = cell
    return f"{method_title(method)}, {weights} weights, {many(views, 'view')}"


def complete(rows: Rows) -> Rows:
    """The rows of those cells and seeds that have every target: a mean over fewer says something else."""
    targets = {row["target"] for row in rows}
    there: dict[tuple[Cell, int], set[str]] = {}
    for row in rows:
        there.setdefault((cell_of(row), row["seed"]), set()).add(row["target"])
    return [row for row in rows if there[cell_of(row), row["seed"]] == targets]


def cells_in_order(rows: Rows) -> list[Cell]:
    """Methods in the table's order; of each, one view before several, last weights before averaged ones."""
    methods = in_order(row["method"] for row in rows)
    return sorted({cell_of(row) for row in rows}, key=lambda c: (methods.index(c[0]), c[2], c[1] != "last"))


def measured(rows: Rows, columns: Iterable[str] = METRICS) -> list[str]:
    """The scores that some row has: PACS has no hard rows."""
    return [column for column in columns if any(math.isfinite(score(row, column)) for row in rows)]


def score(row: Row, column: str) -> float:
    """One score of a row; NaN where it has none."""
    return measure({"witness": (row.get("witness") or [None])[0]} if column == "witness" else row, column)


# --- differences


def gain(rows: Rows, cell: Cell, than: Cell, column: str, moved: Moves | None = None) -> Gain | None:
    """The cell less the other, over the seeds that both have; None where there is none.

    Targets are not drawn at random: seeds are what the error is about, each a mean over its targets. A rerun
    moves a difference, too. By how much, where both are readings of one training, no rerun has shown.
    """
    targets = {row["target"] for row in rows}
    first, second = (by_seed(rows, each, column, targets) for each in (cell, than))
    difference = less(cell[0], column, first, second).interval
    seeds = len(difference.samples)
    if not seeds:
        return None
    pairs = seeds * len(targets)
    errors = [over_seeds(difference)] if seeds > 1 else []
    if errors and moved and column in moved and cell[0] != than[0]:
        errors.append(moved[column].of_a_mean(pairs))
    return Gain(pairs, difference.estimate, tuple(errors))


def by_seed(rows: Rows, cell: Cell, column: str, targets: set[str]) -> Values:
    """One score of one cell, the mean over its targets."""
    scores: dict[int, dict[str, float]] = {}
    for row in rows:
        if cell_of(row) == cell:
            scores.setdefault(row["seed"], {})[row["target"]] = score(row, column)
    return {seed: mean(own.values()) for seed, own in scores.items() if own.keys() == targets}


# --- tables


def means_table(rows: Rows) -> Grid:
    """The mean scores of every cell, and what it costs."""
    columns = measured(rows)

    def row(cell: Cell) -> tuple[Entry, ...]:
        own = [row for row in rows if cell_of(row) == cell]
        scores = {name: [score(row, name) for row in own] for name in (*columns, *INSIDE, "validation_nll")}
        return (
            *_names(cell),
            count(len(own)),
            *(_mean(scores[name]) for name in columns),
            _mean(scores["routing_entropy"], 2),
            _mean(scores["witness"], 3),
            _mean(scores["validation_nll"]),
            label("2" if card(cell[0]).gradient == "sharp" else "1", card(cell[0]).gradient),
            count(cell[2]),
        )

    titles = (
        *("Method", "Weights", "Views", "Runs"),
        *map(column_title, columns),
        *INSIDE.values(),
        *("Validation NLL", "Passes to train", "Passes to predict"),
    )
    return _table("Mean scores", titles, rows, row)


def gains_table(rows: Rows, than: Cell, moved: Moves, only: Sequence[Cell] = ()) -> Grid:
    """Every cell less the other, or only these, not corrected; in bold the intervals that leave out zero."""
    cells, columns = only or [cell for cell in cells_in_order(rows) if cell != than], measured(rows)
    gains = {cell: [gain(rows, cell, than, column, moved) for column in columns] for cell in cells}
    intervals = sum(bool(one and one.errors) for each in gains.values() for one in each)
    together = f"{many(intervals, 'interval')} that hold together" if intervals else "one seed, no interval"
    caption = f"Less {title_of(than)}: {'each interval alone' if only else together}"

    def row(cell: Cell) -> tuple[Entry, ...]:
        pairs = max((one.pairs for one in gains[cell] if one), default=0)
        return (
            *_names(cell),
            count(pairs),
            *(entry for one in gains[cell] for entry in _differs(one, 1 if only else intervals)),
        )

    titles = ["Method", "Weights", "Views", "Pairs"]
    for column in columns:
        titles += [column_title(column), f"{column_title(column)} interval"]
    return _table(caption, titles, rows, row, cells)


def alone_table(rows: Rows, cell: Cell, than: Cell, moved: Moves, other: Rows = ()) -> Grid:
    """One cell less another: what the seeds' scatter says, what reruns say, and the other run's cell."""
    elsewhere = [*(row for row in rows if cell_of(row) != than), *other]

    def row(column: str) -> tuple[Entry, ...]:
        title = INSIDE.get(column) or column_title(column)
        by_seeds, with_reruns = gain(rows, cell, than, column), gain(rows, cell, than, column, moved)
        entries = [label(title, column), *_differs(by_seeds)]
        if moved:
            entries.append(_differs(with_reruns if with_reruns != by_seeds else None)[1])
        if other:
            entries += _differs(gain(elsewhere, cell, than, column))
        return tuple(entries)

    titles = ["Score", "Difference", "95 % over seeds"]
    titles += ["95 % with reruns"] if moved else []
    titles += ["From the other run", "95 % over seeds"] if other else []
    headings = tuple(Heading(title, (title.lower(),)) for title in titles)
    caption = f"{title_of(cell)}, less {title_of(than)}: each interval alone"
    columns = measured([row for row in rows if cell_of(row) == cell], (*METRICS, *INSIDE))
    return Grid(caption, headings, (tuple(map(row, columns)),))


def _differs(one: Gain | None, comparisons: int = 1) -> tuple[Entry, Entry]:
    """The difference and its interval, in bold where it leaves out zero."""
    if one is None:
        return label("–", ""), label("–", "")
    return signed(one.estimate, decimals=DECIMALS), bounds(*one.bounds(comparisons))


def _table(
    caption: str,
    titles: Sequence[str],
    rows: Rows,
    row: Callable[[Cell], tuple[Entry, ...]],
    cells: Sequence[Cell] | None = None,
) -> Grid:
    shown = cells_in_order(rows) if cells is None else cells
    methods = dict.fromkeys(method for method, _, _ in shown)
    sections = tuple(tuple(row(cell) for cell in shown if cell[0] == method) for method in methods)
    return Grid(caption, tuple(Heading(title, (title.lower(),)) for title in titles), sections)


def _names(cell: Cell) -> tuple[Entry, ...]:
    method, weights, views = cell
    return label(method_title(method), method), label(weights, weights), count(views)


def _mean(values: Iterable[float], decimals: int = DECIMALS) -> Entry:
    known = [value for value in values if math.isfinite(value)]
    return number(mean(known), decimals) if known else label("–", "")
