"""The estimates of `statistics.estimates` and `statistics.gaps` from sums in place of rows.

Each function has a twin there that takes rows; tests hold both together on random rows.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from calmoe.auditing.statistics.estimates import RARE, Estimate, ece_from, normal
from calmoe.auditing.statistics.gaps import Cells, Products, gap_of_sums
from calmoe.auditing.streaming.sums import Tally


def mean_from(total: float, squares: float, rows: int, level: float) -> Estimate:
    """`mean`, from Σ v and Σ v²."""
    variance = max(squares - total**2 / rows, 0.0) / (rows - 1) if rows > 1 else float("nan")
    return normal(total / rows, (variance / rows) ** 0.5, level)


def spread_from(total: float, squares: float, noise: float, rows: int, rare: float = RARE) -> float:
    """`spread`, from Σ v, Σ v² and Σ noise."""
    centred = max(squares - total**2 / rows, 0.0) * rows / max(rows - 1, 1)
    return (max(centred, min(noise, rare)) + 0.5) ** 0.5 / rows


class WeightedGaps(NamedTuple):
    """Of weighted rows in bins, [B] each: Σ w, Σ w², Σ w D, Σ (w D)², Σ w² D, Σ w² f (1 − f)."""

    weight: np.ndarray
    weight_square: np.ndarray
    gap: np.ndarray
    gap_square: np.ndarray
    crossed: np.ndarray
    noise: np.ndarray

    @classmethod
    def of(
        cls, residual: np.ndarray, noise: np.ndarray, index: np.ndarray, bins: int, weights: np.ndarray
    ) -> "WeightedGaps":
        """The sums of these rows."""
        squares, pushed = weights**2, weights * residual
        parts = (weights, squares, pushed, pushed**2, squares * residual, squares * noise)
        return cls(*(np.bincount(index, part, minlength=bins) for part in parts))

    @classmethod
    def even(cls, tally: Tally) -> "WeightedGaps":
        """Of rows that all weigh 1."""
        return cls(tally.rows, tally.rows, tally.gap, tally.square, tally.gap, tally.noise)

    @property
    def effective(self) -> float:
        """Kish's effective rows, (Σ w)² / Σ w²; 0 without weight."""
        total = float(self.weight.sum())
        return total**2 / float(self.weight_square.sum()) if total > 0 else 0.0


def binned_gap_from(sums: WeightedGaps, heaviest: np.ndarray, level: float, rare: float = RARE) -> Estimate:
    """`binned_gap`, from sums and the largest weight in each bin [B]; rare: errors, as RARE."""
    total = sums.weight.sum()
    means = sums.gap / total
    crossed = np.outer(means, sums.crossed)
    covariance = np.diag(sums.gap_square) - crossed - crossed.T
    covariance += np.outer(means, means) * sums.weight_square.sum()
    expected = np.minimum(sums.noise, rare * heaviest**2)
    imagined = 0.25 * heaviest**2 + np.maximum(expected - sums.gap_square, 0.0)
    used = sums.weight_square > 0
    covariance = np.where(np.outer(used, used), covariance + np.diag(imagined), 0.0)
    return ece_from(means, covariance / total**2, level)


def celled_gap_from(
    sums: np.ndarray, some: Iterable[Cells], rows: int, level: float, *, unit: float = 1.0
) -> Estimate:
    """`celled_gap`, from sums of all rows in cells [4, size]; `some` rows give the correlations of cells."""
    products = Products(sums.shape[1])
    for cells, values, _ in some if products.few else ():
        products.add(cells, values)
    return gap_of_sums(sums, products, rows, level, unit=unit)
