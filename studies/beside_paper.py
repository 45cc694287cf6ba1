"""How far the rows lie from the paper's cells, under each reading of the paper's ±."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from calmoe.errors import InputError
from calmoe.render.grid import Entry, Grid, Heading, count, label, number
from calmoe.report import beyond, compare, comparison_table, is_published
from calmoe.report.comparison import Comparison, verdict
from calmoe.report.published import SEEDS, standard_error
from calmoe.report.rows_over_seeds import Rows
from calmoe.validation import parse_json
from studies.rows import read_results

READINGS: dict[str, Callable[[float], float]] = {
    "standard deviation, ddof 0": standard_error,
    "standard deviation, ddof 1": lambda printed: printed / math.sqrt(SEEDS),
    "standard error": lambda printed: printed,
}
COARSE = 0.005  # a smaller ± is printed with one digit that says little
RUNS = {"results.jsonl": "first run", "again.jsonl": "second run", "timed.jsonl": "timed run"}


def beside_paper(
    folder: Annotated[
        Path, typer.Argument(help="With results.jsonl, sources.json and perhaps again.jsonl, timed.jsonl.")
    ],
) -> None:
    """Are the paper's cells reproduced, and what is its ±?

    Reads the rows of the published protocol, of the first run and, where they are kept, of others. Prints
    how much the seeds of each run scatter beside the paper's ±, how far the cells differ under each reading
    of the ±, and all cells of each run.

    Example: python -m studies beside-paper results/cifar10h
    """
    for grid in all_tables(folder):
        print(grid.markdown())


def all_tables(folder: Path) -> Iterator[Grid]:
    runs = {name: read_results(folder / file) for file, name in RUNS.items() if (folder / file).is_file()}
    dataset = _dataset(folder)
    yield scatter(runs, dataset)
    yield readings(runs, dataset)
    for name, rows in runs.items():
        cells = compare(rows, dataset)
        yield comparison_table(
            cells, f"{dataset}, {name}, published protocol beside the paper; {verdict(cells)}"
        )


def scatter(runs: Mapping[str, Rows], dataset: str) -> Grid:
    """Our seeds' standard deviation over the paper's ±, beside what each reading of the ± lets expect."""

    def row(name: str, ratios: Sequence[float]) -> tuple[Entry, ...]:
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
        return label(name, name), count(len(ratios)), *(number(q, 2) for q in (middle, low, high))

    measured = []
    for name, rows in runs.items():
        cells = _known(compare(rows, dataset))
        spread = {cell: _deviation(rows, cell) / cell.published_sd for cell in cells if cell.published_sd}
        measured.append(row(f"{name}, all cells", list(spread.values())))
        fine = [ratio for cell, ratio in spread.items() if cell.published_sd >= COARSE]
        if fine:
            measured.append(row(f"{name}, ± of {COARSE} or more", fine))
    expected = [
        (label(f"expected of a {name}", name), label("", ""), number(math.sqrt(SEEDS) * error(1.0), 2))
        + (label("", ""),) * 2
        for name, error in READINGS.items()
    ]
    headings = ("Our SD over the paper's ±", "Cells", "Median", "Lower quartile", "Upper quartile")
    return Grid(
        f"{dataset}: the standard deviation (ddof 1) of our seeds over the ± that the paper prints",
        tuple(Heading(title, (title.lower(),)) for title in headings),
        (tuple(measured), tuple(expected)),
    )


def readings(runs: Mapping[str, Rows], dataset: str) -> Grid:
    """The distance of the cells in combined standard errors, under each reading of the paper's ±."""

    def row(run: str, rows: Rows, reading: str) -> tuple[Entry, ...]:
        cells = _known(compare(rows, dataset, error_of=READINGS[reading]))
        z = np.array([cell.combined_errors for cell in cells])
        near = len(cells) - len(beyond(cells))
        within = Entry(f"{near} of {len(cells)}", (near, len(cells)))
        return label(run, run), label(reading, reading), *(number(v, 2) for v in _summary(z)), within

    headings = ("Run", "The paper's ± read as", "Largest |z|", "Mean z²", "Within two")
    return Grid(
        f"{dataset}: difference of each cell in combined standard errors, z",
        tuple(Heading(title, (title.lower(),)) for title in headings),
        tuple(tuple(row(name, rows, reading) for reading in READINGS) for name, rows in runs.items()),
    )


def _summary(z: np.ndarray) -> tuple[float, float]:
    return float(np.abs(z).max()), float(np.square(z).mean())


def _deviation(rows: Rows, cell: Comparison) -> float:
    """Over the seeds of the published protocol, with ddof 1."""
    own = [row for row in rows if (row["method"], row["protocol"]) == (cell.method, "published")]
    return float(np.std([row[cell.column] for row in own], ddof=1))


def _known(cells: Sequence[Comparison]) -> list[Comparison]:
    known = [cell for cell in cells if math.isfinite(cell.combined_errors)]
    if not known:
        raise InputError("no cell can be compared: that takes two seeds of the published protocol")
    return known


def _dataset(folder: Path) -> str:
    path = folder / "sources.json"
    dataset = parse_json(path.read_bytes())[0]["spec"]["dataset"] if path.is_file() else ""
    if not is_published(dataset):
        cause = f"the paper has no table for {dataset}" if dataset else "there is no sources.json"
        raise InputError(f"{folder}: {cause}; give a folder such as results/cifar10h")
    return str(dataset)
