"""Means over seeds and seed-paired differences, computed from a run's rows.

There is one row for each method, seed and protocol.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from calmoe.errors import InputError
from calmoe.methods import families
from calmoe.metrics import paired_difference
from calmoe.report.columns import COLUMNS, columns_in

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Row]
Seeds: TypeAlias = dict[int, Row]
AFTER_TEMPERATURE = tuple(column for column in columns_in("paired") if column.endswith("_ts"))


class Cell(NamedTuple):
    """Mean and standard error over the n seeds that have a value."""

    mean: float
    standard_error: float
    n: int


Summary: TypeAlias = dict[str, dict[str, Cell]]
MISSING = Cell(math.nan, math.nan, 0)


class PairedDifference(NamedTuple):
    """Mean of method - baseline over the n seeds both have, with Student's t interval."""

    method: str
    baseline: str
    column: str
    estimate: float
    low: float
    high: float
    standard_error: float
    n: int


def summarise(rows: Rows, protocol: str) -> Summary:
    """Mean and standard error over seeds, `[method][column]`; `n` counts the seeds that are not None or NaN.

    >>> rows = [{"method": "single", "seed": s, "protocol": "published", "ece": s / 100} for s in (4, 6)]
    >>> cell = summarise(rows, "published")["single"]["ece"]
    >>> round(cell.mean, 6), round(cell.standard_error, 6), cell.n
    (0.05, 0.01, 2)
    """
    runs = _by_method_and_seed(rows, protocol)
    everything = (item for seeds in runs.values() for row in seeds.values() for item in row.items())
    columns = dict.fromkeys(key for key, value in everything if _is_measure(key, value))
    return {
        method: {column: _cell(measure(row, column) for row in seeds.values()) for column in columns}
        for method, seeds in runs.items()
    }


def paired(
    rows: Rows, protocol: str, baseline: str = "vanilla", columns: Sequence[str] = AFTER_TEMPERATURE
) -> list[PairedDifference]:
    """Each method against the baseline over the seeds both have: the difference and its 95 % interval."""
    runs = _by_method_and_seed(rows, protocol)
    if baseline not in runs:
        raise InputError(
            f"no rows of {baseline!r} under protocol {protocol!r} to pair with: "
            f"run it too, or choose a baseline among {', '.join(runs) or 'the methods of a run'}"
        )
    return [
        _paired(method, baseline, column, runs[method], runs[baseline])
        for family in families(runs)
        for method in family
        if method != baseline
        for column in columns
    ]


def _by_method_and_seed(rows: Rows, protocol: str) -> dict[str, Seeds]:
    """Rows of one protocol, [method][seed]; a seed counted twice would shrink every standard error."""
    runs: dict[str, Seeds] = {}
    for row in rows:
        if row["protocol"] == protocol:
            seeds = runs.setdefault(row["method"], {})
            if row["seed"] in seeds:
                raise InputError(
                    f"two rows for method {row['method']!r}, seed {row['seed']}, protocol {protocol!r}: "
                    "keep one, or make a table for each run"
                )
            seeds[row["seed"]] = row
    return runs


def _is_measure(key: str, value: Any) -> bool:
    return key != "seed" and (value is None or isinstance(value, Real))


def measure(row: Row, column: str) -> float:
    """The value of a column; NaN where the row has none."""
    value = row.get(column)
    return float(value) if isinstance(value, Real) else math.nan


def _cell(values: Iterable[float]) -> Cell:
    kept = np.array([value for value in values if not math.isnan(value)])
    n = len(kept)
    with np.errstate(invalid="ignore"):  # an infinite loss has an infinite mean and no standard error
        error = float(kept.std(ddof=1)) / n**0.5 if n > 1 else math.nan
    return Cell(float(kept.mean()), error, n) if n else MISSING


def _paired(method: str, baseline: str, column: str, a: Seeds, b: Seeds) -> PairedDifference:
    common = [seed for seed in a if seed in b]
    pairs = np.array([[measure(run[seed], column) for run in (a, b)] for seed in common]).reshape(-1, 2)
    pairs = pairs[~np.isnan(pairs).any(1)]
    if not len(pairs):
        return PairedDifference(method, baseline, column, math.nan, math.nan, math.nan, math.nan, 0)
    with np.errstate(invalid="ignore"):
        mean, low, high, error, _ = paired_difference(pairs[:, 0], pairs[:, 1])
    return PairedDifference(method, baseline, column, mean, low, high, error, len(pairs))


def cell_of(summary: Summary, method: str, column: str) -> Cell:
    return summary.get(method, {}).get(column, MISSING)


def known_columns(summary: Summary, columns: Iterable[str]) -> list[str]:
    """The columns in which some method has a value."""
    return [column for column in columns if _known(summary, column)]


def best_methods(summary: Summary, column: str) -> set[str]:
    """The methods with the best mean, to three decimals, among those with the most seeds in this column.

    A mean over fewer seeds may be lucky: it is never the best, and the best stays the best beside it.
    """
    cells = _known(summary, column)
    if not cells or column not in COLUMNS:
        return set()
    most = max(cell.n for cell in cells.values())
    means = {method: round(cell.mean, 3) for method, cell in cells.items() if cell.n == most}
    best = COLUMNS[column].best(means.values())
    return {method for method, mean in means.items() if mean == best}


def uneven(summary: Summary, column: str) -> bool:
    """Whether some method has fewer seeds in this column than another."""
    return len({cell.n for cell in _known(summary, column).values()}) > 1


def _known(summary: Summary, column: str) -> dict[str, Cell]:
    cells = {method: cell_of(summary, method, column) for method in summary}
    return {method: cell for method, cell in cells.items() if cell.n}
