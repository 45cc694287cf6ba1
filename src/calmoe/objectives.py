"""What to minimise: a proper loss per example, a reducer over the batch, and the paper's objectives.

Three steps, each usable alone:

    losses = cross_entropy(output, labels)     # [N]
    value = tilted_mean(losses, eta=2.0)       # scalar
    value = RobustMoE(eta=2.0)(output, labels) # both

Given a process group, a reducer sees the batches of all ranks as one: it returns the global value on every
rank, and the gradients that DistributedDataParallel then averages are exactly the single-process ones.
Over micro-batches the same holds through `Objective.gradient_weights`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from calmoe.errors import InputError
from calmoe.mixture import MixtureOutput

LOG_ZERO = -1e6
"""A label of probability zero costs −LOG_ZERO nats and has gradient zero: finite, and above any real loss."""

Loss = Callable[[MixtureOutput, Tensor], Tensor]
Group = Any  # a torch.distributed process group; the class is missing from builds without distributed


# --- proper losses, one value per example -------------------------------------------------------------------


def cross_entropy(output: MixtureOutput, labels: Tensor) -> Tensor:
    """L_i = −log f(x_i)_{y_i}. [N]

    >>> from calmoe.mixture import combine
    >>> output = combine(torch.zeros(1, 1), torch.tensor([[[0.25, 0.75]]]).log())
    >>> cross_entropy(output, torch.tensor([1]))
    tensor([0.2877])
    """
    return -output.log_probs.gather(1, labels.unsqueeze(1)).squeeze(1).clamp(min=LOG_ZERO)


def brier(output: MixtureOutput, labels: Tensor) -> Tensor:
    """L_i = Σ_c (f(x_i)_c − 1{y_i = c})², between 0 and 2 and never above the cross-entropy. [N]

    >>> from calmoe.mixture import combine
    >>> output = combine(torch.zeros(1, 1), torch.tensor([[[0.25, 0.75]]]).log())
    >>> brier(output, torch.tensor([1]))
    tensor([0.1250])
    """
    probs = output.probs
    of_label = probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    return probs.square().sum(dim=1) - 2 * of_label + 1


# --- reducers: losses [N] -> scalar -------------------------------------------------------------------------


def mean(losses: Tensor, group: Group = None) -> Tensor:
    """(1/n) Σ L_i.

    >>> mean(torch.tensor([1.0, 3.0]))
    tensor(2.)
    """
    return _total(losses, group) / _count(losses, group)


def tilted_mean(losses: Tensor, eta: float, where: Tensor | None = None, group: Group = None) -> Tensor:
    """Expected loss under the entropy-balanced adversary: Σ q_i L_i with q = softmax(η L).

    Gradients flow through q as well, so training on this is not training on the entropic risk.
    `where` [N] restricts the adversary to a subset A (static shapes); an empty A gives the plain mean of the
    batch, as in the authors' code.

    >>> tilted_mean(torch.tensor([1.0, 3.0]), eta=0.0)
    tensor(2.)
    >>> tilted_mean(torch.tensor([1.0, 3.0]), eta=2.0)
    tensor(2.9640)
    """
    if eta == 0 and where is None:
        return mean(losses, group)
    tilts = _tilts(losses, eta, where, group)
    normaliser, weighted = _total(torch.stack([tilts, tilts * losses]), group)
    return weighted / normaliser


def entropic_risk(losses: Tensor, eta: float, group: Group = None) -> Tensor:
    """ρ_η = (1/η) log (1/n) Σ exp(η L_i); its gradient is Σ q_i ∇L_i. At η = 0 it is the mean.

    >>> entropic_risk(torch.tensor([1.0, 3.0]), eta=2.0)
    tensor(2.6625)
    """
    _check_tilt(eta)
    if eta == 0:
        return mean(losses, group)
    top = _greatest(losses, group)
    # expm1 and log1p keep full precision as η -> 0, and nothing overflows below the largest loss
    excess = _total(torch.expm1(eta * (losses - top)), group) / _count(losses, group)
    return top + torch.log1p(excess) / eta


def cvar(losses: Tensor, gamma: float, group: Group = None) -> Tensor:
    """Mean of the worst n/Γ losses: sup of Σ w_i L_i over densities w_i ≤ Γ/n that sum to one.

    The example at the boundary carries the fractional weight that makes this exactly the CVaR; examples tied
    there share it.

    >>> cvar(torch.tensor([1.0, 2.0, 3.0, 4.0]), gamma=2.0)
    tensor(3.5000)
    """
    if not (gamma >= 1 and math.isfinite(gamma)):
        raise InputError(f"gamma must be a finite number ≥ 1 (a bound on the density ratio), not {gamma}")
    everywhere = losses.detach() if group is None else _gather(losses, group)
    n = _count(losses, group)
    boundary = everywhere.sort(descending=True).values[math.ceil(n / gamma) - 1]
    above = (everywhere > boundary).sum(dtype=losses.dtype)
    shared = (1 - above * gamma / n) / (everywhere == boundary).sum(dtype=losses.dtype)
    weights = torch.where(losses > boundary, gamma / n, torch.where(losses == boundary, shared, 0.0))
    return _total(weights * losses, group)


# --- the adversary ------------------------------------------------------------------------------------------


def tilt_weights(losses: Tensor, eta: float, where: Tensor | None = None, group: Group = None) -> Tensor:
    """q_i = exp(η L_i) / Σ_j exp(η L_j): the least-distorted reweighting that raises the loss. [N]

    >>> tilt_weights(torch.tensor([0.0, 0.0, 1.0]), eta=1.0)
    tensor([0.2119, 0.2119, 0.5761])
    """
    tilts = _tilts(losses, eta, where, group)
    return tilts / _total(tilts, group)


def solve_tilt(losses: Tensor, target: float) -> float:
    """The η with Σ q_i L_i = target: entropy balancing, min KL(q‖u) subject to the adversarial loss level.

    The tilted mean rises in η with slope Var_q(L), so a bracketed Newton iteration finds it.

    >>> round(solve_tilt(torch.tensor([1.0, 3.0]), target=2.964), 2)
    2.0
    """
    losses = losses.detach().double()
    low_end, high_end = float(losses.mean()), float(losses.max())
    if target == low_end:
        return 0.0
    if not low_end <= target < high_end:
        raise InputError(
            f"no tilt reaches the loss level {target}: it must lie between the mean {low_end} and below "
            f"the largest loss {high_end}"
        )
    spread = high_end - low_end
    low, high = 0.0, 1.0 / spread
    while float(tilted_mean(losses, high)) < target:
        low, high = high, 2 * high
    eta = high
    for _ in range(200):
        weights = tilt_weights(losses, eta)
        level = float(weights @ losses)
        if level < target:
            low = eta
        else:
            high = eta
        slope = float(weights @ (losses - level).square())
        step = (target - level) / slope if slope > 0 else math.inf
        previous, eta = eta, eta + step if low < eta + step < high else (low + high) / 2
        if abs(eta - previous) <= 1e-14 * eta or high - low <= 1e-15 * high:
            break
    return eta


def density_ratio_bound(weights: Tensor) -> Tensor:
    """Γ_eff = n / perplexity(q) = exp KL(q‖u): the density-ratio bound of a CVaR adversary of equal support.

    >>> density_ratio_bound(torch.tensor([0.5, 0.5, 0.0, 0.0]))
    tensor(2.)
    """
    return len(weights) * torch.exp(-torch.special.entr(weights).sum())


def share_of_negative_weights(losses: Tensor, eta: float) -> Tensor:
    """Share of examples that the tilted mean pushes towards *lower* confidence: 1 + η(L_i − L̄_q) < 0.

    ∇ Σ q_i L_i = Σ q_i (1 + η(L_i − L̄_q)) ∇L_i, so an example more than 1/η below the tilted mean is
    trained uphill. This is how the objective spends its easy examples.

    >>> share_of_negative_weights(torch.tensor([0.0, 0.0, 0.0, 3.0]), eta=2.0)
    tensor(0.7500)
    """
    losses = losses.detach()
    return (1 + eta * (losses - tilted_mean(losses, eta)) < 0).to(losses.dtype).mean()


@torch.no_grad()
def routing_relevant(
    output: MixtureOutput, labels: Tensor, regret: float = 1e-6, disagreement: float = 0.01
) -> Tensor:
    """The set A: the mixture is worse than its best expert, or the routed experts disagree. Boolean [N].

    Regret is L_mix − min_k L_k; disagreement is Σ_k r_k ‖f_k − f‖², the routing-weighted variance of the
    experts' probability vectors.

    >>> from calmoe.mixture import combine
    >>> experts = torch.tensor([[[0.9, 0.1], [0.9, 0.1]], [[0.9, 0.1], [0.2, 0.8]]])
    >>> output = combine(torch.full((2, 2), 0.5).log(), experts.log())
    >>> routing_relevant(output, torch.tensor([0, 0]))
    tensor([False,  True])
    """
    picked = labels.view(-1, 1, 1).expand(-1, output.expert_log_probs.shape[1], 1)
    best = output.expert_log_probs.gather(2, picked).squeeze(2).amax(dim=1)
    mixture = output.log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    # Σ r_k ‖f_k − f‖² = Σ r_k ‖f_k‖² − ‖f‖²
    spread = (output.routing * output.expert_probs.square().sum(dim=2)).sum(dim=1)
    return (best - mixture > regret) | (spread - output.probs.square().sum(dim=1) > disagreement)


# --- objectives: (output, labels) -> scalar -----------------------------------------------------------------


@dataclass(frozen=True)
class Objective(ABC):
    """A proper loss and how its values over the batch become one number."""

    _: KW_ONLY
    loss: Loss = cross_entropy

    def __call__(self, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        return self.reduce(self.loss(output, labels), output, labels, group)

    @abstractmethod
    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        """The losses of the batch as one number."""

    def gradient_weights(self, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        """∂ objective / ∂ L_i at the whole batch: what makes micro-batches exact. [N]

        First collect the outputs of all micro-batches without gradient, then give each its share:

            weights = objective.gradient_weights(MixtureOutput.cat(outputs), labels).split(size)
            for x, y, w in zip(micro_x, micro_y, weights):
                (w * objective.loss(model(x), y)).sum().backward()

        The sum of these gradients is the gradient of the objective on the whole batch. Dropout must draw the
        same masks in both passes.
        """
        with torch.enable_grad():
            losses = self.loss(output, labels).detach().requires_grad_()
            return torch.autograd.grad(self.reduce(losses, output.detach(), labels, group), losses)[0]


@dataclass(frozen=True)
class ERM(Objective):
    """The mean loss."""

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        return mean(losses, group)


@dataclass(frozen=True)
class RobustMoE(Objective):
    """The paper's Robust MoE: the tilted mean of the whole batch."""

    eta: float = 2.0

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        return tilted_mean(losses, self.eta, group=group)


@dataclass(frozen=True)
class RobustFiltered(Objective):
    """The paper's Robust Filtered: the mean, plus the tilted mean over the routing-relevant examples.

    >>> from calmoe import MixtureHead
    >>> output = MixtureHead(16, num_classes=3)(torch.randn(8, 16))
    >>> RobustFiltered(eta=2.0)(output, torch.randint(3, (8,))).backward()
    """

    eta: float = 2.0
    regret: float = 1e-6
    disagreement: float = 0.01

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        relevant = routing_relevant(output, labels, self.regret, self.disagreement)
        return mean(losses, group) + tilted_mean(losses, self.eta, where=relevant, group=group)


@dataclass(frozen=True)
class EntropicRisk(Objective):
    """The entropic risk: the same weights as Robust MoE, without the gradient through them."""

    eta: float = 2.0

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        return entropic_risk(losses, self.eta, group)


@dataclass(frozen=True)
class CVaR(Objective):
    """The mean of the worst 1/gamma of the batch."""

    gamma: float = 2.0

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        return cvar(losses, self.gamma, group)


# --- sums over the batch, on one process or many ------------------------------------------------------------


def _tilts(losses: Tensor, eta: float, where: Tensor | None, group: Group) -> Tensor:
    """exp(η (L_i − max L)), zero outside `where`; all ones if `where` is empty on every rank."""
    _check_tilt(eta)
    if where is None:
        return torch.exp(eta * (losses - _greatest(losses, group)))
    top = _greatest(losses.masked_fill(~where, -torch.inf), group)
    empty = top == -torch.inf
    exponents = eta * (losses - top.masked_fill(empty, 0.0))
    return torch.exp(exponents.masked_fill(~where & ~empty, -torch.inf).masked_fill(empty, 0.0))


def _check_tilt(eta: float) -> None:
    if not (eta >= 0 and math.isfinite(eta)):
        raise InputError(f"eta must be a finite number ≥ 0, not {eta}")


def _total(values: Tensor, group: Group) -> Tensor:
    """Sum over the last axis and over all ranks.

    Every rank differentiates the same global value with respect to its own terms only, and DDP then divides
    by the number of ranks: hence the factor on the local gradient.
    """
    local = values.sum(dim=-1)
    if group is None:
        return local
    total = local.detach().clone()
    dist.all_reduce(total, dist.ReduceOp.SUM, group=group)
    return total + dist.get_world_size(group) * (local - local.detach())


def _count(losses: Tensor, group: Group) -> int:
    if group is None:
        return len(losses)
    return int(_total(torch.ones_like(losses, dtype=torch.int64), group))


def _greatest(losses: Tensor, group: Group) -> Tensor:
    top = losses.detach().amax()
    if group is not None:
        dist.all_reduce(top, dist.ReduceOp.MAX, group=group)
    return top


def _gather(losses: Tensor, group: Group) -> Tensor:
    """The losses of all ranks, padded with −inf where a rank has fewer."""
    size = torch.tensor(len(losses), device=losses.device)
    dist.all_reduce(size, dist.ReduceOp.MAX, group=group)
    padded = losses.new_full((int(size),), -torch.inf)
    padded[: len(losses)] = losses.detach()
    parts = [torch.empty_like(padded) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, padded, group=group)
    return torch.cat(parts)
