"""The aggregate and its experts: each by its own calibration, and the balance that ties them together.

Expert k is judged on its own predicted class, on its routing-weighted view dQ_k ∝ r_k dP and on the rows
where it leads. That all experts are calibrated on their views gives the mixture the marginal balance
Σ_k E[r_k (Y − f_k)] = E[Y − f] = 0 and no more (section 4.1).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import (
    NONE,
    Estimate,
    at_least,
    binned_gap,
    mean,
    normal,
    proportion,
    spread,
    within,
)
from calmoe.auditing.statistics.gaps import classwise, experts_gap, smooth
from calmoe.defaults import BINS, LEVEL
from calmoe.metrics.binned import mass_bins, width_bins
from calmoe.predictions import Predictions

FEWEST = 30  # effective rows below which an expert's calibration is not told


@dataclass(frozen=True, kw_only=True)
class Expert:
    """One expert; intervals hold for all experts together (level 1 − (1 − level)/K each).

    view: the ECE Σ_b |E[r_k D_k 1_b]| / E[r_k] of the expert's own predicted class; region: the ECE where it
    leads; both of the population at equal-width bins, NaN below 30 effective rows. balance: E[r_k (Y − f_k)]
    for the mixture's predicted class. excess: the mixture's ECE less the view's, a bound from below with
    both measured on the same rows; alone among these it holds for each expert by itself.
    """

    share: Estimate  # E[r_k]
    leads: Estimate  # the share of rows where its routing weight is the largest
    view: Estimate
    region: Estimate
    balance: Estimate
    excess: Estimate


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """The mixture and its experts.

    ece: Σ_b |E[D 1_b]| of the population at equal-width bins; adaptive_ece: at bins of equal mass, whose
    edges count as fixed; smooth_ece: ∫ |E[D K_σ(t, f)]| dt at the smooth ECE's own bandwidth, which counts
    as fixed; classwise_ece: the mean over classes, NaN without `predictions`. plain_ece: the usual estimate,
    biased upward, and with ece's interval, since both are meant for the same number. balance: E[Y − f].
    experts_ece: the experts' ECE on their views averaged by their shares, Σ_k Σ_b |E[r_k D_k 1_b]|.
    """

    ece: Estimate
    adaptive_ece: Estimate
    smooth_ece: Estimate
    classwise_ece: Estimate
    plain_ece: Estimate
    accuracy: Estimate
    balance: Estimate
    experts_ece: Estimate
    experts: tuple[Expert, ...]

    @property
    def worse_than_experts(self) -> bool:
        """The mixture's ECE is above that of every expert on its view, each compared on the same rows."""
        lows = [expert.excess.low for expert in self.experts if not np.isnan(expert.excess.low)]
        return len(self.experts) > 1 and bool(lows) and min(lows) > 0

    @property
    def calibrated_unlike_experts(self) -> bool:
        """The mixture may be calibrated (its interval holds 0), while some expert is not on its view."""
        return len(self.experts) > 1 and self.ece.low == 0 and any(e.view.low > 0 for e in self.experts)


def aggregate(
    configurations: Configurations,
    predictions: Predictions | None = None,
    *,
    bins: int = BINS,
    level: float = LEVEL,
) -> Aggregate:
    """Judge the mixture and each expert; `predictions`, all classes of them, for the class-wise ECE."""
    residual, n, noise = configurations.residual, len(configurations), configurations.noise
    index, mass = configurations.bins(bins), equal_masses(configurations.confidence, bins)
    each = 1 - (1 - level) / configurations.num_experts
    assert configurations.outcome is not None
    ece = binned_gap(residual, index, bins, level=level, noise=noise)
    plain = _Plain.of(residual, index, bins)
    return Aggregate(
        ece=ece,
        adaptive_ece=binned_gap(residual, mass, bins, level=level, noise=noise),
        smooth_ece=smooth(configurations, level=level),
        classwise_ece=NONE if predictions is None else classwise(predictions, bins=bins, level=level),
        plain_ece=ece._replace(value=plain.value),
        accuracy=proportion(float(configurations.outcome.mean()), n, level),
        balance=within(normal(float(residual.mean()), spread(residual, noise), level), -1.0, 1.0),
        experts_ece=experts_gap(configurations, bins=bins, level=level),
        experts=tuple(
            _expert(configurations, k, bins, each, (ece, plain, level))
            for k in range(configurations.num_experts)
        ),
    )


def equal_masses(confidence: np.ndarray, bins: int) -> np.ndarray:
    """The bin of equal mass of each confidence; no edge falls between values that rounding sets apart. [N]"""
    rounded = torch.as_tensor(confidence.round(9))
    return mass_bins(rounded, torch.ones_like(rounded), bins).numpy()


def _expert(
    configurations: Configurations,
    k: int,
    bins: int,
    level: float,
    mixture: tuple[Estimate, "_Plain", float],
) -> Expert:
    assert configurations.outcome is not None
    assert configurations.own_outcome is not None
    routing = configurations.routing[:, k].astype(np.float64)
    confidence = configurations.own_confidence[:, k].astype(np.float64)
    own, noise = configurations.own_outcome[:, k] - confidence, confidence * (1 - confidence)
    index = width_bins(torch.as_tensor(configurations.own_confidence[:, k]), bins).numpy()
    leads = (configurations.leading == k).astype(np.float64)

    def on(weights: np.ndarray) -> Estimate:
        total = weights.sum()
        if total <= 0 or total**2 / (weights**2).sum() < FEWEST:
            return NONE
        return binned_gap(own, index, bins, weights, level, noise=noise)

    view, says = on(routing), configurations.experts[:, k].astype(np.float64)
    balance = routing * (configurations.outcome - says)
    error = spread(balance, routing**2 * says * (1 - says))
    return Expert(
        share=within(mean(routing, level), 0.0, 1.0),
        leads=proportion(float(leads.mean()), len(leads), level),
        view=view,
        region=on(leads),
        balance=within(normal(float(balance.mean()), error, level), -1.0, 1.0),
        excess=_excess(*mixture, view, _Plain.of(own, index, bins, routing)),
    )


class _Plain(NamedTuple):
    """The plain ECE T = Σ_b |gap_b|, what each row adds to it, and how much too high it may be on average."""

    value: float
    influence: np.ndarray  # [N], of mean 0
    bias: float

    @classmethod
    def of(
        cls, residual: np.ndarray, index: np.ndarray, bins: int, weights: np.ndarray | None = None
    ) -> "_Plain":
        weight = np.ones(len(residual)) if weights is None else weights / max(weights.mean(), 1e-12)
        pushed = weight * residual
        gaps, squares = (np.bincount(index, values, minlength=bins) for values in (pushed, pushed**2))
        signed = np.where(gaps < 0, -1.0, 1.0)[index] * pushed
        value, n = float(np.abs(gaps).sum()) / len(residual), len(residual)
        # E|μ + σZ| − |μ| is largest at μ = 0: σ √(2/π)
        return cls(value, signed - weight * value, float(np.sqrt(2 / np.pi * squares).sum()) / n)


def _excess(ece: Estimate, mixture: _Plain, level: float, view: Estimate, expert: _Plain) -> Estimate:
    """ECE − ECE_k from below: T less all the bias that it can have, less T_k with the bias that it has."""
    if np.isnan(view.value):
        return NONE
    difference = mixture.influence - expert.influence
    error = float(np.sqrt((difference**2).sum())) / len(difference)
    bound = at_least(mixture.value - mixture.bias - expert.value, error, level)
    return bound._replace(value=max(ece.value - view.value, bound.low))
