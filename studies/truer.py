"""What sharp training, averaged weights and views gain over a plain mixture with a temperature."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from scipy.stats import t as student

from calmoe.errors import InputError
from calmoe.experiments.spec import parse_seeds
from calmoe.methods import card, in_order, method_title
from calmoe.render.grid import Entry, Grid, Heading, count, interval, label, number, signed
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
    error: float  # standard error
    freedom: int  # degrees of freedom of that error

    def bounds(self, comparisons: int) -> tuple[float, float]:
        """An interval that holds together with those of all comparisons (Bonferroni)."""
        half = self.error * float(student.ppf(1 - (1 - LEVEL) / 2 / comparisons, self.freedom))
        return self.estimate - half, self.estimate + half


def truer(
    cells: Annotated[Path, typer.Argument(help="The rows that `python -m studies cells` wrote.")],
    rerun: Annotated[
        Path | None, typer.Option(help="A folder with results.jsonl and again.jsonl: two runs of one plan.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Only these, such as 42-44.")] = None,
) -> None:
    """What do sharp training and views gain over a temperature?

    Prints two tables: the mean scores of each cell, and its differences from Vanilla MoE (last weights, one
    view), seed by seed. All scores follow a temperature fitted on validation. The standard error is the
    larger of two: that of the seeds' scatter, and that which a rerun of the same seeds alone makes, where
    --rerun gives two runs. The intervals of a table hold together: level 95 %, Bonferroni.

    Example: python -m studies truer results/truer/cifar10h.jsonl --rerun results/cifar10h
    """
    wanted = parse_seeds(seeds) if seeds else None
    rows = [row for row in read_lines(cells) if wanted is None or row["seed"] in wanted]
    moved = rerun_moves(rerun) if rerun else {}
    for grid in (means_table(rows), gains_table(rows, moved)):
        print(grid.markdown())


def cell_of(row: Mapping[str, Any]) -> Cell:
    return row["method"], row["weights"], row["views"]


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

    Targets are not drawn at random: seeds are what the error is about, each a mean over its targets. Where
    reruns move a difference by more than the seeds' scatter says, the error is theirs.
    """
    scores, plain = by_place(rows, cell, column), by_place(rows, PLAIN, column)
    common = sorted(scores.keys() & plain.keys())
    seeds = sorted({seed for _, seed in common})
    by_seed = [mean(scores[at] - plain[at] for at in common if at[1] == seed) for seed in seeds]
    if len(by_seed) < 2:
        return None
    of_seeds = float(np.std(by_seed, ddof=1)) / math.sqrt(len(by_seed))
    of_reruns = deviation(moves) / math.sqrt(len(common)) if moves else 0.0
    error, freedom = max((of_seeds, len(by_seed) - 1), (of_reruns, len(moves)))
    return Gain(len(common), mean(by_seed), error, freedom)


def rerun_moves(folder: Path) -> dict[str, list[float]]:
    """By score: how far a rerun of the same seed moves a method's difference from Vanilla MoE."""
    runs = [read_results(folder / name) for name in ("results.jsonl", "again.jsonl")]
    moves = {}
    for column in METRICS:
        less = [_less_vanilla(rows, column) for rows in runs]
        changed = [less[1][at] - less[0][at] for at in less[0].keys() & less[1].keys()]
        if not changed:
            raise InputError(f"{folder}: its two runs share no method but Vanilla MoE, or no seed")
        moves[column] = changed
    return moves


def _less_vanilla(rows: Rows, column: str) -> dict[tuple[str, int], float]:
    rows = [row for row in rows if row["protocol"] == "corrected" and row[column] is not None]
    vanilla = {row["seed"]: row[column] for row in rows if row["method"] == "vanilla"}
    others = [row for row in rows if row["method"] != "vanilla" and row["seed"] in vanilla]
    return {(row["method"], row["seed"]): row[column] - vanilla[row["seed"]] for row in others}


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
    comparisons = len(cells) * len(METRICS)

    def row(cell: Cell) -> tuple[Entry, ...]:
        gains = [gain(rows, cell, column, moved.get(column, ())) for column in METRICS]
        pairs = max((found.pairs for found in gains if found), default=0)
        return (*_names(cell), count(pairs), *(entry for found in gains for entry in _entries(found)))

    def _entries(found: Gain | None) -> tuple[Entry, Entry]:
        if found is None:
            return label("–", ""), label("–", "")
        low, high = found.bounds(comparisons)
        bold = low > 0 or high < 0
        return signed(found.estimate, decimals=DECIMALS), interval(low, high, bold, decimals=DECIMALS)

    titles = ["Method", "Weights", "Views", "Pairs"]
    for column in METRICS:
        titles += [column_title(column), f"{column_title(column)} interval"]
    return _table(f"Less Vanilla MoE, {comparisons} intervals that hold together", titles, rows, row, cells)


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
