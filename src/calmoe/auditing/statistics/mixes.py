"""Mixes of rows: what calibration, accuracy and shares become when kinds of rows come more or less often.

Rows are counted in cells: one for each bin of confidence and each level of a few factors, with the number of
rows and the sums of f, Y and f (1 − f). A mix gives each level of each factor a tilt t; a row's weight is the
product of its levels' tilts, equal for all rows of a cell. So all that is computed from cells is exact for
every mix, however many rows there are: none is left out or approximated. `presentation/explorer.js` computes
the same sums on a page.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

HALVINGS = 50
Settings = tuple[tuple[float, ...], ...]
"""log t of each level of each factor."""


class Mix(NamedTuple):
    """What a mix does. reach: λ of `Cells.mix`. by_chance: the mean ECE that calibrated predictions show."""

    ece: float
    accuracy: float
    mean_confidence: float
    by_chance: float
    kl: float
    reach: float
    shares: tuple[np.ndarray, ...]  # of each factor's levels
    share: np.ndarray  # [B] of rows
    confidence: np.ndarray  # [B] NaN where a bin is empty
    right: np.ndarray  # [B]


@dataclass(frozen=True, kw_only=True)
class Cells:
    """M cells of B bins and F factors."""

    bins: int
    levels: tuple[int, ...]  # how many each factor has
    bin: np.ndarray  # [M]
    level: np.ndarray  # [M, F]
    count: np.ndarray  # [M]
    confidence: np.ndarray  # [M] Σ f
    outcome: np.ndarray  # [M] Σ Y
    noise: np.ndarray  # [M] Σ f (1 − f)

    def mix(self, settings: Settings = (), budget: float = np.inf) -> Mix:
        """The mix of these settings; none, or all 0: the rows as they are.

        budget: the largest Kullback-Leibler divergence. A mix beyond it becomes t^λ with the largest λ ≤ 1
        within it.
        """
        wanted = np.zeros(len(self.count))
        for i, tilts in enumerate(settings):
            wanted += np.asarray(tilts, dtype=np.float64)[self.level[:, i]]
        reach = self._reach(wanted, budget)
        density, kl = self.density(reach * wanted)
        rows = float(self.count.sum())

        def by_bin(values: np.ndarray) -> np.ndarray:
            return np.bincount(self.bin, values, minlength=self.bins) / rows

        mass, said, came = (by_bin(density * part) for part in (self.count, self.confidence, self.outcome))
        chance = np.sqrt(by_bin(density**2 * self.noise) / rows)
        with np.errstate(invalid="ignore", divide="ignore"):
            confidence, right = said / mass, came / mass
        return Mix(
            ece=float(np.abs(came - said).sum()),
            accuracy=float(came.sum()),
            mean_confidence=float(said.sum()),
            by_chance=float(np.sqrt(2 / np.pi) * chance.sum()),
            kl=kl,
            reach=reach,
            shares=tuple(
                np.bincount(self.level[:, i], density * self.count, minlength=size) / rows
                for i, size in enumerate(self.levels)
            ),
            share=mass,
            confidence=confidence,
            right=right,
        )

    def density(self, tilt: np.ndarray) -> tuple[np.ndarray, float]:
        """The density of mean 1 that is proportional to exp(tilt) [M], and its divergence."""
        weights = np.exp(tilt - tilt.max())
        density = weights * (self.count.sum() / (weights * self.count).sum())
        logs = np.log(np.maximum(density, 1e-300))
        return density, max(float((self.count * density * logs).sum() / self.count.sum()), 0.0)

    def _reach(self, wanted: np.ndarray, budget: float) -> float:
        if self.density(wanted)[1] <= budget:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.density(middle * wanted)[1] <= budget else (low, middle)
        return low
