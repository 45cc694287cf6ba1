"""What sharp training keeps of its gain where fewer steps are sharp."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from calmoe.errors import InputError
from calmoe.render.grid import Entry, Grid, Heading, count, interval, label, number, signed
from calmoe.report.rows_over_seeds import Rows
from studies.rows import DECIMALS, Values, less, read_lines

SCORE = "views_nll_ts"
ALWAYS_SHARP = {"sharp_single": "sharp_single", "sharp": "sharp", "sharp_late": "sharp"}  # to compare with
TITLES = {
    "sharp_single": "Sharp Single",
    "sharp": "Sharp MoE",
    "sharp_late": "Sharp MoE after a plain warm-up",  # the plug-in studies/sharp_late.py
}

Cell = tuple[str, int]  # method, and of how many steps one is sharp


def cheaper(
    rows: Annotated[
        Path, typer.Argument(help="Rows of `calmoe sweep … sharp_every=1,2,4` and of sharp_late.")
    ],
) -> None:
    """Where can sharp training cost less?

    Prints the NLL over views after a temperature, and its difference from training in which every step is
    sharp, seed by seed, with 95 % intervals over seeds that are not corrected for their number.

    Example: python -m studies cheaper results/truer/digits-cheaper.jsonl
    """
    print(cheaper_table(read_lines(rows)).markdown())


def cheaper_table(rows: Rows) -> Grid:
    """One row a method and share of sharp steps, those that are always sharp first."""
    cells = sorted({cell_of(row) for row in rows if row["method"] in ALWAYS_SHARP}, key=_order)
    scores = {cell: _by_seed(rows, cell) for cell in cells}

    def row(cell: Cell) -> tuple[Entry, ...]:
        method, every = cell
        always = (ALWAYS_SHARP[method], 1)
        if always not in scores:
            raise InputError(f"no row has {always[0]} with sharp_every 1: train it first")
        named = (label(TITLES[method], method), count(every), count(len(scores[cell])))
        score = number(mean(scores[cell].values()), DECIMALS)
        if cell == always:
            return *named, score, label("–", ""), label("–", "")
        difference = less(method, SCORE, scores[cell], scores[always])
        estimate, low, high = difference.interval[:3]
        shown = interval(low, high, bool(difference.side), decimals=DECIMALS)
        return *named, score, signed(estimate, decimals=DECIMALS), shown

    titles = (
        "Method",
        "Sharp: one step of",
        "Seeds",
        "NLL+TS, all views",
        "Less always sharp",
        "95 % interval",
    )
    headings = tuple(Heading(title, (title.lower(),)) for title in titles)
    return Grid("Fewer sharp steps", headings, (tuple(map(row, cells)),))


def cell_of(row: Mapping[str, Any]) -> Cell:
    return row["method"], int(row.get("value", 1))


def _order(cell: Cell) -> tuple[int, int]:
    return list(ALWAYS_SHARP).index(cell[0]), cell[1]


def _by_seed(rows: Rows, cell: Cell) -> Values:
    return {row["seed"]: row[SCORE] for row in rows if cell_of(row) == cell}
