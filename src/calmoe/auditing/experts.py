"""The aggregate and its experts: each by its own calibration, and the balance that ties them together.

Expert k is judged on its own predicted class, on its routing-weighted view dQ_k ∝ r_k dP and on the rows
where it leads. That all experts are calibrated on their views gives the mixture the marginal balance
Σ_k E[r_k (Y − f_k)] = E[Y − f] = 0 and no more (section 4.1).
"""

from dataclasses import dataclass

import numpy as np
import torch

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.estimates import NONE, Estimate, binned_gap, mean
from calmoe.metrics.binned import mass_bins, width_bins

FEWEST = 30  # effective rows below which an expert's calibration is not told


@dataclass(frozen=True, kw_only=True)
class Expert:
    """One expert; intervals hold for all experts together (level 1 − (1 − level)/K each).

    view: the ECE Σ_b |E[r_k D_k 1_b]| / E[r_k] of the expert's own predicted class; region: the ECE where it
    leads; both of the population at equal-width bins, NaN below 30 effective rows. balance: E[r_k (Y − f_k)]
    for the mixture's predicted class.
    """

    share: Estimate  # E[r_k]
    leads: float  # the share of rows where its routing weight is the largest
    view: Estimate
    region: Estimate
    balance: Estimate


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """The mixture and its experts.

    ece: Σ_b |E[D 1_b]| of the population at equal-width bins; adaptive_ece: at bins of equal mass, whose
    edges count as fixed; plain_ece: the usual estimate, biased upward. balance: E[Y − f].
    """

    ece: Estimate
    adaptive_ece: Estimate
    plain_ece: float
    accuracy: Estimate
    balance: Estimate
    experts: tuple[Expert, ...]

    @property
    def experts_ece(self) -> float:
        """The experts' ECE on their views, averaged by their shares; NaN if none can be told."""
        told = [expert for expert in self.experts if not np.isnan(expert.view.value)]
        shares = np.array([expert.share.value for expert in told])
        return float(shares @ [expert.view.value for expert in told] / shares.sum()) if told else float("nan")

    @property
    def worse_than_experts(self) -> bool:
        """The mixture's ECE lies above that of every expert on its view, by their intervals."""
        highs = [expert.view.high for expert in self.experts if not np.isnan(expert.view.high)]
        return len(self.experts) > 1 and bool(highs) and self.ece.low > max(highs)

    @property
    def calibrated_unlike_experts(self) -> bool:
        """The mixture may be calibrated (its interval holds 0), while some expert is not on its view."""
        return len(self.experts) > 1 and self.ece.low == 0 and any(e.view.low > 0 for e in self.experts)


def aggregate(configurations: Configurations, *, bins: int = 15, level: float = 0.95) -> Aggregate:
    """Judge the mixture and each expert."""
    residual, n = configurations.residual, len(configurations)
    confidence = torch.as_tensor(configurations.confidence)
    index, mass = configurations.bins(bins), mass_bins(confidence, torch.ones(n, dtype=torch.float64), bins)
    each = 1 - (1 - level) / configurations.num_experts
    assert configurations.outcome is not None
    return Aggregate(
        ece=binned_gap(residual, index, bins, level=level),
        adaptive_ece=binned_gap(residual, mass.numpy(), bins, level=level),
        plain_ece=float(np.abs(np.bincount(index, residual, minlength=bins)).sum() / n),
        accuracy=mean(configurations.outcome, level),
        balance=mean(residual, level),
        experts=tuple(_expert(configurations, k, bins, each) for k in range(configurations.num_experts)),
    )


def _expert(configurations: Configurations, k: int, bins: int, level: float) -> Expert:
    assert configurations.outcome is not None
    assert configurations.own_outcome is not None
    routing = configurations.routing[:, k].astype(np.float64)
    own = configurations.own_outcome[:, k] - configurations.own_confidence[:, k].astype(np.float64)
    index = width_bins(torch.as_tensor(configurations.own_confidence[:, k]), bins).numpy()
    leads = configurations.leading == k
    return Expert(
        share=mean(routing, level),
        leads=float(leads.mean()),
        view=_on(routing, own, index, bins, level),
        region=_on(leads.astype(np.float64), own, index, bins, level),
        balance=mean(routing * (configurations.outcome - configurations.experts[:, k]), level),
    )


def _on(weights: np.ndarray, residual: np.ndarray, index: np.ndarray, bins: int, level: float) -> Estimate:
    total = weights.sum()
    if total <= 0 or total**2 / (weights**2).sum() < FEWEST:
        return NONE
    return binned_gap(residual, index, bins, weights, level)
