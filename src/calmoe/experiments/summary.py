"""The paper's table in the terminal: mean ± standard error over seeds, the best in bold."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from calmoe.experiments.methods import METHODS, PAPER_METHODS, in_order

COLUMNS = {
    "Accuracy": "accuracy",
    "Hard Accuracy": "hard_accuracy",
    "ECE": "ece",
    "ECE+TS": "ece_ts",
    "Hard ECE": "hard_ece",
    "Hard ECE+TS": "hard_ece_ts",
    "NLL+TS": "nll_ts",
    "Brier+TS": "brier_ts",
}
HIGHER_IS_BETTER = ("accuracy", "hard_accuracy")


def paper_table(rows: Sequence[dict[str, Any]], title: str) -> Table:
    """Methods down, metrics across; methods beyond the paper stand under a line."""
    methods = in_order(row["method"] for row in rows)
    values = {
        (method, metric): [row[metric] for row in rows if row["method"] == method]
        for method in methods
        for metric in COLUMNS.values()
    }
    best = {
        metric: _best(metric, [values[method, metric] for method in methods]) for metric in COLUMNS.values()
    }
    table = Table(title=title, title_justify="left")
    table.add_column("Method", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    for method in methods:
        if method not in PAPER_METHODS and not any(row.end_section for row in table.rows):
            table.add_section()
        cells = (_cell(values[method, metric], best[metric]) for metric in COLUMNS.values())
        table.add_row(METHODS[method].title, *cells)
    return table


def mean_and_error(values: Sequence[float | None]) -> tuple[float, float]:
    """The mean and its standard error s / √n; NaN for what cannot be had.

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    known = [value for value in values if value is not None]
    if len(known) < max(1, len(values)):
        return math.nan, math.nan
    error = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else math.nan
    return statistics.fmean(known), error


def _best(metric: str, columns: Sequence[Sequence[float | None]]) -> float:
    means = [mean for values in columns if not math.isnan(mean := mean_and_error(values)[0])]
    if not means:
        return math.nan
    return max(means) if metric in HIGHER_IS_BETTER else min(means)


def _cell(values: Sequence[float | None], best: float) -> str:
    mean, error = mean_and_error(values)
    if math.isnan(mean):
        return "–"
    text = _short(mean) + ("" if math.isnan(error) else f" ± {_short(error)}")
    return f"[bold]{text}[/]" if mean == best else text


def _short(value: float) -> str:
    """Three decimals, without the zero before the point.

    >>> _short(0.9224), _short(1.5)
    ('.922', '1.500')
    """
    return f"{value:.3f}".removeprefix("0")
