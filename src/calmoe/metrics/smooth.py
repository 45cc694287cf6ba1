"""The smooth ECE of Blasiok and Nakkiran (2023): no bins, one bandwidth that chooses itself."""

import numpy as np
from scipy.fft import dct

from calmoe.arrays import Array
from calmoe.metrics.binned import gaps, sum_by
from calmoe.metrics.checks import Of, Rows, check, events

GRID = 4096  # intervals of [0, 1]; a power of two keeps the transform fast


def smooth_ece(probs: Array, labels: Array, weights: Array | None = None, *, of: Of = "top") -> float:
    """The fixed point sigma = smECE_sigma, with smECE_sigma = integral |E[(y - f) K_sigma(t, f)]| dt.

    K_sigma is the Gaussian kernel reflected at 0 and 1, that is the heat kernel of [0, 1]. It is diagonal in
    the cosine basis: cosine k is damped by exp(-(sigma pi k)^2 / 2). smECE_sigma falls with sigma, so that
    the fixed point is unique and bisection finds it.

    >>> probs = np.array([[0.2, 0.8]] * 10)
    >>> smooth_ece(probs, np.array([1] * 8 + [0] * 2)) < 1e-6, round(smooth_ece(probs, np.array([1] * 10)), 3)
    (True, 0.2)
    """
    residual = _residual_on_grid(check(probs, labels, weights), of)
    residual[1:-1] /= 2  # reflection counts an inner point twice
    cosines = dct(residual, type=1)
    damping = -((np.pi * np.arange(GRID + 1)) ** 2) / 2

    def smoothed_error(sigma: float) -> float:
        error = np.abs(dct(cosines * np.exp(damping * sigma**2), type=1))
        return float(error.sum() - (error[0] + error[-1]) / 2) / GRID  # the trapezoidal rule

    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if smoothed_error(middle) > middle else (low, middle)
    return low


def _residual_on_grid(rows: Rows, of: Of) -> np.ndarray:
    """E[(y - f) at f], each row shared linearly between its two neighbouring grid points, [GRID + 1]."""
    confidence, outcome = events(rows, of)
    residual = -rows.weigh(gaps(confidence, outcome)) / rows.total
    position = confidence.double() * GRID
    left = position.long().clamp(max=GRID - 1)
    right_share = residual * (position - left)
    spread = sum_by(left, residual - right_share, GRID + 1) + sum_by(left + 1, right_share, GRID + 1)
    return spread.cpu().numpy()
