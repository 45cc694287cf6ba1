"""Rows of several targets: target by target and in the mean, compared with a baseline and with the paper.

Rows name their "target". A mean over targets is taken within a seed first and becomes one more row of that
seed; standard errors and Student's t over seeds then treat it like any other row.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from calmoe.report.columns import COLUMNS, columns_in
from calmoe.report.comparison import Comparison, compare
from calmoe.report.published import is_published, table_of
from calmoe.report.rows_over_seeds import (
    PairedDifference,
    Row,
    Rows,
    measure,
    paired,
)

MEAN = "mean_over_targets"


def mean_over_targets(rows: Rows, targets: Iterable[str]) -> list[Row]:
    """The mean of each measure over the targets: a row for each protocol, method and seed with all of them.

    >>> row = {"method": "vanilla", "seed": 42, "protocol": "corrected"}
    >>> rows = [{**row, "target": "photo", "ece": 0.1}, {**row, "target": "sketch", "ece": 0.3}]
    >>> mean_over_targets(rows, ["photo", "sketch"])[0]["ece"], mean_over_targets(rows, ["photo", "art"])
    (0.2, [])
    """
    targets = list(targets)
    models: dict[tuple[str, str, int], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        models[row["protocol"], row["method"], row["seed"]][row["target"]] = row
    means: list[Row] = []
    for (protocol, method, seed), apart in models.items():
        if all(target in apart for target in targets):
            measured = [c for c in COLUMNS if any(c in row for row in apart.values())]
            values = {c: math.fsum(measure(apart[t], c) for t in targets) / len(targets) for c in measured}
            facts = {"method": method, "seed": seed, "protocol": protocol, "target": MEAN}
            means.append({**facts, **{c: None if math.isnan(v) else v for c, v in values.items()}})
    return means


def by_target(rows: Rows, targets: Iterable[str]) -> dict[str, Rows]:
    """The rows of each target and, last, those of the mean over all targets."""
    targets = list(targets)
    apart: dict[str, Rows] = {target: [row for row in rows if row["target"] == target] for target in targets}
    return {**apart, MEAN: mean_over_targets(rows, targets)}


def paired_by_target(
    rows: Rows,
    protocol: str,
    targets: Iterable[str],
    baseline: str = "vanilla",
    columns: Sequence[str] = columns_in("targets paired"),
) -> dict[str, list[PairedDifference]]:
    """Seed-paired differences to the baseline, by target and for the mean; none without a baseline."""
    differences: dict[str, list[PairedDifference]] = {}
    for target, own in by_target(rows, targets).items():
        has_baseline = any((row["method"], row["protocol"]) == (baseline, protocol) for row in own)
        differences[target] = paired(own, protocol, baseline, columns) if has_baseline else []
    return differences


def compare_by_target(
    rows: Rows, dataset: str, protocol: str, targets: Iterable[str]
) -> dict[str, list[Comparison]]:
    """The published cells beside ours, for the targets that the paper has."""
    tables = {target: table_of(dataset, target) for target in targets}
    return {
        target: compare([row for row in rows if row["target"] == target], table, protocol)
        for target, table in tables.items()
        if is_published(table)
    }
