"""Certificates: what no reweighting within a KL radius can exceed (the paper's value-level bound).

For every density a with KL(a) ≤ ε and every η > 0: E_a[L] ≤ (log E[e^{ηL}] + ε) / η, entropic risk plus ε/η.
Minimised over η this is exactly the largest E_a[L] over all reweightings of rows, labels included, so that it
also covers those of configurations. Three losses say something about the ECE under a, Σ_b |E_a[D 1_b]|:

- the squared residual D² (the paper's): ECE_a ≤ E_a|D| ≤ √E_a[D²];
- the cross-entropy, which is never below D²: again the root. It has no bound, so neither has its population;
- the signed residual s_b D, for the worst signs s of the bins: ECE_a = max over s of E_a[s_b D], no root.

What a certificate cannot know is m(S): if every configuration came true always or never, E|m − f| would be
E|D|, and rows that are seen once cannot tell. A calibrated mixture is therefore certified for more than zero.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.sections.fragility import RADII
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.statistics.tilting import tilt
from calmoe.defaults import BINS, LEVEL
from calmoe.objectives import cvar

ETAS = np.geomspace(0.1, 60.0, 20)  # where E[e^{ηL}] is bounded for the population; and its limit, η = 0
ENOUGH = 100  # effective rows below which a sample's entropic risk rests on a handful of rows
SOME = 200_000  # rows that stand for all where only a comparison is drawn


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """One loss, radius by radius.

    risk: of E_a[L]; value, the largest over reweightings of these rows; high, an upper bound of the largest
        over reweightings of the population, infinite where nothing bounds the loss. The upper bounds of all
        radii hold together. standard_error: of the value, by the delta method.
    ece: what this says about the ECE under a.
    eta: where the sample's bound is least; 0 at radius 0, infinite where one value takes all the weight.
    effective: Kish's effective rows under the worst reweighting of the sample.
    vacuous: the population's ECE bound is not below `Certificates.label_free`, which needs no label.
    """

    loss: str
    radii: np.ndarray  # [R]
    risk: tuple[Estimate, ...]
    ece: tuple[Estimate, ...]
    eta: np.ndarray  # [R]
    effective: np.ndarray  # [R]
    vacuous: np.ndarray  # [R]

    @property
    def handful(self) -> np.ndarray:
        """Where fewer than 100 effective rows, or an infinite loss, carry the sample's value. [R]"""
        return (self.effective < ENOUGH) | np.isinf([point.value for point in self.risk])


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """What holds for every shift within the radius, at the audit's level for each certificate alone.

    tail: CVaR, the largest E_a[D²] over densities a ≤ Γ = e^ε; never above `squared`, as such an a has
        KL(a) ≤ log Γ (the paper's bridge: CVaR ≤ ρ_η + log Γ / η). high: by the Dvoretzky-Kiefer-Wolfowitz
        band, all Γ together.
    label_free: the largest E_a[max(f, 1 − f)], on these rows: no labels could give a larger ECE.
    calibrated: what `signed` would read on these rows if m(S) = f everywhere.
    """

    signed: Certificate
    squared: Certificate
    cross_entropy: Certificate | None
    tail: tuple[Estimate, ...]
    label_free: np.ndarray  # [R]
    calibrated: np.ndarray  # [R]

    @property
    def all(self) -> tuple[Certificate, ...]:
        return tuple(c for c in (self.signed, self.squared, self.cross_entropy) if c is not None)


def certificates(
    configurations: Configurations,
    cross_entropy: np.ndarray | None = None,
    *,
    radii: tuple[float, ...] = RADII,
    bins: int = BINS,
    level: float = LEVEL,
) -> Certificates:
    """Certify; cross_entropy [N] is the mixture's −log f_y, left out where not given.

    The upper bounds take no asymptotics. For one η, Maurer and Pontil's empirical Bernstein bound holds for
    the mean of e^{ηL}, a bounded variable, with probability 1 − δ; for 21 η together with δ = (1 − level)/21;
    where it holds for these, it holds for every ε at once, whichever η the data then make the least. The
    worst signs of the population are not random, so that they need no union over sign patterns.

    >>> from calmoe.worlds.binary import cancelling
    >>> world = cancelling(seed=0)
    >>> found = certificates(Configurations.of(world.sample(4000, seed=0)), radii=(0.0, 0.1))
    >>> bool(world.fragility(np.array([0.1]))[0] < found.signed.ece[1].high < found.squared.ece[1].high)
    True
    """
    residual, index = configurations.residual, configurations.bins(bins)
    confidence, squares, one = configurations.confidence, residual**2, np.zeros(len(configurations), int)
    free = np.maximum(confidence, 1 - confidence)
    label_free = np.array([_worst(free, radius).value for radius in radii])
    some = slice(None, None, -(-len(confidence) // SOME))
    outcomes = np.concatenate([1 - confidence[some], -confidence[some]])  # if m = f: two of them a row
    chances = np.concatenate([confidence[some], 1 - confidence[some]])
    twice = np.concatenate([index[some]] * 2)

    def certificate(loss: str, found: list[Worst], upper: np.ndarray, root: bool = True) -> Certificate:
        risk = tuple(
            Estimate(worst.value, -np.inf, max(float(high), worst.value), worst.standard_error)
            for worst, high in zip(found, upper, strict=True)
        )
        ece = tuple(map(_root, risk)) if root else risk
        return Certificate(
            loss=loss,
            radii=np.array(radii),
            risk=risk,
            ece=ece,
            eta=np.array([worst.eta for worst in found]),
            effective=np.array([worst.effective for worst in found]),
            vacuous=np.array([point.high for point in ece]) >= label_free,
        )

    return Certificates(
        signed=certificate(
            "signed residual",
            [_worst_signed(residual, index, bins, radius) for radius in radii],
            _upper([residual, -residual], index, bins, (-1.0, 1.0), radii, level),
            root=False,
        ),
        squared=certificate(
            "squared residual",
            [_worst(squares, radius) for radius in radii],
            _upper([squares], one, 1, (0.0, 1.0), radii, level),
        ),
        cross_entropy=None
        if cross_entropy is None
        else certificate(
            "cross-entropy",
            [_worst(cross_entropy, radius) for radius in radii],
            np.full(len(radii), np.inf),
        ),
        tail=tuple(_tail(squares, float(np.exp(radius)), level) for radius in radii),
        label_free=label_free,
        calibrated=np.array(
            [_worst_signed(outcomes, twice, bins, r, chances / chances.sum()).value for r in radii]
        ),
    )


def _root(point: Estimate) -> Estimate:
    value = point.value**0.5
    return Estimate(value, -np.inf, point.high**0.5, point.standard_error / (2 * max(value, 1e-12)))


# --- these rows ---------------------------------------------------------------------------------------------


class Worst(NamedTuple):
    """sup of E_a[L] over KL(a) ≤ ε, its standard error, the dual's η, Kish's effective rows."""

    value: float
    standard_error: float
    eta: float
    effective: float


def _worst(losses: np.ndarray, epsilon: float, mass: np.ndarray | None = None) -> Worst:
    """The primal: the exponential tilt with KL = ε. mass [N] sums to 1; equal where not given."""
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


def _worst_signed(
    residual: np.ndarray, index: np.ndarray, bins: int, epsilon: float, mass: np.ndarray | None = None
) -> Worst:
    """`_worst` of s_b D, for the signs that are worst at the very η that is least for them.

    Such a pair is a saddle point, and the value the largest ECE over reweightings of the rows. Where signs
    and η chase each other, the value is the least over η of the dual with its worst signs: no less than that.
    """
    weight = np.full(len(residual), 1 / len(residual)) if mass is None else mass
    signs = np.where(np.bincount(index, weight * residual, minlength=bins) >= 0, 1.0, -1.0)

    def tilted(eta: float) -> np.ndarray:  # [2, B] E[e^{±ηD} 1_b]
        return np.stack(
            [np.bincount(index, weight * np.exp(sign * eta * residual), minlength=bins) for sign in (1, -1)]
        )

    tried = []
    for _ in range(5):
        found = _worst(signs[index] * residual, epsilon, mass)
        if not 0 < found.eta < np.inf:
            return found
        up, down = tilted(found.eta)
        worse = np.where(up >= down, 1.0, -1.0)
        if (worse == signs)[up + down > 0].all():
            return found
        signs = worse
        tried.append(np.log(found.eta))

    def dual(log_eta: float) -> float:
        eta = float(np.exp(log_eta))
        return float((np.log(tilted(eta).max(axis=0).sum()) + epsilon) / eta)

    between = minimize_scalar(dual, bounds=(min(tried) - 0.1, max(tried) + 0.1), method="bounded")
    return found._replace(value=float(between.fun), eta=float(np.exp(between.x)))


# --- the population -----------------------------------------------------------------------------------------


def _upper(
    choices: list[np.ndarray],
    index: np.ndarray,
    bins: int,
    ends: tuple[float, float],
    radii: tuple[float, ...],
    level: float,
) -> np.ndarray:
    """An upper bound of inf over η of (log E[e^{ηL}] + ε)/η, for all radii together. [R]

    L is in each bin that of `choices` [N] which is worse there for the population; all lie between `ends`.
    """
    log_term = float(np.log(2 * (len(ETAS) + 1) / (1 - level)))
    low, high = ends
    n, least = len(index), np.full(len(radii), np.inf)
    for eta in (0.0, *ETAS):
        if eta == 0.0:
            scaled = [(choice - low) / (high - low) for choice in choices]
            mean = low + (high - low) * _bernstein(scaled, index, bins, log_term)
            least[np.array(radii) == 0] = mean
            continue
        bottom, top = np.exp(eta * low), np.exp(eta * high)
        scaled = [(np.exp(eta * choice) - bottom) / (top - bottom) for choice in choices]
        moment = bottom + (top - bottom) * min(_bernstein(scaled, index, bins, log_term), 1.0)
        least = np.minimum(least, (np.log(moment) + np.array(radii)) / eta)
    return np.minimum(least, high) if n > 1 else np.full(len(radii), high)


def _bernstein(choices: list[np.ndarray], index: np.ndarray, bins: int, log_term: float) -> float:
    """max over choices of mean + √(2 V log(2/δ)/n) + 7 log(2/δ) / (3(n − 1)), for values in [0, 1].

    V is their variance. As √V ≤ (V/λ + λ)/2 and V ≤ the mean square about any κ, choices may be made bin by
    bin.
    """
    n = len(index)
    if n < 2:
        return 1.0

    def worst(values: list[np.ndarray]) -> tuple[float, np.ndarray]:
        sums = np.stack([np.bincount(index, value, minlength=bins) for value in values])
        return float(sums.max(axis=0).sum()) / n, sums.argmax(axis=0)

    mean, chosen = worst(choices)
    taken = choices[0] if len(choices) == 1 else np.choose(chosen[index], choices)
    spread = max(float(taken.std()), 1e-9)
    rate = (2 * log_term / n) ** 0.5
    curved = rate / (2 * spread) * n / (n - 1)
    bound, _ = worst([value + curved * (value - mean) ** 2 for value in choices])
    return bound + rate * spread / 2 + 7 * log_term / (3 * (n - 1))


def _tail(losses: np.ndarray, gamma: float, level: float) -> Estimate:
    """CVaR of losses in [0, 1]; the upper end moves as much mass to 1 as the band F ≥ F_n − c allows."""
    tensor, n = torch.as_tensor(losses), len(losses)
    band = float(np.sqrt(np.log(1 / (1 - level)) / (2 * n)))
    value, rest = float(cvar(tensor, gamma)), 1 / gamma - band
    high = gamma * (band + rest * float(cvar(tensor, 1 / rest))) if rest > 1 / n else 1.0
    boundary = float(np.quantile(losses, 1 - 1 / gamma))
    error = gamma * float(np.maximum(losses - boundary, 0.0).std()) / n**0.5
    return Estimate(value, -np.inf, min(max(high, value), 1.0), error)
