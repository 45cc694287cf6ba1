"""Estimates with intervals: means, and sums of absolute values, which need more care."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri


class Estimate(NamedTuple):
    """A number, its interval and its standard error. A one-sided bound has an infinite end."""

    value: float
    low: float
    high: float
    standard_error: float

    def __repr__(self) -> str:
        return f"Estimate({self.value:.4g}, [{self.low:.4g}, {self.high:.4g}])"


NONE = Estimate(*[float("nan")] * 4)


def mean(values: np.ndarray, level: float = 0.95) -> Estimate:
    """The mean of [N] values with its normal interval.

    >>> mean(np.array([0.0, 1.0] * 50))
    Estimate(0.5, [0.4015, 0.5985])
    """
    return normal(float(values.mean()), float(values.std(ddof=1)) / len(values) ** 0.5, level)


def normal(value: float, standard_error: float, level: float = 0.95) -> Estimate:
    half = float(ndtri((1 + level) / 2)) * standard_error
    return Estimate(value, value - half, value + half, standard_error)


def at_least(value: float, standard_error: float, level: float = 0.95) -> Estimate:
    """A one-sided lower bound: value − z_level × standard error, and no upper end."""
    return Estimate(value, value - float(ndtri(level)) * standard_error, float("inf"), standard_error)


def total_gap(gaps: np.ndarray, covariance: np.ndarray, level: float = 0.95, draws: int = 2000) -> Estimate:
    """θ = Σ_b |μ_b| from normal estimates of the μ_b: gaps [B] with their covariance [B, B].

    The plain T = Σ |gap_b| is biased upward, most where μ is zero. So T is compared with what it would be if
    θ were true: a θ is kept where T lies in the middle of the law of Σ |μ_b(θ) + noise_b|, and `value` is the
    θ for which T is its median. θ alone does not say the μ_b(θ): for θ > T the observed gaps grow as is
    likeliest; for θ < T the gaps that are smallest in standard errors go to zero first, or, for the upper
    end, all shrink alike. Each is the choice that errs on the wide side. At θ = 0 there is no choice: zero is
    in the interval if and only if T is no larger than calibrated predictions give in all but (1 − level)/2
    of samples.

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
    covariance = covariance[np.ix_(keep, keep)] * np.outer(signs, signs)  # of the gaps made positive
    errors, observed = np.sqrt(np.diag(covariance)), float(gaps.sum())
    variance = float(covariance.sum())  # of their sum
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    noise = np.random.default_rng(0).normal(size=(draws, len(gaps))) @ root.T
    scale = float(np.sqrt((errors**2).sum()))
    likeliest = covariance.sum(axis=1) / variance if variance > 1e-6 * scale**2 else (errors / scale) ** 2
    order = np.argsort(gaps / errors)
    before = np.concatenate([[0.0], np.cumsum(gaps[order])])[:-1]

    def share_below(theta: float, concentrated: bool) -> float:
        """P(T* ≤ T) if θ were true; it falls with θ."""
        if theta >= observed:
            centre = gaps + (theta - observed) * likeliest
        elif concentrated:
            centre = gaps.copy()
            centre[order] -= np.clip(observed - theta - before, 0.0, gaps[order])
        else:
            centre = gaps * (theta / observed)
        return float((np.abs(centre + noise).sum(axis=1) <= observed).mean())

    def largest(share: float, concentrated: bool = True) -> float:
        """The largest θ with P(T* ≤ T) ≥ share; 0 where there is none."""
        low, high = 0.0, observed + 8 * scale
        if share_below(low, concentrated) < share:
            return 0.0
        while high - low > 1e-3 * scale:
            middle = (low + high) / 2
            low, high = (middle, high) if share_below(middle, concentrated) >= share else (low, middle)
        return low

    low, value = largest((1 + level) / 2), largest(0.5)
    high = max(value, largest((1 - level) / 2, concentrated=False))
    return Estimate(fixed + value, fixed + low, fixed + high, max(variance, 0.0) ** 0.5)


def binned_gap(
    residual: np.ndarray, index: np.ndarray, bins: int, weights: np.ndarray | None = None, level: float = 0.95
) -> Estimate:
    """The ECE of the population at these bins, Σ_b |E[w D 1_b]| / E[w], with `total_gap`'s interval.

    One imagined row a bin, with the bin's mean square or 0.05 if that is more, keeps a bin of few and equal
    residuals from looking certain.
    """
    weight = np.ones(len(residual)) if weights is None else weights.astype(np.float64)
    total = weight.sum()

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(index, values, minlength=bins)

    gaps, squares, mass = sums(weight * residual) / total, sums((weight * residual) ** 2), sums(weight**2)
    # the influence of a row on gap_b is w (D 1_b − gap_b) / Σw
    crossed = np.outer(gaps, sums(weight**2 * residual))
    covariance = np.diag(squares) - crossed - crossed.T + np.outer(gaps, gaps) * mass.sum()
    used = mass > 0
    heaviest = np.zeros(bins)
    np.maximum.at(heaviest, index, weight)
    imagined = heaviest**2 * np.maximum(np.divide(squares, mass, out=np.zeros(bins), where=used), 0.05)
    covariance = np.where(np.outer(used, used), covariance + np.diag(imagined), 0.0)
    return total_gap(gaps, covariance / total**2, level)
