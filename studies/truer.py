"""What sharp training, averaged weights and views gain over a plain mixture with a temperature."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, NamedTuple

import typer

from calmoe.defaults import LEVEL
from calmoe.errors import InputError, check_known
from calmoe.experiments.spec import parse_seeds
from calmoe.methods import card, in_order, method_title
from calmoe.render.grid import Entry, Grid, Heading, count, label, number, signed
from calmoe.render.wording import many
from calmoe.report.columns import column_title
from calmoe.report.rows_over_seeds import Row, Rows, measure
from studies.rows import ALPHA, DECIMALS, Values, bounds, by_key, less, place_of, read_lines
from studies.trainings import AS_TRAINED, Error, Moves, other_run, over_seeds, rerun_moves

METRICS = ("accuracy", "nll_ts", "brier_ts", "ece_ts", "hard_ece_ts")
INSIDE = {  # which no other run knows
    "routing_entropy": "Routing entropy",
    "witness": "Hidden, at least",
    "cancelled": "Cancelled, at least",
}
BOUNDED = ("witness", "cancelled")  # an estimate and its lower bound
FOUND = f"Hidden, p < {ALPHA:g}"
NONE = label("–", "")
FEWEST = 3  # seeds of an interval: two have one degree of freedom, and PACS tells nothing by two

Cell = tuple[str, str, int]  # method, weights, views
PLAIN: Cell = ("vanilla", *AS_TRAINED)


class Gain(NamedTuple):
    """A cell less another, in the mean over targets and seeds."""

    pairs: int
    means: tuple[float, float]  # of the cell, and of the other
    estimate: float
    errors: tuple[Error, ...]  # none with fewer than FEWEST seeds

    def bounds(self, comparisons: int = 1) -> tuple[float, float]:
        """The widest interval of any error; it holds together with those of all comparisons (Bonferroni)."""
        half = max((error.half(1 - (1 - LEVEL) / comparisons) for error in self.errors), default=math.nan)
        return self.estimate - half, self.estimate + half


Gains = dict[Cell, dict[str, Gain | None]]  # by score


def name_of(cell: Cell) -> str:
    """A cell as options name it.

    >>> name_of(("sharp", "last", 10))
    'sharp,last,10'
    """
    return ",".join(map(str, cell))


def truer(
    cells: Annotated[Path, typer.Argument(help="Rows that `python -m studies cells` wrote.")],
    rerun: Annotated[
        Path | None,
        typer.Option(help="A folder with results.jsonl, again.jsonl: other runs of these seeds."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Only these, such as 42-44.")] = None,
    targets: Annotated[str | None, typer.Option(help="Only these, such as sketch,photo.")] = None,
    than: Annotated[
        str, typer.Option(help="METHOD,WEIGHTS,VIEWS: the cell that the others are compared with.")
    ] = name_of(PLAIN),
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
    together: level 95 %, Bonferroni. A seed counts for a cell once all of its targets are there; with fewer
    than three seeds there is a difference and no interval.

    With --only there is one table, of these cells, in which each interval pays for no other. With --alone
    there is one of all that is known of a single cell; if the other run has the cell of --than, the
    difference from that one stands beside.

    Example: python -m studies truer results/truer/cifar10h.jsonl --rerun results/cifar10h
    """
    if alone and only:
        raise InputError("--alone and --only print different tables: give one of them")
    every = list(by_key(read_lines(cells), lambda row: (cell_of(row), place_of(row))).values())
    rows = complete(part_of(every, seeds, targets))
    baseline = parse_cell(than, rows)
    moves = rerun_moves(rerun, every, METRICS) if rerun else {}
    if alone:
        other = other_run(rerun, *baseline) if rerun else []
        other = part_of(other, seeds, targets) if other else []
        grids = [alone_table(rows, parse_cell(alone, rows), baseline, moves, other)]
    elif only:
        named = [parse_cell(name, rows) for name in only]
        grids = [gains_table(gains_of(rows, named, baseline, moves), baseline, comparisons=1)]
    else:
        others = [cell for cell in cells_in_order(rows) if cell != baseline]
        gains = gains_of(rows, others, baseline, moves)
        grids = [means_table(rows), gains_table(gains, baseline, comparisons=intervals_of(gains))]
    for grid in grids:
        print(grid.markdown())


def part_of(rows: Rows, seeds: str | None, targets: str | None) -> Rows:
    """The rows of these seeds and targets; of all where none is named."""
    known = {place_of(row)[0] for row in rows}
    wanted = set(targets.split(",")) if targets else known
    for target in wanted:
        check_known("target", target, known)
    numbers = parse_seeds(seeds) if seeds else {row["seed"] for row in rows}
    return [row for row in rows if row["seed"] in numbers and place_of(row)[0] in wanted]


def cell_of(row: Mapping[str, Any]) -> Cell:
    return row["method"], row["weights"], row["views"]


def parse_cell(text: str, rows: Rows) -> Cell:
    """METHOD,WEIGHTS,VIEWS, as one of the cells that there are.

    >>> parse_cell("sharp,last,1", [{"method": "sharp", "weights": "last", "views": 1}])
    ('sharp', 'last', 1)
    """
    named = {name_of(cell_of(row)): cell_of(row) for row in rows}
    check_known("cell", text, named)
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
    """One score of a row, or the estimate of what is bounded from below; NaN where it has none.

    >>> score({"witness": [0.02, 0.01]}, "witness"), score({"witness": None}, "witness")
    (0.02, nan)
    """
    if column not in BOUNDED:
        return measure(row, column)
    estimate_and_bound = row.get(column)
    return float(estimate_and_bound[0]) if estimate_and_bound else math.nan


# --- differences


def gain(rows: Rows, cell: Cell, than: Cell, column: str, moves: Moves | None = None) -> Gain | None:
    """The cell less the other, over the seeds that both have; None where there is none.

    Targets are not drawn at random: seeds are what the error is about, each a mean over its targets. A rerun
    moves a difference, too. By how much, where both are readings of one training, no rerun has shown.
    """
    targets = {row["target"] for row in rows}
    first, second = (seed_means(rows, each, column, targets) for each in (cell, than))
    seeds = first.keys() & second.keys()
    if not seeds:
        return None
    pairs = len(seeds) * len(targets)
    difference = less(cell[0], column, first, second).interval
    errors = [over_seeds(difference)] if len(seeds) >= FEWEST else []
    if errors and moves and column in moves and cell[0] != than[0]:
        errors.append(moves[column].of_a_mean(pairs))
    means = mean(first[seed] for seed in seeds), mean(second[seed] for seed in seeds)
    return Gain(pairs, means, difference.estimate, tuple(errors))


def gains_of(rows: Rows, cells: Iterable[Cell], than: Cell, moves: Moves) -> Gains:
    """Each of the cells less the other, score by score."""
    columns = measured(rows)
    return {cell: {column: gain(rows, cell, than, column, moves) for column in columns} for cell in cells}


def intervals_of(gains: Gains) -> int:
    """How many intervals there are: fewer than FEWEST seeds make none."""
    return sum(bool(one and one.errors) for scores in gains.values() for one in scores.values())


def seed_means(rows: Rows, cell: Cell, column: str, targets: set[str]) -> Values:
    """One score of one cell by seed, the mean over the targets; without the seeds that lack one."""
    scores: dict[int, dict[str, float]] = {}
    for row in rows:
        if cell_of(row) == cell and math.isfinite(score(row, column)):
            scores.setdefault(row["seed"], {})[row["target"]] = score(row, column)
    return {seed: mean(own.values()) for seed, own in scores.items() if own.keys() == targets}


# --- tables


def means_table(rows: Rows) -> Grid:
    """The mean scores of every cell, and what it costs."""
    columns = measured(rows)

    def entries(cell: Cell) -> tuple[Entry, ...]:
        own = [row for row in rows if cell_of(row) == cell]
        scores = {name: [score(row, name) for row in own] for name in (*columns, *INSIDE, "validation_nll")}
        return (
            *_names(cell),
            count(len(own)),
            *(_mean(scores[name]) for name in columns),
            _mean(scores["routing_entropy"], 2),
            *(_mean(scores[name], 3) for name in BOUNDED),
            found(own),
            _mean(scores["validation_nll"]),
            label("2" if card(cell[0]).gradient == "sharp" else "1", card(cell[0]).gradient),
            count(cell[2]),
        )

    titles = (
        *("Method", "Weights", "Views", "Runs"),
        *map(column_title, columns),
        *INSIDE.values(),
        *(FOUND, "Validation NLL", "Passes to train", "Passes to predict"),
    )
    return _table("Mean scores", titles, cells_in_order(rows), entries)


def found(rows: Rows) -> Entry:
    """Of how many of the models that an audit has seen it says that they hide something.

    >>> found([{"p_hidden": 0.01}, {"p_hidden": 0.5}, {"p_hidden": None}]).text
    '1 of 2'
    """
    tests = [row["p_hidden"] for row in rows if row.get("p_hidden") is not None]
    rejected = sum(p < ALPHA for p in tests)
    return Entry(f"{rejected} of {len(tests)}", (rejected, len(tests))) if tests else NONE


def gains_table(gains: Gains, than: Cell, comparisons: int) -> Grid:
    """Cells less another; each interval holds together with so many; in bold those that leave out zero."""
    together = (
        f"{many(comparisons, 'interval')} that hold together"
        if comparisons
        else f"fewer than {FEWEST} seeds, no interval"
    )
    caption = f"Less {title_of(than)}: {'each interval alone' if comparisons == 1 else together}"

    def entries(cell: Cell) -> tuple[Entry, ...]:
        scores = gains[cell].values()
        pairs = max((one.pairs for one in scores if one), default=0)
        differences = (entry for one in scores for entry in _differs(one, comparisons))
        return (*_names(cell), count(pairs), *differences)

    titles = ["Method", "Weights", "Views", "Pairs"]
    for column in next(iter(gains.values()), {}):
        titles += [column_title(column), f"{column_title(column)} interval"]
    return _table(caption, titles, list(gains), entries)


def alone_table(rows: Rows, cell: Cell, than: Cell, moves: Moves, other: Rows = ()) -> Grid:
    """One cell less another: what the seeds' scatter says, what reruns say, and the other run's cell."""
    elsewhere = [*(row for row in rows if cell_of(row) != than), *other]

    def entries(column: str) -> tuple[Entry, ...]:
        scatter, with_reruns = gain(rows, cell, than, column), gain(rows, cell, than, column, moves)
        difference, interval = _differs(scatter)
        bold = interval.bold and (column in METRICS or alike(cell, than))
        title = INSIDE.get(column) or column_title(column)
        shown = [label(title, column), *_pair(scatter), difference, interval._replace(bold=bold)]
        if moves:
            shown.append(_differs(with_reruns if with_reruns != scatter else None)[1])
        if other:
            shown += _differs(gain(elsewhere, cell, than, column))
        return tuple(shown)

    titles = ["Score", "Pairs", "Mean", "The other's", "Difference", "95 % over seeds"]
    titles += ["95 % with reruns"] if moves else []
    titles += ["From the other run", "95 % over seeds"] if other else []
    headings = tuple(Heading(title, (title.lower(),)) for title in titles)
    caption = f"{title_of(cell)}, less {title_of(than)}: each interval alone"
    columns = measured([row for row in rows if cell_of(row) == cell], (*METRICS, *INSIDE))
    counts = [found([row for row in rows if cell_of(row) == each]) for each in (cell, than)]
    tests = (label(FOUND, "p_hidden"), NONE, *counts, *[NONE] * (len(titles) - 4))
    return Grid(caption, headings, ((*map(entries, columns), tests),))


def alike(cell: Cell, than: Cell) -> bool:
    """Whether both have configurations of one kind: as many views, of the same experts.

    >>> alike(("sharp", "last", 5), ("vanilla", "last", 5)), alike(("sharp_single", "last", 1), PLAIN)
    (True, False)
    """
    return (cell[2], card(cell[0]).head) == (than[2], card(than[0]).head)


def _pair(one: Gain | None) -> tuple[Entry, ...]:
    """The number of pairs and both means."""
    if one is None:
        return NONE, NONE, NONE
    return count(one.pairs), *(number(value, DECIMALS) for value in one.means)


def _differs(one: Gain | None, comparisons: int = 1) -> tuple[Entry, Entry]:
    """The difference and its interval, in bold where it leaves out zero."""
    if one is None:
        return NONE, NONE
    return signed(one.estimate, decimals=DECIMALS), bounds(*one.bounds(comparisons))


def _table(
    caption: str, titles: Sequence[str], cells: Sequence[Cell], entries: Callable[[Cell], tuple[Entry, ...]]
) -> Grid:
    methods = dict.fromkeys(method for method, _, _ in cells)
    sections = tuple(tuple(entries(cell) for cell in cells if cell[0] == method) for method in methods)
    return Grid(caption, tuple(Heading(title, (title.lower(),)) for title in titles), sections)


def _names(cell: Cell) -> tuple[Entry, ...]:
    method, weights, views = cell
    return label(method_title(method), method), label(weights, weights), count(views)


def _mean(values: Iterable[float], decimals: int = DECIMALS) -> Entry:
    known = [value for value in values if math.isfinite(value)]
    return number(mean(known), decimals) if known else NONE
