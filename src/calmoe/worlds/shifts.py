"""What the paper says of shifts, exact on finite worlds: slices of hard routing, auditors under a shift.

Section 3: under hard routing S_hard = (the leading expert, what it says) is all that calibration depends on:
any shift that keeps P(Y | S_hard) keeps the mixture calibrated, whatever it does to regions, levels or rows.

Appendix C: under a density w of configurations and outcomes, an auditor 0 ≤ g ≤ 1 has the moment E[w g D],
the mass E[w g] and the normalised residual, their ratio. By Cauchy and Schwarz |E[w g D]| ≤ √(E[w g] E[w D²])
since g² ≤ g: the normalised residual is at most √(J / mass), J = E[w D²]. (The paper's bound of the moment,
√J, would give √J / mass, which is no smaller.)
"""

import numpy as np

from calmoe.auditing.statistics.tilting import tilt
from calmoe.worlds.finite import Finite


def slices(world: Finite) -> np.ndarray:
    """The index of S_hard of each configuration: the leading expert and the confidence. [M]"""
    pairs = np.stack([world.region, world.confidence.round(9)], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].ravel()


def slice_gaps(world: Finite, weights: np.ndarray | None = None) -> np.ndarray:
    """E[a (Y − f) | S_hard] / E[a | S_hard] of each slice, a = 1 unless given; NaN without mass. [slices]

    All zero, and a hard-routed mixture is calibrated.
    """
    mass = world.probability if weights is None else world.probability * weights
    index = slices(world)
    total = np.bincount(index, mass)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.bincount(index, mass * world.gap) / np.where(total > 0, total, np.nan)


def slice_keeping(world: Finite, seed: int) -> np.ndarray:
    """A random density a of mean 1 that keeps P(Y | S_hard), but hardly anything else. [M]

    It changes how often experts lead and how often they say what; and inside each slice it moves mass along
    a direction that is orthogonal to Y − f and to 1.
    """
    random, index = np.random.default_rng(seed), slices(world)
    density = random.uniform(0.2, 3.0, size=index.max() + 1)[index]
    for each in range(index.max() + 1):
        at = index == each
        rows = world.probability[at] * np.stack([np.ones(at.sum()), world.gap[at]])
        direction = random.normal(size=at.sum())
        direction -= np.linalg.pinv(rows) @ (rows @ direction)
        largest = np.abs(direction).max()
        if largest > 1e-9:
            density[at] *= 1 + 0.9 * direction / largest
    return density / (world.probability @ density)


def auditor_moments(world: Finite, weights: np.ndarray, auditors: np.ndarray) -> np.ndarray:
    """E[w g D] for a density w [M, 2] of configurations and outcomes and auditors g [M, G]. [G]"""
    return ((world.chance * weights * world.residual).sum(axis=1)) @ auditors


def auditor_masses(world: Finite, weights: np.ndarray, auditors: np.ndarray) -> np.ndarray:
    """E[w g]. [G]"""
    return (world.chance * weights).sum(axis=1) @ auditors


def squared_residual(world: Finite, weights: np.ndarray) -> float:
    """J = E[w D²]."""
    return float((world.chance * weights * world.residual**2).sum())


def least_mass(world: Finite, auditor: np.ndarray, epsilon: float) -> float:
    """The smallest E[w g] over densities w with KL(w) ≤ ε: the exponential tilt of −g. auditor: [M]"""
    return float(world.probability @ (tilt(-auditor, epsilon, world.probability) * auditor))


def normalised_bound(square: float, mass: np.ndarray) -> np.ndarray:
    """√(J / mass): no auditor's normalised residual exceeds it.

    >>> normalised_bound(0.01, np.array([1.0, 0.25])).round(6).tolist()
    [0.1, 0.2]
    """
    return np.sqrt(square / np.maximum(mass, 1e-300))
