"""How well scores rank positives above the rest: AUROC and average precision, with their standard errors.

Both are smooth functionals of the rows' distribution, so each row has an influence; the mean of its square
over N is the variance (DeLong's for the AUROC). Scores that tie count half, or share their precision.
Everything is sorted once and summed: a million rows take about a second.
"""

from typing import NamedTuple

import numpy as np

from calmoe.auditing.statistics.estimates import NONE, Estimate
from calmoe.defaults import LEVEL
from calmoe.metrics.intervals import wilson


class _Sorted(NamedTuple):
    """Positives and all rows at each distinct score, from the lowest up; and the rank of each row's score."""

    positives: np.ndarray  # [U]
    rows: np.ndarray  # [U]
    rank: np.ndarray  # [N]

    @classmethod
    def of(cls, scores: np.ndarray, positive: np.ndarray) -> "_Sorted":
        rank, rows = np.unique(scores, return_inverse=True, return_counts=True)[1:]
        return cls(np.bincount(rank, positive, minlength=len(rows)), rows.astype(np.float64), rank)


def auroc(scores: np.ndarray, positive: np.ndarray, level: float = LEVEL) -> Estimate:
    """P(a positive scores higher than a negative), ties half; NaN where either is missing.

    >>> auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])).value
    0.75
    """
    counts, total = _Sorted.of(scores, positive), float(positive.sum())
    rest = len(scores) - total
    if not 0 < total < len(scores):
        return NONE
    negatives = counts.rows - counts.positives
    below = (np.cumsum(negatives) - negatives / 2) / rest  # the share of negatives that a positive beats
    above = (total - np.cumsum(counts.positives) + counts.positives / 2) / total
    value = float((counts.positives * below).sum() / total)
    variance = float((counts.positives * (below - value) ** 2).sum()) / total**2
    variance += float((negatives * (above - value) ** 2).sum()) / rest**2
    return _share(value, variance, min(total, rest), len(scores), level)


def average_precision(scores: np.ndarray, positive: np.ndarray, level: float = LEVEL) -> Estimate:
    """The mean, over positives, of the share of positives among all rows that score as high or higher.

    With A(t) = P(Y = 1, s ≥ t), B(t) = P(s ≥ t), g = A/B and p = P(Y = 1) it is E[Y g(s)] / p, and a row
    (s, y) has the influence (y (g(s) − AP) + y U(s) − V(s)) / p, where U(s) = E[Y' 1(s' ≤ s) / B(s')] and
    V(s) is the same with g(s') inside. A score without skill has AP = p.

    >>> round(average_precision(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])).value, 4)
    0.8333
    """
    counts, total, n = _Sorted.of(scores, positive), float(positive.sum()), len(scores)
    if total == 0:
        return NONE
    upward = np.cumsum(counts.rows[::-1])[::-1] / n
    precision = np.cumsum(counts.positives[::-1])[::-1] / n / upward
    value, p = float((counts.positives * precision).sum() / total), total / n
    reached = np.cumsum(counts.positives / n / upward)
    weighed = np.cumsum(counts.positives / n * precision / upward)
    ranked = precision - value + reached
    influence = (np.where(positive > 0, ranked[counts.rank], 0.0) - weighed[counts.rank]) / p
    return _share(value, float((influence**2).mean()) / n, total, n, level)


def _share(value: float, variance: float, fewest: float, rows: int, level: float) -> Estimate:
    """Wilson's interval at the number of rows on which a share would vary as much: it stays within 0 and 1.

    Where nothing varied, as in a perfect ranking, that number is `fewest`, the rarer kind of row.
    """
    effective = min(value * (1 - value) / variance, rows) if variance > 0 and 0 < value < 1 else fewest
    low, high = map(float, wilson(value, max(effective, 1.0), level))
    return Estimate(value, low, high, variance**0.5)
