"""Several random splits, one answer: the middle one, at a level that pays for it.

What is learned depends on which rows taught it, so that one file gives another p-value with every split. Of R
splits, R odd, the middle p-value is at most a only if (R + 1)/2 of them are; by Markov's inequality that has
a probability of at most c a, c = 2R/(R + 1) < 2, however the splits depend on each other. So c times the
middle p-value is a p-value; and the middle one of lower bounds, each of level 1 − (1 − level)/c, is a lower
bound of that level.
"""

from collections.abc import Sequence

import numpy as np

from calmoe.auditing.statistics.estimates import Estimate

SPLITS = 5
LARGE, FEWER = 200_000, 3  # rows above which there are fewer splits


def how_many(rows: int) -> int:
    """Splits for so many rows: learning takes most of an audit's time."""
    return SPLITS if rows <= LARGE else FEWER


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
    """The middle value, the middle lower end and the middle error, mostly of different splits.

    The bounds are of level `level_each`; the lower end is therefore no multiple of the error below the value.
    """
    value, low, error = (
        float(np.sort([getattr(bound, name) for bound in bounds])[len(bounds) // 2])
        for name in ("value", "low", "standard_error")
    )
    return Estimate(value, low, float("inf"), error)


def level_each(level: float, splits: int) -> float:
    """The level of each split's bound, so that the middle one has the level that is asked for."""
    return 1 - (1 - level) / price(splits)


def middle(values: Sequence[float]) -> int:
    """Which one is in the middle; of equal ones the earlier."""
    return int(np.argsort(values, kind="stable")[len(values) // 2])
