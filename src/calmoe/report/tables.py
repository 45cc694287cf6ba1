"""Lay out statistics over seeds as tables: methods by metrics, and paired differences.

Compute first: `calmoe.report.rows_over_seeds`. Lay out second: `main_table` and `paired_table` give a `Grid`,
which renders itself. `calmoe.report.columns` says which columns stand in which table.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from calmoe.methods import families, method_title
from calmoe.render.grid import Entry, Grid, Heading, count, estimate, interval, label, signed
from calmoe.report.columns import column_title, columns_in
from calmoe.report.rows_over_seeds import Cell, PairedDifference, Summary, best_methods, cell_of, uneven

NEVER_BOLD = "; a mean of fewer seeds than another in its column is never in bold"
METHOD, METRIC, SEEDS = (Heading(title, (title.lower(),)) for title in ("Method", "Metric", "Seeds"))


def main_table(
    summary: Summary,
    columns: Sequence[str] = columns_in("paper"),
    caption: str = "Mean ± standard error over seeds, best in bold",
) -> Grid:
    """A row for each method, a column for each metric; the `best_methods` of a column are in bold."""
    best = {column: best_methods(summary, column) for column in columns}

    def row(method: str) -> tuple[Entry, ...]:
        cells = {column: cell_of(summary, method, column) for column in columns}
        estimates = [
            estimate(cell.mean, cell.standard_error, bold=method in best[column])
            for column, cell in cells.items()
        ]
        return (method_entry(method), seeds_entry(cells.values()), *estimates)

    return Grid(
        caption + (NEVER_BOLD if any(uneven(summary, column) for column in columns) else ""),
        (METHOD, SEEDS, *(Heading(column_title(column), (column, f"{column}_se")) for column in columns)),
        tuple(tuple(map(row, family)) for family in families(summary)),
    )


def paired_table(differences: Sequence[PairedDifference], caption: str | None = None) -> Grid:
    """A row for each method and metric, a section for each method; an interval without zero is in bold."""

    def row(d: PairedDifference) -> tuple[Entry, ...]:
        return (
            method_entry(d.method),
            label(column_title(d.column), d.column),
            count(d.n),
            signed(d.estimate),
            interval(d.low, d.high, d.low > 0 or d.high < 0, missing="unknown" if d.n else "–"),
        )

    baselines = " and ".join(method_title(b) for b in dict.fromkeys(d.baseline for d in differences))
    return Grid(
        caption or f"Difference to {baselines or 'the baseline'} over the same seeds, with 95 % intervals",
        (
            METHOD,
            METRIC,
            SEEDS,
            Heading("Difference", ("difference",)),
            Heading("95 % interval", ("low", "high")),
        ),
        sections_by_method(differences, row),
    )


def method_entry(method: str) -> Entry:
    return label(method_title(method), method)


def seeds_entry(cells: Iterable[Cell]) -> Entry:
    """How many seeds a row has: "5", or "3–5" where some column has fewer."""
    counts = [cell.n for cell in cells if cell.n] or [0]
    low, high = min(counts), max(counts)
    return count(high) if low == high else label(f"{low}–{high}", f"{low}-{high}")


def sections_by_method(
    items: Sequence[Any], row: Callable[[Any], tuple[Entry, ...]]
) -> tuple[tuple[tuple[Entry, ...], ...], ...]:
    """A section for each method, in which `row` lays out each of its items."""
    return tuple(tuple(map(row, group)) for _, group in groupby(items, key=lambda item: item.method))
