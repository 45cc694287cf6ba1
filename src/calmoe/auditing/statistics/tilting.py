"""The exponential tilt: the reweighting within a Kullback-Leibler ball that raises a score's mean most.

a ∝ exp(λ v) with KL(λ) = ε attains sup { E[a v] : a ≥ 0, E[a] = 1, E[a log a] ≤ ε }. If all the mass
on the largest v costs less than ε, that is the answer.
"""

import numpy as np


def tilt(scores: np.ndarray, epsilon: float, probability: np.ndarray | None = None) -> np.ndarray:
    """The density a [..., M] of mean 1 that raises E[a v] most within KL radius ε; scores are [..., M].

    probability [M] sums to 1; equal unless given.

    >>> tilt(np.array([0.0, 1.0]), epsilon=np.log(2)).round(6)
    array([0., 2.])
    >>> a = tilt(np.array([-1.0, 0.0, 3.0]), epsilon=0.1)
    >>> float(a.mean().round(9)), float((a * np.log(a)).mean().round(9))
    (1.0, 0.1)
    """
    scores = np.asarray(scores, dtype=np.float64)
    mass = np.full(scores.shape[-1], 1 / scores.shape[-1]) if probability is None else probability
    below = scores - np.where(mass > 0, scores, -np.inf).max(axis=-1, keepdims=True)
    below = np.where(mass > 0, below, -1.0)  # scores without mass must not overflow
    scale = -(below * mass).sum(axis=-1, keepdims=True)
    flat = scale <= 1e-12 * np.abs(scores).max(axis=-1, keepdims=True)
    below = below / np.where(flat, 1.0, scale)
    top = np.log(((below == 0) * mass).sum(axis=-1, keepdims=True))  # KL(∞) = −log P(v = max v)
    if epsilon <= 0:
        return np.ones_like(below)
    # in log λ, KL rises from 0 to −top: bisection, and Newton where it stays inside
    low, high = np.full_like(scale, -25.0), np.full_like(scale, 40.0)
    point = np.zeros_like(scale) + 0.5 * np.log(2 * epsilon)
    for _ in range(80):
        rate = np.exp(point)
        kl, slope = _kl(below, rate, mass)
        low, high = np.where(kl < epsilon, point, low), np.where(kl < epsilon, high, point)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = point + (epsilon - kl) / slope
        moved = np.where((step > low) & (step < high), step, (low + high) / 2)
        moved = np.where(np.abs(kl - epsilon) < 1e-12, point, moved)
        done = (np.abs(moved - point) < 1e-10) | (-top <= epsilon) | flat
        point = moved
        if done.all():
            break
    weights = np.exp(np.exp(point) * below)
    weights = np.where(-top <= epsilon, (below == 0).astype(np.float64), weights)
    weights = np.where(flat, 1.0, weights)
    return weights / (weights * mass).sum(axis=-1, keepdims=True)


def _kl(below: np.ndarray, rate: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """KL(λ) = λ E_λ[v] − log E[e^{λ v}], and its slope in log λ: λ² Var_λ(v)."""
    weights = np.exp(rate * below) * mass
    total = weights.sum(axis=-1, keepdims=True)
    mean = (weights * below).sum(axis=-1, keepdims=True) / total
    variance = (weights * (below - mean) ** 2).sum(axis=-1, keepdims=True) / total
    return rate * mean - np.log(total), rate**2 * variance
