"""Attacks on one split of the rows: earlier rows teach an adversary, judged rows' labels demonstrate it.

The mean of a s_b D over judged rows is an unbiased estimate of an error that the reweighting a forces, as its
signs s and its scores come from earlier rows. An adversary chooses its signs once, before the first judged
block: blocks that push a bin to opposite sides cancel, and their joint reweighting would force less.
"""

import math
from typing import NamedTuple

import numpy as np

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.adversaries import ATTACKS, Past, Seen
from calmoe.auditing.statistics.estimates import RARE, Estimate, normal, within
from calmoe.auditing.statistics.sequential import Learned

RADII = (0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
QUOTED = 0.1  # the radius that sentences speak of
SMALLEST = 0.01  # "twice the ECE" takes an ECE below one point for one point
MOST_ATTACKED = 200_000  # judged rows of a split


def quoted(radii: np.ndarray) -> int:
    """The index of the first radius of at least 0.1, or of the last one."""
    return min(int(np.searchsorted(radii, QUOTED)), len(radii) - 1)


class Scene:
    """The rows as adversaries see them."""

    def __init__(self, configurations: Configurations, bins: int) -> None:
        self.bins, self.index = bins, configurations.bins(bins)
        self.residual, self.noise = configurations.residual, configurations.noise
        self.leading = configurations.leading
        self.values = {"disagreement": configurations.disagreement, "entropy": configurations.entropy}

    def blocks(self, learned: Learned, name: str) -> list[tuple[Past, Seen]]:
        """Earlier rows and judged ones, block by block."""
        values = self.values.get(name, self.residual)

        def seen(rows: np.ndarray, expected: np.ndarray) -> Seen:
            return Seen(
                expected,
                self.index[rows],
                self.leading[rows],
                values[rows],
                self.residual[rows],
                self.noise[rows],
            )

        kept = attacked(learned)
        return [
            (Past(seen(past, recalled), self.bins), seen(learned.rows[part], learned.expected[part]))
            for part, past, recalled in zip(
                (kept[learned.block[kept] == b] for b in range(1, len(learned.past) + 1)),
                learned.past,
                learned.recalled,
                strict=True,
            )
        ]


def attacked(learned: Learned) -> np.ndarray:
    """Positions of the judged rows that are attacked: of each block the first ones, in proportion."""
    share = min(1.0, MOST_ATTACKED / len(learned.rows))
    return np.concatenate([part[: int(np.ceil(share * len(part)))] for part in learned.parts()])


class Forced(NamedTuple):
    """What an adversary forces on the judged rows of one split, and its standard error."""

    value: np.ndarray  # [R]
    error: np.ndarray  # [R]
    densities: np.ndarray  # [R, J] float32, of mean 1 in each block

    def forgotten(self) -> "Forced":
        """Without the densities, which are large."""
        return self._replace(densities=np.empty((0, 0), np.float32))

    def at(self, i: int, one_sided: float) -> Estimate:
        """With an interval each of whose ends has this level."""
        return within(normal(float(self.value[i]), float(self.error[i]), 2 * one_sided - 1), -1.0, 1.0)


def attack(name: str, blocks: list[tuple[Past, Seen]], radii: tuple[float, ...]) -> Forced:
    """Attack block by block; densities have mean 1 in each block, so that all rows weigh the same."""
    rows = sum(len(now.binned) for _, now in blocks)
    values, errors = np.empty(len(radii)), np.empty(len(radii))
    densities = np.ones((len(radii), rows), np.float32)
    for i, radius in enumerate(radii):
        total, variance, signs, start = 0.0, 0.0, None, 0
        for past, now in blocks:
            density, signs = ATTACKS[name](past, now, radius, signs)
            pushed = signs[now.binned] * now.residual
            total += float(density @ pushed)
            variance += _variance(pushed, density, now.noise)
            densities[i, start : start + len(pushed)] = density
            start += len(pushed)
        values[i], errors[i] = total / rows, variance**0.5 / rows
    return Forced(values, errors, densities)


def _variance(pushed: np.ndarray, density: np.ndarray, noise: np.ndarray) -> float:
    """Of Σ a s D in a block whose densities have mean 1; at least the expected spread, up to RARE errors."""
    here = float(density @ pushed) / len(pushed)
    seldom = min(float(density**2 @ noise), RARE * float(density.max()) ** 2)
    return max(float(density**2 @ (pushed - here) ** 2), seldom)


def beyond_twice(error: Estimate, ece: Estimate) -> Estimate:
    """The error less twice the ECE, or less 0.02 where that is smaller; both intervals have the same level.

    The ends of a difference follow from those of its parts (Zou and Donner, 2008): as far from the value as
    the root of the squared distances of the error's end and of twice the ECE's other end. An error forced and
    an ECE share rows and mostly signs; so they rise together, and the interval errs on the wide side.

    >>> beyond_twice(Estimate(0.10, 0.08, 0.12, 0.01), Estimate(0.02, 0.01, 0.03, 0.005))
    Estimate(0.06, [0.03172, 0.08828])
    >>> beyond_twice(Estimate(0.04, 0.03, 0.05, 0.005), Estimate(0.0, 0.0, 0.004, 0.002))  # less 0.02
    Estimate(0.02, [0.01, 0.03])
    """
    floor = 2 * SMALLEST
    value = error.value - 2 * ece.value
    low = value - math.hypot(error.value - error.low, 2 * (ece.high - ece.value))
    high = value + math.hypot(error.high - error.value, 2 * (ece.value - ece.low))
    low, high = min(low, error.low - floor), high if ece.value > SMALLEST else error.high - floor
    return Estimate(min(value, error.value - floor), low, high, float("nan"))
