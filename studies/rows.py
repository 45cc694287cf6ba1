"""Values by seed, their differences within seeds, and the table that shows them."""

import json
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, TypeVar

import numpy as np

from calmoe.errors import InputError, about
from calmoe.experiments.checked_files import parse_rows, read_results_file
from calmoe.files import write_whole
from calmoe.methods import method_title
from calmoe.metrics import Interval, paired_difference
from calmoe.render.grid import Entry, Grid, Heading, count, interval, label, signed
from calmoe.render.wording import decimal
from calmoe.report.columns import column_title
from calmoe.report.rows_over_seeds import Row, Rows, measure
from calmoe.validation import parse_json

Key = TypeVar("Key", bound=Hashable)
Place = tuple[str, int]  # target and seed
Values = dict[int, float]  # by seed
DECIMALS = 4
PROTOCOL = "corrected"
ALPHA = 0.05  # below it, a p-value is a finding
UNKNOWN = Interval(math.nan, math.nan, math.nan, math.nan, np.empty(0))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file with one JSON object a line."""
    if not path.is_file():
        raise InputError(f"there is no {path}: give a file of rows, one JSON object a line")
    rows = []
    for at, line in enumerate(path.read_bytes().splitlines(), start=1):
        with about(f"{path}, line {at}"):
            rows.append(parse_json(line))
    return rows


def read_results(path: Path) -> list[dict[str, Any]]:
    """The rows of a file like a run's results.jsonl, all checked."""
    if not path.is_file():
        raise InputError(f"there is no {path}: give a folder with rows, such as results/cifar10h")
    rows = parse_rows(path, read_results_file(path))
    if not rows:
        raise InputError(f"{path} has no rows: give a folder with rows, such as results/cifar10h")
    return rows


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """The file that `read_lines` reads, whole or not at all."""
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def place_of(row: Row) -> Place:
    """Where a model was trained; the target is empty where the dataset has none."""
    return row.get("target") or "", row["seed"]


def by_key(rows: Rows, key: Callable[[Row], Key]) -> dict[Key, Row]:
    """The rows by what they are of: the same row twice counts once, and two that differ are refused.

    >>> by_key([{"method": "vanilla", "seed": 42}, {"method": "vanilla", "seed": 42}], place_of)
    {('', 42): {'method': 'vanilla', 'seed': 42}}
    """
    keyed: dict[Key, Row] = {}
    for row in rows:
        if keyed.setdefault(key(row), row) != row:
            target, seed = place_of(row)
            where = f"{target} {seed}" if target else f"seed {seed}"
            raise InputError(f"two rows of one {row['method']}, {where}, differ: keep one of them")
    return keyed


def values(rows: Rows, method: str, column: str, protocol: str) -> Values:
    """One column of one method by seed; NaN where a row has no number.

    >>> values([{"method": "vanilla", "protocol": "corrected", "seed": 42, "ece": 0.1}], "vanilla", "ece",
    ...        "corrected")
    {42: 0.1}
    """
    chosen = [row for row in rows if (row["method"], row["protocol"]) == (method, protocol)]
    return {seed: measure(row, column) for seed, row in by_key(chosen, lambda row: row["seed"]).items()}


class Difference(NamedTuple):
    """What `name` has more of `column` than a baseline, within seeds; `interval.samples` are by seed."""

    name: str
    column: str
    interval: Interval

    @property
    def side(self) -> int:
        """The side of zero on which the whole interval lies; 0 where it holds zero."""
        return int(self.interval.low > 0) - int(self.interval.high < 0)


def less(name: str, column: str, a: Values, b: Values) -> Difference:
    """a - b over the seeds where both are finite, with Student's 95 % interval.

    >>> difference = less("robust", "ece", {42: 0.1, 43: 0.2}, {42: 0.3, 43: 0.5, 44: 0.1})
    >>> difference.interval.samples.round(3), difference.side
    (array([-0.2, -0.3]), 0)
    """
    common = [seed for seed in sorted(a.keys() & b.keys()) if math.isfinite(a[seed] - b[seed])]
    if not common:
        return Difference(name, column, UNKNOWN)
    first, second = (np.array([by_seed[seed] for seed in common]) for by_seed in (a, b))
    return Difference(name, column, paired_difference(first, second))


def differences_table(caption: str, differences: Sequence[Difference], first: str = "Method") -> Grid:
    """One row a difference; an interval that leaves out zero is in bold."""
    return Grid(
        f"{caption}. Within seeds, 95 % intervals, not corrected for their number",
        (
            Heading(first, ("name",)),
            Heading("Metric", ("metric",)),
            Heading("Seeds", ("seeds",)),
            Heading("Difference", ("difference",)),
            Heading("95 % interval", ("low", "high")),
            Heading("By seed", ("by_seed",)),
        ),
        (tuple(map(_row, differences)),),
    )


def _row(difference: Difference) -> tuple[Entry, ...]:
    estimate, low, high, _, samples = difference.interval
    return (
        label(method_title(difference.name), difference.name),
        label(column_title(difference.column), difference.column),
        count(len(samples)),
        signed(estimate, decimals=DECIMALS),
        interval(low, high, bool(difference.side), decimals=DECIMALS),
        listed(samples, sign="+"),
    )


def bounds(low: float, high: float) -> Entry:
    """An interval, in bold where it leaves out zero.

    >>> bounds(0.1, 0.2).bold, bounds(-0.1, 0.2).bold
    (True, False)
    """
    return interval(low, high, low > 0 or high < 0, decimals=DECIMALS)


def listed(numbers: Iterable[float], sign: str = "-") -> Entry:
    """Several numbers in one cell, such as one a seed."""
    text = " ".join(decimal(value, sign=sign) for value in numbers)
    return label(text, text)


def span(values: Iterable[float]) -> Entry:
    """The mean, and the smallest and largest; a dash where there are none.

    >>> span([0.1, 0.3]).text
    '0.200 (0.100 to 0.300)'
    """
    known = list(values)
    if not known:
        return label("–", "")
    middle, low, high = mean(known), min(known), max(known)
    return Entry(f"{decimal(middle)} ({decimal(low)} to {decimal(high)})", (middle, low, high))
