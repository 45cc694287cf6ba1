"""Estimates with intervals: means, shares, and ECEs, whose plain estimate is biased upward."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from calmoe.defaults import LEVEL
from calmoe.metrics.intervals import wilson


class Estimate(NamedTuple):
    """A number, its interval and its standard error. A one-sided bound has an infinite end.

    Attributes:
        value: The number.
        low: The interval's lower end.
        high: The interval's upper end.
        standard_error: The standard error; NaN where there is none.

    Example:
        >>> Estimate(0.02, 0.01, 0.03, 0.005)
        Estimate(0.02, [0.01, 0.03])
    """

    value: float
    low: float
    high: float
    standard_error: float

    def __repr__(self) -> str:
        return f"Estimate({self.value:.4g}, [{self.low:.4g}, {self.high:.4g}])"


NONE = Estimate(*[float("nan")] * 4)


RARE = 5.0  # errors: where the probabilities expect fewer, a sample may show none, and no spread
RESOLVED = 0.995  # the share of 2,000 draws that still says where the law's tail begins


def mean(values: np.ndarray, level: float = LEVEL) -> Estimate:
    """The mean of [N] values with its normal interval; one value has none.

    >>> mean(np.array([0.0, 1.0] * 50))
    Estimate(0.5, [0.4015, 0.5985])
    """
    spread = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    return normal(float(values.mean()), spread / len(values) ** 0.5, level)


def proportion(share: float, rows: int, level: float = LEVEL) -> Estimate:
    """A share of rows with Wilson's interval.

    >>> proportion(1.0, 50)
    Estimate(1, [0.9287, 1])
    """
    low, high = map(float, wilson(share, rows, level))
    return Estimate(share, low, high, (share * (1 - share) / rows) ** 0.5)


def spread(values: np.ndarray, noise: np.ndarray, rare: float = RARE) -> float:
    """The standard error of the mean of values = weight x residual; noise: weight² f (1 − f), row by row.

    Where nearly all rows are right, a sample may hold no error at all, and its own spread would suggest
    certainty. So the sum of squares is at least what the probabilities themselves expect, up to so many
    errors as are rare, and includes two imagined rows that are off by ½, as in Agresti and Coull's interval.

    >>> float(round(spread(np.full(100, 0.01), np.full(100, 0.01 * 0.99)), 3))  # one error in 100 expected
    0.012
    """
    n = len(values)
    squares = float(((values - values.mean()) ** 2).sum()) * n / max(n - 1, 1)
    return (max(squares, min(float(noise.sum()), rare)) + 0.5) ** 0.5 / n


def normal(value: float, standard_error: float, level: float = LEVEL) -> Estimate:
    half = float(ndtri((1 + level) / 2)) * standard_error
    return Estimate(value, value - half, value + half, standard_error)


def at_least(value: float, standard_error: float, level: float = LEVEL) -> Estimate:
    """A one-sided lower bound: value − z_level × standard error, and no upper end."""
    return Estimate(value, value - float(ndtri(level)) * standard_error, float("inf"), standard_error)


def total_gap(gaps: np.ndarray, covariance: np.ndarray, level: float = LEVEL, draws: int = 2000) -> Estimate:
    """θ = Σ_b |μ_b| from normal estimates of the μ_b: gaps [B] with their covariance [B, B].

    The plain T = Σ |gap_b| is biased upward, most where μ is zero. So the interval compares T with its law
    if θ were true: it keeps the θ for which T lies in the middle of the law of Σ |μ_b(θ) + noise_b|, and
    `value` is the θ for which T is the median. θ alone does not determine the μ_b(θ): for θ > T the observed
    gaps grow in the likeliest way; for θ < T the gaps that are smallest in standard errors vanish first, or,
    for the upper end, all shrink in proportion; and however small T is, the upper end is no lower than
    calibrated predictions reach half of the time. Each choice errs on the wide side. At θ = 0 there is no
    choice: the interval holds zero if T is no larger than calibrated predictions give in all but
    (1 − level)/2 of samples.

    Draws cannot resolve the tails of levels near 1. Beyond RESOLVED the interval widens as that of a normal
    law does whose standard deviation is L, L² = Σ |covariance| ≥ the variance of every Σ ± noise_b: T is
    L-Lipschitz in the noise, and by Gaussian isoperimetry its quantiles grow no faster.

    >>> total_gap(np.array([0.10, -0.05]), 0.0001 * np.eye(2))
    Estimate(0.15..., [0.12..., 0.17...])
    >>> total_gap(np.array([0.005, -0.005]), 0.0001 * np.eye(2)).low
    0.0
    """
    keep = np.diag(covariance) > 0
    fixed = float(np.abs(gaps[~keep]).sum())
    signs, gaps = np.where(gaps < 0, -1.0, 1.0)[keep], np.abs(gaps[keep])
    if not len(gaps):
        return Estimate(fixed, fixed, fixed, 0.0)
    covariance = covariance[np.ix_(keep, keep)] * np.outer(signs, signs)  # of the absolute gaps
    errors, observed = np.sqrt(np.diag(covariance)), float(gaps.sum())
    variance = float(covariance.sum())  # of their sum
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    normals = np.random.default_rng(0).normal(size=(draws, len(gaps)))
    noise = np.ascontiguousarray((normals @ root.T).T)  # [B, draws]: sums over few bins are fast this way
    moved = np.empty_like(noise)
    scale = float(np.sqrt((errors**2).sum()))
    likeliest = covariance.sum(axis=1) / variance if variance > 1e-6 * scale**2 else (errors / scale) ** 2
    order = np.argsort(gaps / errors)
    before = np.concatenate([[0.0], np.cumsum(gaps[order])])[:-1]

    usual = float(np.median(np.abs(noise).sum(axis=0)))  # the median of T* if θ were zero

    steepness = float(np.abs(covariance).sum()) ** 0.5

    def share_below(theta: float, concentrated: bool, margin: float) -> float:
        """P(T* ≤ T + margin) if θ were true; it falls with θ. For the upper end, T is no less than usual."""
        if theta >= observed:
            centre = gaps + (theta - observed) * likeliest
        elif concentrated:
            centre = gaps.copy()
            centre[order] -= np.clip(observed - theta - before, 0.0, gaps[order])
        else:
            centre = gaps * (theta / observed)
        limit = observed if concentrated else max(observed, usual)
        np.abs(np.add(centre[:, None], noise, out=moved), out=moved)
        return np.count_nonzero(moved.sum(axis=0) <= limit + margin) / draws

    def largest(share: float, concentrated: bool = True) -> float:
        """The largest θ with P(T* ≤ T) ≥ share; 0 where there is none."""
        resolved = min(max(share, 1 - RESOLVED), RESOLVED)
        margin = steepness * float(ndtri(resolved) - ndtri(share))
        low, high = 0.0, observed + 8 * scale + max(margin, 0.0)
        if share_below(low, concentrated, margin) < resolved:
            return 0.0
        while high - low > 1e-3 * scale:
            middle = (low + high) / 2
            below = share_below(middle, concentrated, margin)
            low, high = (middle, high) if below >= resolved else (low, middle)
        return low

    low, value = largest((1 + level) / 2), largest(0.5)
    high = max(value, largest((1 - level) / 2, concentrated=False))
    return Estimate(fixed + value, fixed + low, fixed + high, max(variance, 0.0) ** 0.5)


def binned_means(
    values: np.ndarray,
    index: np.ndarray,
    bins: int,
    weights: np.ndarray | None = None,
    noise: np.ndarray | None = None,
    rare: float = RARE,
) -> tuple[np.ndarray, np.ndarray]:
    """E[w v 1_b] / E[w] of each bin [B], with their covariance [B, B].

    noise: f (1 − f), row by row. A bin's sum of squares is at least the noise, up to so many errors as are
    rare (as in `spread`); and one imagined row a bin, off by ½, keeps a bin of few and equal residuals from
    looking certain.
    """
    weight = np.ones(len(values)) if weights is None else weights.astype(np.float64)
    total = weight.sum()

    def sums(each: np.ndarray) -> np.ndarray:
        return np.bincount(index, each, minlength=bins)

    means, squares, mass = sums(weight * values) / total, sums((weight * values) ** 2), sums(weight**2)
    # the influence of a row on mean_b is w (v 1_b − mean_b) / Σw
    crossed = np.outer(means, sums(weight**2 * values))
    covariance = np.diag(squares) - crossed - crossed.T + np.outer(means, means) * mass.sum()
    used = mass > 0
    heaviest = np.zeros(bins)
    np.maximum.at(heaviest, index, weight)
    imagined = 0.25 * heaviest**2
    if noise is not None:
        expected = np.minimum(sums(weight**2 * noise), rare * heaviest**2)
        imagined += np.maximum(expected - squares, 0.0)
    covariance = np.where(np.outer(used, used), covariance + np.diag(imagined), 0.0)
    return means, covariance / total**2


def binned_gap(
    residual: np.ndarray,
    index: np.ndarray,
    bins: int,
    weights: np.ndarray | None = None,
    level: float = LEVEL,
    *,
    noise: np.ndarray | None = None,
    rare: float = RARE,
) -> Estimate:
    """The ECE of the population at these bins, Σ_b |E[w D 1_b]| / E[w], with `total_gap`'s interval.

    noise, rare: as in `binned_means`.
    """
    return ece_from(*binned_means(residual, index, bins, weights, noise, rare), level)


def ece_from(gaps: np.ndarray, covariance: np.ndarray, level: float = LEVEL) -> Estimate:
    """`total_gap` of an ECE, which lies in [0, 1]."""
    return within(total_gap(gaps, covariance, level), 0.0, 1.0)


def within(estimate: Estimate, lowest: float, highest: float) -> Estimate:
    """The estimate with its interval cut to the range of the number; it still holds the value.

    >>> within(normal(0.9, 0.1), 0.0, 1.0)
    Estimate(0.9, [0.704, 1])
    """
    value = estimate.value
    low, high = max(estimate.low, min(lowest, value)), min(estimate.high, max(highest, value))
    return estimate._replace(low=low, high=high)
