"""What sharp training keeps of its gain over plain training where fewer steps are sharp."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from calmoe.errors import InputError
from calmoe.render.grid import Entry, Grid, Heading, count, label, number, signed
from calmoe.report.rows_over_seeds import Rows
from studies.rows import DECIMALS, Values, bounds, less, read_lines

SCORE = "views_nll_ts"
PLAIN = {"sharp_single": "single", "sharp": "vanilla", "sharp_late": "vanilla"}  # the same network
ALWAYS_SHARP = {"sharp_single": "sharp_single", "sharp": "sharp", "sharp_late": "sharp"}
TITLES = {
    "single": "Single Expert",
    "vanilla": "Vanilla MoE",
    "sharp_single": "Sharp Single",
    "sharp": "Sharp MoE",
    "sharp_late": "Sharp MoE after a plain warm-up",  # the plug-in studies/sharp_late.py
}

Cell = tuple[str, int]  # method, and of how many steps one is sharp; 0: none


def cheaper(
    rows: Annotated[
        Path, typer.Argument(help="Rows of `calmoe sweep … sharp_every=1,2,4` and of sharp_late.")
    ],
) -> None:
    """Where can sharp training cost less?

    Prints the NLL over views after a temperature, and its differences from the same network trained by plain
    steps and by sharp steps alone, seed by seed, with 95 % intervals over seeds that are not corrected for
    their number.

    Example: python -m studies cheaper results/truer/digits-cheaper.jsonl
    """
    print(cheaper_table(read_lines(rows)).markdown())


def cheaper_table(rows: Rows) -> Grid:
    """One row a method and share of sharp steps: plain ones first, then those that are always sharp."""
    cells = sorted({cell_of(row) for row in rows if row["method"] in TITLES}, key=_order)
    scores = {cell: _by_seed(rows, cell) for cell in cells}

    def row(cell: Cell) -> tuple[Entry, ...]:
        method, every = cell
        return (
            label(TITLES[method], method),
            count(every) if every else label("–", ""),
            count(len(scores[cell])),
            number(mean(scores[cell].values()), DECIMALS),
            *_less(scores, cell, (PLAIN[method], 0) if every else cell),
            *_less(scores, cell, (ALWAYS_SHARP[method], 1) if every else cell),
        )

    titles = (
        *("Method", "Sharp: one step of", "Seeds", "NLL+TS, all views"),
        *("Less plain steps", "95 % interval", "Less always sharp", "95 % interval of that"),
    )
    headings = tuple(Heading(title, (title.lower(),)) for title in titles)
    return Grid("Fewer sharp steps", headings, (tuple(map(row, cells)),))


def _less(scores: Mapping[Cell, Values], cell: Cell, than: Cell) -> tuple[Entry, Entry]:
    """A cell less another, seed by seed, and its interval; dashes where they are the same."""
    if cell == than:
        return label("–", ""), label("–", "")
    if than not in scores:
        raise InputError(f"no row has {than[0]}{' with sharp_every 1' * bool(than[1])}: train it first")
    difference = less(cell[0], SCORE, scores[cell], scores[than])
    return signed(difference.interval.estimate, decimals=DECIMALS), bounds(*difference.interval[1:3])


def cell_of(row: Mapping[str, Any]) -> Cell:
    one_of = 1 if row["method"] in ALWAYS_SHARP else 0
    return row["method"], int(row.get("value", one_of))


def _order(cell: Cell) -> tuple[int, int]:
    return list(TITLES).index(cell[0]), cell[1]


def _by_seed(rows: Rows, cell: Cell) -> Values:
    return {row["seed"]: row[SCORE] for row in rows if cell_of(row) == cell}
