"""The worst that a loss or an ECE becomes when rows are reweighted: in a KL ball, or in a tail (CVaR).

On the rows it is the exponential tilt (`worst`, `worst_signed`). For the population `upper_bounds` bounds it
without asymptotics, and `tail` bounds the CVaR.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.statistics.tilting import tilt
from calmoe.objectives import cvar

ETAS = np.geomspace(0.1, 60.0, 20)  # where `upper_bounds` bounds E[e^{ηL}], beside the limit η = 0


class Worst(NamedTuple):
    """sup of E_a[L] over KL(a) ≤ ε, its standard error, the dual's η, Kish's effective rows."""

    value: float
    standard_error: float
    eta: float
    effective: float


def worst(losses: np.ndarray, epsilon: float, mass: np.ndarray | None = None) -> Worst:
    """The largest E_a[L], by the exponential tilt with KL = ε. mass [N] sums to 1; equal unless given."""
    n = len(losses)
    if np.isinf(losses).any():  # at every η > 0 the entropic risk is infinite
        return Worst(float("inf"), float("nan"), float("nan"), float(np.isinf(losses).sum()))
    density = tilt(losses, epsilon, mass)
    mass = np.full(n, 1 / n) if mass is None else mass
    value = float(mass @ (density * losses))
    low, high = (int(np.where(mass > 0, side * losses, np.inf).argmin()) for side in (1, -1))
    eta, error = 0.0, float(mass @ (losses - value) ** 2 / n) ** 0.5
    if epsilon > 0 and losses[high] > losses[low]:
        with np.errstate(divide="ignore"):
            eta = float((np.log(density[high]) - np.log(density[low])) / (losses[high] - losses[low]))
        if eta > 0:
            error = float(mass @ (density - 1) ** 2 / n) ** 0.5 / eta if eta < np.inf else float("nan")
    return Worst(value, error, eta, n / float(mass @ density**2))


def worst_signed(
    residual: np.ndarray, index: np.ndarray, bins: int, epsilon: float, mass: np.ndarray | None = None
) -> Worst:
    """`worst` of s_b D, for the signs s that are worst at the η that minimises the dual for these signs.

    Such a pair is a saddle point, and its value the largest ECE over reweightings of the rows. Where signs
    and η chase each other, the value is the least over η of the dual with its worst signs, which is no less.
    """
    weight = np.full(len(residual), 1 / len(residual)) if mass is None else mass
    signs = np.where(np.bincount(index, weight * residual, minlength=bins) >= 0, 1.0, -1.0)

    def tilted(eta: float) -> np.ndarray:  # [2, B] E[e^{±ηD} 1_b]
        return np.stack(
            [np.bincount(index, weight * np.exp(sign * eta * residual), minlength=bins) for sign in (1, -1)]
        )

    tried = []
    for _ in range(5):
        attack = worst(signs[index] * residual, epsilon, mass)
        if not 0 < attack.eta < np.inf:
            return attack
        up, down = tilted(attack.eta)
        worse = np.where(up >= down, 1.0, -1.0)
        if (worse == signs)[up + down > 0].all():
            return attack
        signs = worse
        tried.append(np.log(attack.eta))

    def dual(log_eta: float) -> float:
        eta = float(np.exp(log_eta))
        return float((np.log(tilted(eta).max(axis=0).sum()) + epsilon) / eta)

    between = minimize_scalar(dual, bounds=(min(tried) - 0.1, max(tried) + 0.1), method="bounded")
    return attack._replace(value=float(between.fun), eta=float(np.exp(between.x)))


def upper_bounds(
    choices: list[np.ndarray],
    index: np.ndarray,
    bins: int,
    ends: tuple[float, float],
    radii: tuple[float, ...],
    level: float,
) -> np.ndarray:
    """An upper bound of inf over η of (log E[e^{ηL}] + ε)/η, for all radii together. [R]

    In each bin L is the one of `choices` [N] that is worse there for the population; all lie between `ends`.
    For one η, Maurer and Pontil's empirical Bernstein bound holds for the mean of e^{ηL}, a bounded variable,
    with probability 1 − δ; with δ = (1 − level)/21 it holds for 21 η together, and then for every ε at once,
    whichever η the data make the least.
    """
    log_term = float(np.log(2 * (len(ETAS) + 1) / (1 - level)))
    low, high = ends
    n, least = len(index), np.full(len(radii), np.inf)
    for eta in (0.0, *ETAS):
        if eta == 0.0:
            scaled = [(choice - low) / (high - low) for choice in choices]
            mean = low + (high - low) * bernstein(scaled, index, bins, log_term)
            least[np.array(radii) == 0] = mean
            continue
        bottom, top = np.exp(eta * low), np.exp(eta * high)
        scaled = [(np.exp(eta * choice) - bottom) / (top - bottom) for choice in choices]
        moment = bottom + (top - bottom) * min(bernstein(scaled, index, bins, log_term), 1.0)
        least = np.minimum(least, (np.log(moment) + np.array(radii)) / eta)
    return np.minimum(least, high) if n > 1 else np.full(len(radii), high)


def bernstein(choices: list[np.ndarray], index: np.ndarray, bins: int, log_term: float) -> float:
    """max over choices of mean + √(2 V log(2/δ)/n) + 7 log(2/δ) / (3(n − 1)), for values in [0, 1].

    V is their variance. As √V ≤ (V/λ + λ)/2 and V ≤ the mean square about any κ, the choice may differ from
    bin to bin.
    """
    n = len(index)
    if n < 2:
        return 1.0

    def largest(values: list[np.ndarray]) -> tuple[float, np.ndarray]:
        sums = np.stack([np.bincount(index, value, minlength=bins) for value in values])
        return float(sums.max(axis=0).sum()) / n, sums.argmax(axis=0)

    mean, chosen = largest(choices)
    taken = choices[0] if len(choices) == 1 else np.choose(chosen[index], choices)
    spread = max(float(taken.std()), 1e-9)
    rate = (2 * log_term / n) ** 0.5
    curved = rate / (2 * spread) * n / (n - 1)
    bound, _ = largest([value + curved * (value - mean) ** 2 for value in choices])
    return bound + rate * spread / 2 + 7 * log_term / (3 * (n - 1))


def tail(losses: np.ndarray, gamma: float, level: float) -> Estimate:
    """The CVaR of losses in [0, 1]; at its upper end, all mass that the band F ≥ F_n − c frees moves to 1."""
    tensor, n = torch.as_tensor(losses), len(losses)
    band = float(np.sqrt(np.log(1 / (1 - level)) / (2 * n)))
    value, rest = float(cvar(tensor, gamma)), 1 / gamma - band
    high = gamma * (band + rest * float(cvar(tensor, 1 / rest))) if rest > 1 / n else 1.0
    boundary = float(np.quantile(losses, 1 - 1 / gamma))
    error = gamma * float(np.maximum(losses - boundary, 0.0).std()) / n**0.5
    return Estimate(value, -np.inf, min(max(high, value), 1.0), error)
