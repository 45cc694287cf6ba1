"""Numbers for readers without statistics: errors in points of a hundred, shifts as a group that grows."""

import math

from calmoe.auditing.statistics.estimates import Estimate
from calmoe.render.wording import decimal

GROUP = 0.2  # the share of rows of the group that explains how large a shift is


def points(share: float) -> str:
    """
    >>> points(0.0174), points(0.3), points(0.0001)
    ('1.7 points', '30 points', '0.0 points')
    """
    return f"{decimal(100 * share, 1 if abs(share) < 0.1 else 0)} points"


def between(estimate: Estimate) -> str:
    """
    >>> between(Estimate(0.0174, 0.012, 0.023, 0.003)), between(Estimate(0.003, 0.0, 0.02, 0.003))
    ('by 1.7 points (1.2 to 2.3)', 'by 0.3 points (2.0 at most)')
    >>> between(Estimate(0.0, 0.0, 0.021, 0.01))
    'by 2.1 points at most'
    """
    value, low, high = (points(max(end, 0.0)) for end in estimate[:3])
    if value == points(0.0) and estimate.low <= 0:
        return f"by {high} at most"
    ends = f"{low.split()[0]} to {high.split()[0]}" if estimate.low > 0 else f"{high.split()[0]} at most"
    return f"by {value} ({ends})"


def percent(share: float, decimals: int | None = None) -> str:
    """
    >>> percent(0.907), percent(0.0031), percent(1.0), percent(0.395, 0)
    ('90.7\xa0%', '0.31\xa0%', '100\xa0%', '40\xa0%')
    """
    if math.isnan(share):
        return "–"
    share = min(max(share, 0.0), 1.0)  # an estimate may lie outside
    if decimals is None:
        decimals = 0 if share in (0.0, 1.0) else 2 if share < 0.01 else 1
    return f"{100 * share:.{decimals}f}\N{NO-BREAK SPACE}%"


def grown(kl: float) -> float:
    """The share of rows that a group of 20 % can grow to within this Kullback-Leibler divergence.

    >>> round(grown(0.1), 2), round(grown(0.3), 2), grown(0.0)
    (0.4, 0.55, 0.2)
    """
    low, high = GROUP, 1.0
    if kl <= 0:
        return GROUP
    for _ in range(60):
        share = (low + high) / 2
        rest = (1 - share) * math.log((1 - share) / (1 - GROUP)) if share < 1 else 0.0
        spent = share * math.log(share / GROUP) + rest
        low, high = (share, high) if spent <= kl else (low, share)
    return low
