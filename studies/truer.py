"""What sharp training, averaged weights and views gain over a plain mixture with a temperature."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from scipy.stats import t as student

from calmoe.errors import InputError, check_known
from calmoe.experiments.spec import parse_seeds
from calmoe.methods import card, in_order, method_title
from calmoe.render.grid import Entry, Grid, Heading, count, interval, label, number, signed
from calmoe.render.wording import many
from calmoe.report.columns import column_title
from calmoe.report.rows_over_seeds import Rows
from studies.reruns import deviation
from studies.rows import DECIMALS, read_lines, read_results

METRICS = ("accuracy", "nll_ts", "brier_ts", "ece_ts", "hard_ece_ts")
PLAIN = ("vanilla", "last", 1)  # method, weights, views: what the others are compared with
LEVEL = 0.95

Cell = tuple[str, str, int]  # method, weights, views
Where = tuple[str, int]  # target and seed


class Gain(NamedTuple):
    """A cell less the plain mixture, in the mean over targets and seeds."""

    pairs: int
    estimate: float
    errors: tuple[tuple[float, int], ...]  # standard errors with their degrees of freedom

    def bounds(self, comparisons: int) -> tuple[float, float]:
        """The widest interval of any error; it holds together with those of all comparisons (Bonferroni)."""
        level = 1 - (1 - LEVEL) / 2 / comparisons
        half = max(error * float(student.ppf(level, freedom)) for error, freedom in self.errors)
        return self.estimate - half, self.estimate + half


def truer(
    cells: Annotated[Path, typer.Argument(help="Rows that `python -m studies cells` wrote.")],
    rerun: Annotated[
        Path | None,
        typer.Option(help="A folder with results.jsonl, again.jsonl: other runs of these seeds."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Only these, such as 42-44.")] = None,
    alone: Annotated[
        str | None, typer.Option(help="One cell, METHOD,WEIGHTS,VIEWS: its intervals pay for no other.")
    ] = None,
) -> None:
    """What do sharp training and views gain over a temperature?

    Prints two tables: the mean scores of each cell, and its differences from Vanilla MoE (last weights, one
    view), seed by seed. All scores follow a temperature fitted on validation. An interval is the
    wider of two: that of the seeds' scatter, and that which a rerun of the same seeds alone makes, where
    --rerun gives another run. The intervals of a table hold together: level 95 %, Bonferroni. A seed counts
    for a cell once all of its targets are there.

    With --alone there is one table: that cell less Vanilla MoE, for a recipe that was chosen before; and less
    the Vanilla MoE of the other run.

    Example: python -m studies truer results/truer/cifar10h.jsonl --rerun results/cifar10h
    """
    wanted = parse_seeds(seeds) if seeds else None
    rows = complete([row for row in read_lines(cells) if wanted is None or row["seed"] in wanted])
    moved = rerun_moves(rerun, rows) if rerun else {}
    if alone:
        print(
            alone_table(rows, moved, parse_cell(alone, rows), other_plain(rerun) if rerun else []).markdown()
        )
        return
    for grid in (means_table(rows), gains_table(rows, moved)):
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


def by_place(rows: Rows, cell: Cell, column: str) -> dict[Where, float]:
    """One score of one cell by target and seed, where there is a number."""
    chosen = [row for row in rows if cell_of(row) == cell and row[column] is not None]
    scores = {(row["target"], row["seed"]): float(row[column]) for row in chosen}
    if len(scores) < len(chosen):
        raise InputError(f"{' '.join(map(str, cell))} has two rows of one seed: keep one of them")
    return scores


def gain(rows: Rows, cell: Cell, column: str, moves: Sequence[float] = ()) -> Gain | None:
    """The cell less the plain mixture, over the seeds that both have; None with fewer than two seeds.

    Targets are not drawn at random: seeds are what the error is about, each a mean over its targets. A rerun
    moves a difference, too, but not that of two readings of one training.
    """
    scores, plain = by_place(rows, cell, column), by_place(rows, PLAIN, column)
    common = sorted(scores.keys() & plain.keys())
    seeds = sorted({seed for _, seed in common})
    by_seed = [mean(scores[at] - plain[at] for at in common if at[1] == seed) for seed in seeds]
    if len(by_seed) < 2:
        return None
    errors = [(float(np.std(by_seed, ddof=1)) / math.sqrt(len(by_seed)), len(by_seed) - 1)]
    if moves and cell[0] != PLAIN[0]:
        errors.append((deviation(moves) / math.sqrt(len(common)), len(moves)))
    return Gain(len(common), mean(by_seed), tuple(errors))


def rerun_moves(folder: Path, cells: Rows) -> dict[str, list[float]]:
    """By score: how far a rerun moves a method's difference from Vanilla MoE, one size a target and seed.

    Methods of one target and seed have one Vanilla MoE, so that they move together: their root mean square
    counts. The rerun of results.jsonl is again.jsonl or, where there is none, the study's own last weights.
    """
    first, again = read_results(folder / "results.jsonl"), folder / "again.jsonl"
    second = (
        read_results(again) if again.exists() else [row for row in cells if cell_of(row)[1:] == PLAIN[1:]]
    )
    moves = {}
    for column in METRICS:
        less = [_less_vanilla(rows, column) for rows in (first, second)]
        by_place: dict[Where, list[float]] = {}
        for method, place in sorted(less[0].keys() & less[1].keys()):
            move = less[1][method, place] - less[0][method, place]
            by_place.setdefault(place, []).append(move)
        moves[column] = [math.sqrt(mean(move**2 for move in each)) for each in by_place.values()]
    if not any(moves.values()):
        raise InputError(f"{folder}: its two runs share no method but Vanilla MoE, or no seed")
    return moves


def _less_vanilla(rows: Rows, column: str) -> dict[tuple[str, Where], float]:
    def place(row: Mapping[str, Any]) -> Where:
        return row.get("target") or "", row["seed"]

    rows = [
        row for row in rows if row.get("protocol", "corrected") == "corrected" and row[column] is not None
    ]
    vanilla = {place(row): row[column] for row in rows if row["method"] == "vanilla"}
    others = [row for row in rows if row["method"] != "vanilla" and place(row) in vanilla]
    return {(row["method"], place(row)): row[column] - vanilla[place(row)] for row in others}


def means_table(rows: Rows) -> Grid:
    """The mean scores of every cell, and what it costs."""

    def row(cell: Cell) -> tuple[Entry, ...]:
        own = [row for row in rows if cell_of(row) == cell]
        entropies = [row["routing_entropy"] for row in own if row["routing_entropy"] is not None]
        hidden = [row["witness"][0] for row in own]
        return (
            *_names(cell),
            count(len(own)),
            *(_mean([row[name] for row in own if row[name] is not None]) for name in METRICS),
            _mean(entropies, 2),
            _mean(hidden, 3),
            _mean([row["validation_nll"] for row in own]),
            label("2" if card(cell[0]).gradient == "sharp" else "1", card(cell[0]).gradient),
            count(cell[2]),
        )

    titles = (
        *("Method", "Weights", "Views", "Runs"),
        *map(column_title, METRICS),
        *("Routing entropy", "Hidden, at least", "Validation NLL", "Passes to train", "Passes to predict"),
    )
    return _table("Mean scores", titles, rows, row)


def gains_table(rows: Rows, moved: dict[str, list[float]]) -> Grid:
    """Every cell less the plain mixture; an interval that leaves out zero is in bold."""
    cells = [cell for cell in cells_in_order(rows) if cell != PLAIN]
    of_cells = {cell: [gain(rows, cell, name, moved.get(name, ())) for name in METRICS] for cell in cells}
    comparisons = sum(found is not None for gains in of_cells.values() for found in gains)

    def row(cell: Cell) -> tuple[Entry, ...]:
        gains = of_cells[cell]
        pairs = max((found.pairs for found in gains if found), default=0)
        return (
            *_names(cell),
            count(pairs),
            *(entry for found in gains for entry in _differs(found, comparisons)),
        )

    titles = ["Method", "Weights", "Views", "Pairs"]
    for column in METRICS:
        titles += [column_title(column), f"{column_title(column)} interval"]
    return _table(f"Less Vanilla MoE, {comparisons} intervals that hold together", titles, rows, row, cells)


def other_plain(folder: Path) -> Rows:
    """Vanilla MoE of another run, as rows of the plain cell."""
    method, weights, views = PLAIN
    rows = [row for row in read_results(folder / "results.jsonl") if row["protocol"] == "corrected"]
    plain = [row for row in rows if row["method"] == method]
    return [{**row, "target": row.get("target") or "", "weights": weights, "views": views} for row in plain]


def alone_table(rows: Rows, moved: dict[str, list[float]], cell: Cell, other: Rows = ()) -> Grid:
    """One cell less the plain mixture: what the seeds' scatter says, what reruns say, and the other run's."""

    def row(column: str) -> tuple[Entry, ...]:
        wider = gain(rows, cell, column, moved.get(column, ()))
        by_other = gain([*others, *other], cell, column)
        return (
            label(column_title(column), column),
            *_differs(gain(rows, cell, column)),
            *_differs(wider)[1:],
            *_differs(by_other),
        )

    others = [row for row in rows if cell_of(row) != PLAIN]
    titles = (
        "Score",
        "Difference",
        "95 % over seeds",
        "95 % with reruns",
        "From the other run",
        "95 % over seeds",
    )
    name = f"{method_title(cell[0])}, {cell[1]} weights, {many(cell[2], 'view')}"
    headings = tuple(Heading(title, (title.lower(),)) for title in titles)
    return Grid(f"{name}, less Vanilla MoE", headings, (tuple(map(row, METRICS)),))


def _differs(found: Gain | None, comparisons: int = 1) -> tuple[Entry, Entry]:
    """The difference and its interval, in bold where it leaves out zero."""
    if found is None:
        return label("–", ""), label("–", "")
    low, high = found.bounds(comparisons)
    bold = low > 0 or high < 0
    return signed(found.estimate, decimals=DECIMALS), interval(low, high, bold, decimals=DECIMALS)


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


def _mean(values: Sequence[float], decimals: int = DECIMALS) -> Entry:
    return number(mean(values), decimals) if values else label("–", "")
