"""Combine p-values or lower bounds of several random splits into one that is valid: the median, corrected.

What a model learns depends on the rows that taught it, so every split gives another p-value. Of R splits, R
odd, the middle p-value is at most a only if (R + 1)/2 of them are; by Markov's inequality that has a
probability of at most c a, c = 2R/(R + 1) < 2, however the splits depend on each other. So c times the middle
p-value is a p-value; and the middle one of lower bounds, each of level 1 − (1 − level)/c, is a lower bound of
that level.

Another seed draws other splits, and the middle one moves. `decided` says whether it moves across a threshold.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from calmoe.auditing.statistics.estimates import Estimate

SPLITS = 7
MEDIUM, SOME = 20_000, 5  # with more rows than that, so many splits
LARGE, FEWER = 200_000, 3
SURE = 2.0  # standard errors of the middle split between it and a threshold: then no seed crosses it


def how_many(rows: int) -> int:
    """The splits for so many rows: learning takes most of an audit's time."""
    if rows <= MEDIUM:
        return SPLITS
    return SOME if rows <= LARGE else FEWER


def seeds(seed: int, splits: int) -> list[int]:
    """A seed for each split; the first is the audit's own."""
    others = (np.random.SeedSequence([seed, r]).generate_state(1)[0] for r in range(1, splits))
    return [seed, *map(int, others)]


def price(splits: int) -> float:
    """c = 2R/(R + 1): what the middle of R splits costs.

    >>> price(1), price(3), round(price(5), 4)
    (1.0, 1.5, 1.6667)
    """
    return 2 * splits / (splits + 1)


def one_p_value(p_values: Sequence[float]) -> float:
    """c times the middle one, at most 1.

    >>> round(one_p_value([0.001, 0.03, 0.2]), 4)
    0.045
    """
    return min(1.0, price(len(p_values)) * p_values[middle(p_values)])


def one_bound(bounds: Sequence[Estimate]) -> Estimate:
    """The middle value, the middle lower end and the middle error, which may come from different splits.

    So the lower end is no fixed number of errors below the value. The bounds have level `level_each`.
    """
    value, low, error = (
        float(np.sort([getattr(bound, name) for bound in bounds])[len(bounds) // 2])
        for name in ("value", "low", "standard_error")
    )
    return Estimate(value, low, float("inf"), error)


def level_each(level: float, splits: int) -> float:
    """The level that each split's bound needs for the middle one to have this level."""
    return 1 - (1 - level) / price(splits)


def middle(values: Sequence[float]) -> int:
    """The index of the middle value; of equal ones the earlier."""
    return int(np.argsort(values, kind="stable")[len(values) // 2])


def decided(values: Sequence[float], threshold: float) -> bool:
    """Whether the middle value lies so far from the threshold that another seed's lies on the same side.

    The values of R splits scatter by s, their middle by about 1.25 s/√R. Equal values agree.

    >>> decided([0.11, 0.12, 0.10], 0.0), decided([-0.02, 0.01, 0.02], 0.0)
    (True, False)
    """
    if min(values) == max(values):
        return True
    scatter = 1.25 * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return abs(float(np.median(values)) - threshold) > SURE * scatter


def decided_p_value(p_values: Sequence[float], level: float = 0.05) -> bool:
    """`decided` for `one_p_value` below the level, on the normal scale.

    >>> decided_p_value([1e-9, 1e-7, 1e-8]), decided_p_value([0.001, 0.03, 0.2])
    (True, False)
    """
    scores = [float(ndtri(min(max(p, 1e-16), 1 - 1e-16))) for p in p_values]
    return decided(scores, float(ndtri(level / price(len(p_values)))))
