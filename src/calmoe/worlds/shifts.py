"""What the paper says of shifts, exact on finite worlds: slices of hard routing, auditors under a shift.

Section 3: under hard routing S_hard = (the leading expert, what it says) is all that calibration depends on:
any shift that keeps P(Y | S_hard) keeps the mixture calibrated, whatever it does to regions, levels or rows.

Appendix C: under a density w an auditor's normalised residual is at most √(E[w D²] / mass); within a KL
radius its mass is at least `least_mass`.
"""

import numpy as np

from calmoe.auditing.statistics.tilting import tilt
from calmoe.worlds.finite import Finite


def slices(world: Finite) -> np.ndarray:
    """The index of S_hard of each configuration: the leading expert and the confidence. [M]"""
    pairs = np.stack([world.region, world.confidence.round(9)], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].ravel()


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


def least_mass(world: Finite, auditor: np.ndarray, epsilon: float) -> float:
    """The smallest E[w g] over densities w with KL(w) ≤ ε: the exponential tilt of −g. auditor: [M]"""
    return float(world.probability @ (tilt(-auditor, epsilon, world.probability) * auditor))
