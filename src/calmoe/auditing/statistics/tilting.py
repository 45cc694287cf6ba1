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
    if epsilon <= 0:
        return np.ones_like(scores)
    mass = np.full(scores.shape[-1], 1 / scores.shape[-1]) if probability is None else probability
    below = scores - np.where(mass > 0, scores, -np.inf).max(axis=-1, keepdims=True)
    np.copyto(below, -1.0, where=mass <= 0)  # scores without mass must not overflow
    mean = (below @ mass)[..., None]
    flat = -mean <= 1e-12 * np.abs(scores).max(axis=-1, keepdims=True)
    below /= np.where(flat, 1.0, -mean)
    top = np.log(((below == 0) @ mass)[..., None])  # KL(∞) = −log P(v = max v)
    # in log λ, KL rises from 0 to −top: bisection, and Newton where it stays inside; KL is near λ² Var(v)/2
    low, high = np.full_like(mean, -25.0), np.full_like(mean, 40.0)
    variance = np.maximum((below**2 @ mass)[..., None] - 1.0, 1e-12)
    point = np.clip(0.5 * np.log(2 * epsilon / variance), -24.0, 39.0)
    for _ in range(80):
        kl, slope = _kl(below, np.exp(point), mass)
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
    return weights / (weights @ mass)[..., None]


def _kl(below: np.ndarray, rate: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """KL(λ) = λ E_λ[v] − log E[e^{λ v}], and its slope in log λ: λ² Var_λ(v)."""
    weights = rate * below
    np.exp(weights, out=weights)
    weights *= mass
    total = weights.sum(axis=-1, keepdims=True)
    mean = np.einsum("...m,...m->...", weights, below)[..., None] / total
    square = np.einsum("...m,...m,...m->...", weights, below, below)[..., None] / total
    return rate * mean - np.log(total), rate**2 * np.maximum(square - mean**2, 0.0)
