"""The smooth ECE of Blasiok and Nakkiran (2023): no bins, one bandwidth that chooses itself."""

import numpy as np
from scipy.fft import dct
from torch import Tensor

from calmoe.arrays import Array
from calmoe.metrics.binned import gaps, sum_by
from calmoe.metrics.checks import Of, check, events

GRID = 4096  # intervals of [0, 1]; a power of two keeps the transform fast


def smooth_ece(probs: Array, labels: Array, weights: Array | None = None, *, of: Of = "top") -> float:
    """The fixed point sigma = smECE_sigma, with smECE_sigma = integral |E[(y - f) K_sigma(t, f)]| dt.

    K_sigma is the Gaussian kernel reflected at 0 and 1, that is the heat kernel of [0, 1]. It is diagonal in
    the cosine basis: cosine k is damped by exp(-(sigma pi k)^2 / 2). smECE_sigma falls with sigma, so that
    the fixed point is unique and bisection finds it.

    Args:
        probs: Probabilities. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.
        of: "top" judges the probability of the predicted class, a number c that of class c.

    Returns:
        A number between 0 and 1, without bins to choose.

    Example:
        >>> probs = np.array([[0.2, 0.8]] * 10)
        >>> round(smooth_ece(probs, np.array([1] * 8 + [0] * 2)), 3)  # calibrated
        0.0
        >>> round(smooth_ece(probs, np.array([1] * 10)), 3)
        0.2
    """
    rows = check(probs, labels, weights)
    confidence, outcome = events(rows, of)
    residual = -rows.weigh(gaps(confidence, outcome)) / rows.total
    cosines = to_cosines(on_grid(confidence, residual, GRID))

    def smoothed_error(sigma: float) -> float:
        error = np.abs(diffused(cosines, sigma))
        return float(error.sum() - (error[0] + error[-1]) / 2) / GRID  # the trapezoidal rule

    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if smoothed_error(middle) > middle else (low, middle)
    return low


def on_grid(confidence: Tensor, values: Tensor, grid: int) -> np.ndarray:
    """The values [N] summed at the points of a grid on [0, 1], each shared by the two neighbours of its f.

    Rows share linearly. [grid + 1]
    """
    position = confidence.double() * grid
    left = position.long().clamp(max=grid - 1)
    right_share = values * (position - left)
    spread = sum_by(left, values - right_share, grid + 1) + sum_by(left + 1, right_share, grid + 1)
    return spread.cpu().numpy()


def to_cosines(mass: np.ndarray) -> np.ndarray:
    """Mass at the points of a grid on [0, 1], along the first axis, in the cosine basis."""
    mass = mass.copy()
    mass[1:-1] /= 2  # reflection counts an inner point twice
    return np.asarray(dct(mass, type=1, axis=0))


def diffused(cosines: np.ndarray, sigma: float) -> np.ndarray:
    """The density on the grid after the heat kernel of width sigma: cosine k is damped by exp(-(σπk)²/2)."""
    damping = np.exp(-((sigma * np.pi * np.arange(len(cosines))) ** 2) / 2)
    return np.asarray(dct(cosines * damping.reshape(-1, *[1] * (cosines.ndim - 1)), type=1, axis=0))
