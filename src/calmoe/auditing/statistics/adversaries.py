"""Adversaries: each reweights rows within a KL radius to force a calibration error, without their labels.

Σ_b |E[a h 1_b]| is the largest of E[a s_b h] over signs s, one a bin. An adversary chooses its signs on
earlier rows, whose labels it knows, and then its density on the rows it attacks.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calmoe.auditing.statistics.tilting import tilt


class Seen(NamedTuple):
    """Rows as an adversary sees them; of the rows it attacks it never looks at `residual`."""

    expected: np.ndarray  # [n] ĥ(S)
    binned: np.ndarray  # [n] the bin of f
    region: np.ndarray  # [n] the leading expert
    value: np.ndarray  # [n] what a label-free adversary tilts
    residual: np.ndarray  # [n] Y − f
    noise: np.ndarray  # [n] f (1 − f)


Attack = Callable[[Seen, Seen, float, int, np.ndarray | None], tuple[np.ndarray, np.ndarray]]
"""(past, now, radius, bins, signs) -> a density of mean 1 on the rows of now, and the signs [B] it pushes to.

The adversary keeps the signs that it is given."""


def _pushed(expected: np.ndarray, index: np.ndarray, bins: int, density: np.ndarray) -> np.ndarray:
    """Σ a ĥ 1_b: which way, and how far, a density is expected to push each bin."""
    return np.bincount(index, density * expected, minlength=bins)


def _signs(pushed: np.ndarray) -> np.ndarray:
    return np.where(pushed >= 0, 1.0, -1.0)


def best_signs(starts: list[np.ndarray], push: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Of several sign patterns, each improved at most four times, the one that pushes furthest.

    push: the bins' expected sums under the density that is best for the given signs.
    """
    best, furthest = starts[0], -np.inf
    for signs in starts:
        for _ in range(4):
            pushed = push(signs)
            improved = _signs(pushed)
            if (improved == signs).all():
                break
            signs = improved
        if np.abs(pushed).sum() > furthest:
            best, furthest = signs, np.abs(pushed).sum()
    return best


def informed(
    past: Seen, now: Seen, radius: float, bins: int, signs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tilts s_b ĥ(S)."""
    if signs is not None:
        return tilt(signs[now.binned] * now.expected, radius), signs

    def push(signs: np.ndarray) -> np.ndarray:
        density = tilt(signs[past.binned] * past.expected, radius)
        return _pushed(past.expected, past.binned, bins, density)

    plain = _signs(np.bincount(past.binned, past.residual, minlength=bins))
    spread = float(past.expected.std())
    rate = np.sqrt(2 * radius) / spread if spread > 1e-6 else 0.0
    up, down = (
        np.bincount(past.binned, np.exp(sign * rate * past.expected), minlength=bins) for sign in (1, -1)
    )
    ones = np.ones(bins)
    signs = best_signs([plain, _signs(up - down), ones, -ones], push) if radius > 0 else plain
    return tilt(signs[now.binned] * now.expected, radius), signs


def regional(
    past: Seen, now: Seen, radius: float, bins: int, signs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tilts the shares of the leading experts by the mean of s_b D in each region."""
    experts = int(max(past.region.max(), now.region.max())) + 1
    table = np.zeros((experts, bins))
    np.add.at(table, (past.region, past.binned), past.residual)
    shares, shares_now = (
        np.bincount(seen.region, minlength=experts) / len(seen.region) for seen in (past, now)
    )
    table /= len(past.region)  # E[D 1_k 1_b]

    def density(signs: np.ndarray, mass: np.ndarray) -> np.ndarray:
        return tilt(table @ signs / np.maximum(shares, 1e-12), radius, mass)

    ones = np.ones(bins)
    starts = [_signs(table.sum(axis=0)), ones, -ones, *map(_signs, table), *map(_signs, -table)]
    if signs is None:
        signs = best_signs(starts, lambda signs: density(signs, shares) @ table)
    return density(signs, shares_now)[now.region], signs


def blind(
    past: Seen, now: Seen, radius: float, bins: int, signs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tilts a value that needs no label, upward or downward, whichever did more in the past."""
    pushed = [
        _pushed(past.residual, past.binned, bins, tilt(sign * past.value, radius)) for sign in (1.0, -1.0)
    ]
    worse = int(np.argmax([np.abs(push).sum() if signs is None else signs @ push for push in pushed]))
    signs = _signs(pushed[worse]) if signs is None else signs
    return tilt((1.0, -1.0)[worse] * now.value, radius), signs


ATTACKS: dict[str, Attack] = {
    "configurations": informed,
    "regions": regional,
    "disagreement": blind,
    "entropy": blind,
}
