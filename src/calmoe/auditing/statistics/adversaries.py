"""Adversaries: each reweights rows within a KL radius to force a calibration error, without their labels.

Σ_b |E[a h 1_b]| is the largest of E[a s_b h] over signs s, one a bin. An adversary chooses its signs on
earlier rows, whose labels it knows, and then its density on the rows it attacks.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from calmoe.auditing.statistics.tilting import tilt

STEPS = 200  # of a score between its least and its largest value, for the choice of signs


class Seen(NamedTuple):
    """Rows as an adversary sees them; of the rows it attacks it never looks at `residual`."""

    expected: np.ndarray  # [n] ĥ(S)
    binned: np.ndarray  # [n] the bin of f
    region: np.ndarray  # [n] the leading expert
    value: np.ndarray  # [n] what a label-free adversary tilts
    residual: np.ndarray  # [n] Y − f
    noise: np.ndarray  # [n] f (1 − f)


Attack = Callable[["Past", Seen, float, np.ndarray | None], tuple[np.ndarray, np.ndarray]]
"""(past, now, radius, signs) -> a density of mean 1 on the rows of now, and the signs [B] it pushes to.

The adversary keeps the signs that it is given."""


def signs_of(pushed: np.ndarray) -> np.ndarray:
    """1 or −1; 1 for zero."""
    return np.where(pushed >= 0, 1.0, -1.0)


def best_signs(starts: np.ndarray, push: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Of several sign patterns [P, B], each improved at most four times, the one that pushes furthest. [B]

    push: the bins' expected sums [P, B] under the densities that are best for the given signs.
    """
    signs = starts
    for _ in range(4):
        pushed = push(signs)
        improved = signs_of(pushed)
        if (improved == signs).all():
            break
        signs = improved
    return np.asarray(signs[np.abs(pushed).sum(axis=1).argmax()])


class _Cells:
    """Earlier rows by the bin of f and by a score: they choose signs in a fraction of the rows' time.

    score [M]: the mean score of each cell; binned [M]: its bin of f; mass [M]: its share of the rows;
    residual [M]: the mean of Y − f.
    """

    def __init__(self, past: Seen, score: np.ndarray, bins: int) -> None:
        low, high = float(score.min()), float(score.max())
        step = ((score - low) * ((STEPS - 1) / max(high - low, 1e-12))).round().astype(int)
        cell = past.binned * STEPS + step
        count = np.bincount(cell, minlength=bins * STEPS)
        used = np.flatnonzero(count)
        self.score, self.residual = (
            np.bincount(cell, values, minlength=bins * STEPS)[used] / count[used]
            for values in (score, past.residual)
        )
        self.binned, self.mass = used // STEPS, count[used] / len(cell)
        self.inside = (self.binned[:, None] == np.arange(bins)).astype(np.float64)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Σ over each bin's cells of mass x values [..., M]. [..., B]"""
        return (self.mass * values) @ self.inside


class Past:
    """Earlier rows, whose labels an adversary knows; what it needs at every radius is summed up once."""

    def __init__(self, rows: Seen, bins: int) -> None:
        self.rows, self.bins = rows, bins

    @cached_property
    def by_expected(self) -> _Cells:
        return _Cells(self.rows, self.rows.expected, self.bins)

    @cached_property
    def by_value(self) -> _Cells:
        return _Cells(self.rows, self.rows.value, self.bins)

    @cached_property
    def plain_signs(self) -> np.ndarray:
        """Those of the gaps as they are. [B]"""
        return signs_of(np.bincount(self.rows.binned, self.rows.residual, minlength=self.bins))


def informed(
    past: Past, now: Seen, radius: float, signs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tilts s_b ĥ(S)."""
    if signs is not None:
        return tilt(signs[now.binned] * now.expected, radius), signs
    if radius <= 0:
        return np.ones(len(now.binned)), past.plain_signs
    cells = past.by_expected

    def push(signs: np.ndarray) -> np.ndarray:
        return cells.sums(tilt(signs[:, cells.binned] * cells.score, radius, cells.mass) * cells.score)

    spread = float(past.rows.expected.std())
    rate = np.sqrt(2 * radius) / spread if spread > 1e-6 else 0.0
    top = np.zeros(past.bins)  # of each bin: what both sums are divided by, so that neither overflows
    np.maximum.at(top, cells.binned, np.abs(cells.score))
    up, down = (cells.sums(np.exp(rate * (way * cells.score - top[cells.binned]))) for way in (1, -1))
    ones = np.ones(past.bins)
    signs = best_signs(np.stack([past.plain_signs, signs_of(up - down), ones, -ones]), push)
    return tilt(signs[now.binned] * now.expected, radius), signs


def regional(
    past: Past, now: Seen, radius: float, signs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tilts the shares of the leading experts by the mean of s_b D in each region."""
    rows, bins = past.rows, past.bins
    experts = int(max(rows.region.max(), now.region.max())) + 1
    sums = np.bincount(rows.region * bins + rows.binned, rows.residual, minlength=experts * bins)
    table = sums.reshape(experts, bins) / len(rows.region)  # E[D 1_k 1_b]
    shares, shares_now = (
        np.bincount(seen.region, minlength=experts) / len(seen.region) for seen in (rows, now)
    )

    def density(signs: np.ndarray, mass: np.ndarray) -> np.ndarray:
        return tilt(signs @ table.T / np.maximum(shares, 1e-12), radius, mass)

    if signs is None:
        ones = np.ones((1, bins))
        starts = np.concatenate(
            [signs_of(table.sum(axis=0, keepdims=True)), ones, -ones, signs_of(table), signs_of(-table)]
        )
        signs = best_signs(starts, lambda signs: density(signs, shares) @ table)
    return density(signs, shares_now)[now.region], signs


def blind(
    past: Past, now: Seen, radius: float, signs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tilts a value that needs no label, upward or downward, whichever did more in the past."""
    cells, ways = past.by_value, np.array([1.0, -1.0])
    pushed = cells.sums(tilt(ways[:, None] * cells.score, radius, cells.mass) * cells.residual)
    worse = int(np.argmax(np.abs(pushed).sum(axis=1) if signs is None else pushed @ signs))
    signs = signs_of(pushed[worse]) if signs is None else signs
    return tilt(ways[worse] * now.value, radius), signs


ATTACKS: dict[str, Attack] = {
    "configurations": informed,
    "regions": regional,
    "disagreement": blind,
    "entropy": blind,
}
