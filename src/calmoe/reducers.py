"""The losses of a batch as one number, and the adversary behind it.

Given a process group, a reducer sees the batches of all ranks as one: it returns the global value on every
rank, and the gradients that DistributedDataParallel then averages are exactly the single-process ones.

η may be a tensor without dimensions, so that a compiled or captured step can change it between two calls; its
value is then not looked at, and a negative one counts as zero.
"""

import math
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from calmoe.errors import InputError

Tilt: TypeAlias = float | Tensor
Group = Any  # a torch.distributed process group; the class is missing from builds without distributed


def mean(losses: Tensor, group: Group = None) -> Tensor:
    """(1/n) Σ L_i.

    >>> mean(torch.tensor([1.0, 3.0]))
    tensor(2.)
    """
    return _total(losses, group) / _count(losses, group)


def tilted_mean(losses: Tensor, eta: Tilt, where: Tensor | None = None, group: Group = None) -> Tensor:
    """Expected loss under the entropy-balanced adversary: Σ q_i L_i with q = softmax(η L).

    Gradients flow through q as well, so training on this is not training on the entropic risk.
    `where` [N] restricts the adversary to a subset A (static shapes); an empty A gives the plain mean of the
    batch, as in the authors' code.

    >>> tilted_mean(torch.tensor([1.0, 3.0]), eta=0.0)
    tensor(2.)
    >>> tilted_mean(torch.tensor([1.0, 3.0]), eta=2.0)
    tensor(2.9640)
    """
    if where is None and _is_zero(eta):
        return mean(losses, group)
    tilts, top = _tilts(losses, eta, where, group)
    # below the largest loss, so that large losses do not swallow their differences
    normaliser, below = _total(torch.stack([tilts, tilts * (losses - top)]), group)
    return top + below / normaliser


def entropic_risk(losses: Tensor, eta: Tilt, group: Group = None) -> Tensor:
    """ρ_η = (1/η) log (1/n) Σ exp(η L_i); its gradient is Σ q_i ∇L_i. At η = 0 it is the mean.

    >>> entropic_risk(torch.tensor([1.0, 3.0]), eta=2.0)
    tensor(2.6625)
    """
    check_tilt(eta)
    if _is_zero(eta):
        return mean(losses, group)
    if isinstance(eta, Tensor):
        eta = eta.double().clamp(min=1e-30)  # so small that it is the mean
    wide = losses.double()  # the sum cancels against 1 where few losses carry it
    top = _greatest(wide, group)
    # expm1 and log1p keep full precision as η -> 0, and nothing overflows below the largest loss
    excess = _total(torch.expm1(eta * (wide - top)), group) / _count(losses, group)
    return (top + torch.log1p(excess) / eta).to(losses.dtype)


def cvar(losses: Tensor, gamma: float, group: Group = None) -> Tensor:
    """Mean of the worst n/Γ losses: sup of Σ w_i L_i over densities w_i ≤ Γ/n that sum to one.

    The example at the boundary carries the fractional weight that makes this exactly the CVaR; examples tied
    there share it.

    >>> cvar(torch.tensor([1.0, 2.0, 3.0, 4.0]), gamma=2.0)
    tensor(3.5000)
    """
    check_gamma(gamma)
    everywhere = losses.detach() if group is None else _gather(losses, group)
    n = _count(losses, group)
    boundary = everywhere.sort(descending=True).values[math.ceil(n / gamma) - 1]
    above = (everywhere > boundary).sum(dtype=losses.dtype)
    shared = (1 - above * gamma / n) / (everywhere == boundary).sum(dtype=losses.dtype)
    weights = torch.where(losses > boundary, gamma / n, torch.where(losses == boundary, shared, 0.0))
    return _total(weights * losses, group)


# --- the adversary ------------------------------------------------------------------------------------------


def tilt_weights(losses: Tensor, eta: Tilt, where: Tensor | None = None, group: Group = None) -> Tensor:
    """q_i = exp(η L_i) / Σ_j exp(η L_j): the least-distorted reweighting that raises the loss. [N]

    With a group, these are this rank's weights among all ranks', as numbers: without a gradient.

    >>> tilt_weights(torch.tensor([0.0, 0.0, 1.0]), eta=1.0)
    tensor([0.2119, 0.2119, 0.5761])
    """
    tilts, _ = _tilts(losses if group is None else losses.detach(), eta, where, group)
    return tilts / _total(tilts, group)


def solve_tilt(losses: Tensor, target: float) -> float:
    """The η with Σ q_i L_i = target: entropy balancing, min KL(q‖u) subject to the adversarial loss level.

    The tilted mean rises in η with slope Var_q(L), so a bracketed Newton iteration finds it.

    >>> round(solve_tilt(torch.tensor([1.0, 3.0]), target=2.964), 2)
    2.0
    """
    losses = losses.detach().double()
    low_end, high_end = float(losses.mean()), float(losses.max())
    if math.isclose(target, low_end, rel_tol=1e-6):  # a mean taken in float32 is the mean
        target = max(target, low_end)
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


# --- sums over the batch, on one process or many ------------------------------------------------------------


def _tilts(losses: Tensor, eta: Tilt, where: Tensor | None, group: Group) -> tuple[Tensor, Tensor]:
    """exp(η (L_i − top)), zero outside `where` (all ones if it is empty on every rank), and top = max L."""
    check_tilt(eta)
    if isinstance(eta, Tensor):
        eta = eta.clamp(min=0)
    if where is None:
        top = _greatest(losses, group)
        return torch.exp(eta * (losses - top)), top
    top = _greatest(losses.masked_fill(~where, -torch.inf), group)
    empty = top == -torch.inf
    top = top.masked_fill(empty, 0.0)
    exponents = eta * (losses - top)
    return torch.exp(exponents.masked_fill(~where & ~empty, -torch.inf).masked_fill(empty, 0.0)), top


def check_tilt(eta: Tilt) -> None:
    """Refuse what is no tilt; of a tensor only the shape, so that a GPU need not wait."""
    if isinstance(eta, Tensor):
        if eta.ndim:
            raise InputError(f"eta must be one number, not a tensor of shape {list(eta.shape)}")
        return
    if isinstance(eta, str) or not (eta >= 0 and math.isfinite(eta)):
        raise InputError(f"eta must be a finite number ≥ 0, not {eta!r}")


def _is_zero(eta: Tilt) -> bool:
    return not isinstance(eta, Tensor) and eta == 0


def check_gamma(gamma: float) -> None:
    if isinstance(gamma, str) or not (gamma >= 1 and math.isfinite(gamma)):
        raise InputError(f"gamma must be a finite number ≥ 1 (a bound on the density ratio), not {gamma!r}")


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
    count = len(losses)
    if group is not None:
        count = int(_total(torch.ones_like(losses, dtype=torch.int64), group))
    if count == 0:
        raise InputError("an empty batch has no loss: give at least one example")
    return count


def _greatest(losses: Tensor, group: Group) -> Tensor:
    """The largest loss, as a number; −inf on a rank without examples."""
    top = losses.detach().amax() if len(losses) else losses.detach().new_full((), -torch.inf)
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
