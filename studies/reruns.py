"""How far a rerun of the same seed moves PACS, beside what intervals over seeds say."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import numpy as np
import typer
from scipy.stats import t as student

from calmoe.errors import InputError
from calmoe.methods import method_title
from calmoe.render.grid import Entry, Grid, Heading, count, interval, label, number, signed
from calmoe.report.columns import column_title
from calmoe.report.rows_over_seeds import Rows
from studies.rows import DECIMALS, read_lines, read_results

ARMS = {"as it is": "robust", "ERM": "vanilla"}  # of the switch study, each the table's method of that name
METRICS = ("accuracy", "ece", "ece_ts", "nll_ts")

Where = tuple[str, int]  # target and seed


def reruns(
    folder: Annotated[Path, typer.Argument(help="With results.jsonl and switch.jsonl of PACS.")],
) -> None:
    """How much does a rerun of the same seeds move PACS?

    The switch study trained Robust MoE and ERM again, for most targets and seeds of the table. Prints how far
    one model moves, then Robust MoE less Vanilla MoE in the mean over targets and seeds, with two 95 %
    intervals: from the scatter of the seeds, and from the reruns alone.

    Example: python -m studies reruns results/pacs
    """
    rows, again = read_results(folder / "results.jsonl"), read_lines(folder / "switch.jsonl")
    for grid in (moves(rows, again), both_intervals(rows, again)):
        print(grid.markdown())


def moves(rows: Rows, again: Rows) -> Grid:
    """By method and metric: the largest move of a model, and a training's deviation from its seed's mean."""

    def row(arm: str, column: str) -> tuple[Entry, ...]:
        method = ARMS[arm]
        table, second = at(rows, "method", method, column), at(again, "arm", arm, column)
        pairs = [second[where] - table[where] for where in table.keys() & second.keys()]
        if not pairs:
            raise InputError(f"switch.jsonl has no rerun of {method_title(method)}: train {arm!r} first")
        cells = (deviation(pairs), max(map(abs, pairs)))
        named = (label(method_title(method), method), label(column_title(column), column), count(len(pairs)))
        return (*named, *(number(cell, DECIMALS) for cell in cells))

    titles = ("Method", "Metric", "Reruns", "SD of a rerun", "Largest move")
    return Grid(
        "The same target and seed trained again",
        tuple(Heading(title, (title.lower(),)) for title in titles),
        tuple(tuple(row(arm, column) for column in METRICS) for arm in ARMS),
    )


def both_intervals(rows: Rows, again: Rows) -> Grid:
    """Robust MoE less Vanilla MoE, mean over targets and seeds: error and interval by seeds and by reruns."""

    def row(column: str) -> tuple[Entry, ...]:
        table, second = difference(rows, "method", column), difference(again, "arm", column)
        by_seed = [
            mean(value for (_, s), value in table.items() if s == seed)
            for seed in sorted({seed for _, seed in table})
        ]
        moved = [second[where] - table[where] for where in table.keys() & second.keys()]
        estimate = mean(by_seed)
        over_seeds = float(np.std(by_seed, ddof=1)) / math.sqrt(len(by_seed))
        of_reruns = deviation(moved) / math.sqrt(len(table))
        cells: list[Entry] = [label(column_title(column), column), signed(estimate, decimals=DECIMALS)]
        for error, freedom in ((over_seeds, len(by_seed) - 1), (of_reruns, len(moved))):
            half = error * float(student.ppf(0.975, freedom))
            bounds = interval(estimate - half, estimate + half, bold=False, decimals=DECIMALS)
            cells += [number(error, DECIMALS), bounds]
        return tuple(cells)

    titles = ("Metric", "Difference", "SE over seeds", "95 % over seeds", "SE of reruns", "95 % of reruns")
    return Grid(
        "Robust MoE less Vanilla MoE, mean over targets and seeds",
        tuple(Heading(title, (title.lower(),)) for title in titles),
        (tuple(map(row, METRICS)),),
    )


def at(rows: Rows, key: str, name: str, column: str) -> dict[Where, float]:
    """One column, by target and seed, of the rows whose `key` is `name`."""
    return {(row["target"], row["seed"]): float(row[column]) for row in rows if row[key] == name}


def difference(rows: Rows, key: str, column: str) -> dict[Where, float]:
    """Robust less Vanilla where a run has both; within a run they go on from one warm-up, mostly."""
    names: dict[str, Any] = {method: arm if key == "arm" else method for arm, method in ARMS.items()}
    robust, vanilla = (at(rows, key, names[method], column) for method in ("robust", "vanilla"))
    return {where: robust[where] - vanilla[where] for where in robust.keys() & vanilla.keys()}


def deviation(moves: Sequence[float]) -> float:
    """Of one training around its seed's mean: two trainings differ by √2 times as much.

    >>> round(deviation([0.02, -0.02]), 4)
    0.0141
    """
    return math.sqrt(mean(move**2 for move in moves) / 2)
