"""What shows without looking inside: the reliability diagram, and the groups that the file names."""

from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.cells import headings, pair
from calmoe.auditing.statistics.estimates import Estimate, binned_gap, normal, proportion, spread, within
from calmoe.defaults import BINS, LEVEL
from calmoe.metrics.groups import group_masks
from calmoe.predictions import Predictions
from calmoe.render.drawing import COLUMN, GREY, STYLE, Drawn, new_figure
from calmoe.render.grid import Grid, count, label

FEWEST = 100  # rows of a group: below, an ECE's interval says next to nothing
MOST = 40  # groups that are told


@dataclass(frozen=True, kw_only=True)
class Diagram:
    """Bin by bin: rows, mean confidence, and how often right; NaN where a bin is empty. [B]"""

    count: np.ndarray
    confidence: np.ndarray
    right: np.ndarray
    right_low: np.ndarray
    right_high: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Group:
    """The rows of one group: E[Y], the ECE at equal-width bins, and E[Y − f]; each interval by itself."""

    name: str
    rows: int
    accuracy: Estimate
    ece: Estimate
    balance: Estimate


@dataclass(frozen=True, kw_only=True)
class Surface:
    """The diagram of all rows; groups of at least 100 rows, the worst calibrated first."""

    diagram: Diagram
    groups: tuple[Group, ...]


def surface(
    configurations: Configurations, predictions: Predictions, *, bins: int = BINS, level: float = LEVEL
) -> Surface:
    """The diagram, and each group of the file's columns of words, truth values or few whole numbers."""
    masks = group_masks(predictions.groups)
    found = [
        _group(name, configurations, mask, bins, level)
        for name, mask in masks.items()
        if FEWEST <= mask.sum() < len(configurations)
    ]
    found.sort(key=lambda group: -group.ece.value)
    return Surface(diagram=diagram(configurations, bins=bins, level=level), groups=tuple(found[:MOST]))


def diagram(seen: Configurations, *, bins: int = BINS, level: float = LEVEL) -> Diagram:
    """By the rows' own labels, with Wilson's intervals."""
    assert seen.outcome is not None
    index = seen.bins(bins)
    rows = np.bincount(index, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence, right = (
            np.bincount(index, values, minlength=bins) / rows for values in (seen.confidence, seen.outcome)
        )
    ends = [proportion(float(s), int(n), level) if n else None for s, n in zip(right, rows, strict=True)]
    low, high = (
        np.array([np.nan if e is None else getattr(e, end) for e in ends]) for end in ("low", "high")
    )
    return Diagram(count=rows, confidence=confidence, right=right, right_low=low, right_high=high)


def _group(name: str, seen: Configurations, mask: np.ndarray, bins: int, level: float) -> Group:
    assert seen.outcome is not None
    residual, noise, rows = seen.residual[mask], seen.noise[mask], int(mask.sum())
    return Group(
        name=name,
        rows=rows,
        accuracy=proportion(float(seen.outcome[mask].mean()), rows, level),
        ece=binned_gap(residual, seen.bins(bins)[mask], bins, level=level, noise=noise),
        balance=within(normal(float(residual.mean()), spread(residual, noise), level), -1.0, 1.0),
    )


@rc_context(STYLE)
def figure(found: Surface) -> Drawn:
    """The reliability diagram, with the share of rows below it."""
    drawn = new_figure(COLUMN * 1.3, 3.3)
    above, below = drawn.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    shown, used = found.diagram, found.diagram.count > 0
    x, y = shown.confidence[used], shown.right[used]
    error = np.stack([y - shown.right_low[used], shown.right_high[used] - y])
    above.plot([0, 1], [0, 1], color=GREY, linewidth=0.6, linestyle=":")
    above.errorbar(x, y, error, color="#0072b2", marker="s", linewidth=0.8)
    above.set(ylabel="how often right", xlim=(max(float(x.min()) - 0.05, 0), 1.01), ylim=(0, 1.01))
    below.bar(x, shown.count[used] / shown.count.sum(), width=0.6 / len(shown.count), color="#0072b2")
    below.set(xlabel="confidence", ylabel="rows")
    told = ", ".join(f"{c:.2f} → {r:.2f}" for c, r in zip(x, y, strict=True))
    return Drawn(drawn, f"Reliability diagram: mean confidence and how often right, bin by bin: {told}.")


def table(found: Surface, rate: str) -> Grid:
    """The groups; rate: what E[Y] is."""
    rows = tuple(
        (
            label(group.name, group.name),
            count(group.rows),
            *pair(group.accuracy),
            *pair(group.ece),
            *pair(group.balance, sign=True),
        )
        for group in found.groups
    )
    columns = headings(
        ("group", "group"), ("rows", "rows"), (rate, "accuracy*"), ("ECE", "ece*"), ("balance", "balance*")
    )
    return Grid(f"Groups of at least {FEWEST} rows, the worst calibrated first", columns, (rows,))
