"""What the benchmark on tables found: means a table, and what the mixture of models gains, with intervals.

An interval of one table covers other splits of it and other test rows: its standard error is the larger of
two. Over splits it is √(1/n + test rows/training rows) times the splits' standard deviation, since splits
share training rows (Nadeau and Bengio, 2003). Over test rows it is the splits' middle one, known for the
mixture of models only. The interval of the mean over tables covers other tables.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import t as student

OURS, RIVAL, NEURAL = "mixture of models", "boosting, isotonic", "neural mixture"
BOOSTING = "boosting, temperature"  # the better of the boostings for the neural mixture to be held against
EXPERT = "expert: "  # of the mixture of models, raw
KINDS = ("random", "shifted")
METRICS = ("log_loss", "floored_log_loss", "ece", "accuracy")

Cells = dict[tuple[str, str, str], dict[int, dict[str, Any]]]  # kind, table, model: by seed


def paired(differences: np.ndarray, overlap: float = 0.0, error: float = 0.0) -> tuple[float, float, float]:
    """The mean of differences, and its 95 % interval.

    overlap: test rows a training row; error: the standard error of one difference over its test rows.

    >>> paired(np.array([0.0, 1.0, 2.0]))
    (1.0, -1.484..., 3.484...)
    """
    mean, count = float(np.mean(differences)), len(differences)
    if count < 2:
        return mean, float("-inf"), float("inf")
    over_splits = float(np.std(differences, ddof=1)) * (1 / count + overlap) ** 0.5
    half = float(student.ppf(0.975, count - 1)) * max(over_splits, error)
    return mean, mean - half, mean + half


def summarise(rows: list[dict[str, Any]]) -> str:
    """Means a table, paired differences of log loss, and the questions that the benchmark asks."""
    rows = [row for row in rows if "log_loss" in row]
    cells: Cells = {}
    for row in rows:
        cells.setdefault((row["kind"], row["table"], row["model"]), {})[row["seed"]] = row
    lines = []
    for kind in KINDS:
        tables = list(dict.fromkeys(row["table"] for row in rows if row["kind"] == kind))
        models = list(dict.fromkeys(row["model"] for row in rows if row["kind"] == kind))
        if not tables:
            continue
        splits = sorted({len(cells.get((kind, table, OURS), {})) for table in tables})
        lines += ["", f"## {kind.capitalize()} splits: {' or '.join(map(str, splits))} a table"]
        for metric in METRICS:
            lines += ["", f"{kind} splits, {metric}", "", "| table | " + " | ".join(models) + " |"]
            lines.append("| --- |" + " ---: |" * len(models))
            for table in tables:
                found = [cells.get((kind, table, model), {}) for model in models]
                shown = [f"{np.mean([r[metric] for r in c.values()]):.4f}" if c else "–" for c in found]
                lines.append(f"| {table} | " + " | ".join(shown) + " |")
        for metric in METRICS[:2]:
            lines += ["", f"{kind} splits, {metric}: less than … (below 0: better)", ""]
            lines += _compared(cells, kind, tables, models, metric)
    return "\n".join(lines)


def _compared(
    cells: Cells, kind: str, tables: Sequence[str], models: Sequence[str], metric: str
) -> list[str]:
    """A line a table: against the expert that is best in the mean, and against boosting."""
    lines = [
        f"| table | {OURS} less its best expert | {OURS} less {RIVAL} | {NEURAL} less {BOOSTING} |",
        "| --- | ---: | ---: | ---: |",
    ]
    over_tables: tuple[list[float], list[float]] = ([], [])
    for table in tables:
        ours, rival, neural, boosting = (
            cells.get((kind, table, model), {}) for model in (OURS, RIVAL, NEURAL, BOOSTING)
        )
        experts = [m for m in models if m.startswith(EXPERT) and (kind, table, m) in cells]
        if not ours or not experts:
            continue
        losses = {m: np.mean([row[metric] for row in cells[kind, table, m].values()]) for m in experts}
        best = min(losses, key=losses.__getitem__)
        pairs = ((ours, cells[kind, table, best]), (ours, rival), (neural, boosting))
        told = [_difference(one, other, metric) for one, other in pairs]
        for means, difference in zip(over_tables, told[1:], strict=True):
            means += [difference[0]] if difference else []
        against_expert = f"{_said(told[0])} ({best.removeprefix(EXPERT)})"
        lines.append(f"| {table} | {against_expert} | {_said(told[1])} | {_said(told[2])} |")
    shown = [_said(paired(np.array(values)) if values else None) for values in over_tables]
    return [*lines, f"| mean over tables | | {' | '.join(shown)} |"]


def _difference(one: dict[int, Any], other: dict[int, Any], metric: str) -> tuple[float, float, float] | None:
    """The mean difference over the splits that both have, with its interval."""
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return None
    differences = np.array([one[seed][metric] - other[seed][metric] for seed in seeds])
    sizes = [(one[seed].get("test_rows", 0), one[seed].get("rows", 1)) for seed in seeds]
    errors = [
        other[seed].get(f"{metric}_error", 0.0) if one[seed]["model"] == OURS else 0.0 for seed in seeds
    ]
    return paired(differences, float(np.mean([t / n for t, n in sizes])), float(np.median(errors)))


def _said(difference: tuple[float, float, float] | None) -> str:
    return "–" if difference is None else "{:+.4f} [{:+.4f}, {:+.4f}]".format(*difference)
