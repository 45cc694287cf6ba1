"""The losses of a batch as one number, and the adversary behind it.

Given a process group, a reducer sees the batches of all ranks as one: it returns the global value on every
rank, and the gradients that DistributedDataParallel then averages are exactly the single-process ones.

η may be a tensor without dimensions, so that a compiled or captured step can change it between two calls; its
value is then not checked, and a negative one counts as zero. Losses in half precision are reduced to a value
in float32.
"""

import math
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from calmoe.arrays import as_number, widen
from calmoe.errors import InputError
from calmoe.roots import rising_root

Tilt: TypeAlias = float | Tensor
EMPTY = "an empty batch has no loss: give at least one example"
Group = Any  # a torch.distributed process group; the class is missing from builds without distributed


def mean(losses: Tensor, group: Group = None) -> Tensor:
    """(1/n) Σ L_i.

    Args:
        losses: One loss an example. [N]
        group: A process group, over whose ranks the batch is spread.

    Returns:
        A scalar.

    Example:
        >>> mean(torch.tensor([1.0, 3.0]))
        tensor(2.)
    """
    losses = _checked(losses)
    return total(losses, group) / count_of(losses, group)


def tilted_mean(losses: Tensor, eta: Tilt, where: Tensor | None = None, group: Group = None) -> Tensor:
    """Expected loss under the entropy-balanced adversary: Σ q_i L_i with q = softmax(η L).

    Gradients flow through q as well, so training on this is not training on the entropic risk.

    Args:
        losses: One loss an example. [N]
        eta: How hard the adversary leans on large losses; 0 is the mean.
        where: The rows that the adversary may weigh, boolean [N] (static shapes); an empty set gives the
            plain mean of the batch, as in the authors' code.
        group: A process group, over whose ranks the batch is spread.

    Returns:
        A scalar.

    Example:
        >>> tilted_mean(torch.tensor([1.0, 3.0]), eta=0.0)
        tensor(2.)
        >>> tilted_mean(torch.tensor([1.0, 3.0]), eta=2.0)
        tensor(2.9640)
    """
    losses, eta = _checked(losses), check_tilt(eta)
    if where is None and _is_zero(eta):
        return mean(losses, group)
    tilts, top = _tilts(losses, eta, where, group)
    # below the largest loss, so that large losses do not swallow their differences
    normaliser, below = total(torch.stack([tilts, tilts * (losses - top)]), group)
    _refuse_none(losses, normaliser)
    return top + below / normaliser


def entropic_risk(losses: Tensor, eta: Tilt, group: Group = None) -> Tensor:
    """ρ_η = (1/η) log (1/n) Σ exp(η L_i); its gradient is Σ q_i ∇L_i. At η = 0 it is the mean.

    Args:
        losses: One loss an example. [N]
        eta: How hard the adversary leans on large losses.
        group: A process group, over whose ranks the batch is spread.

    Returns:
        A scalar.

    Example:
        >>> entropic_risk(torch.tensor([1.0, 3.0]), eta=2.0)
        tensor(2.6625)
    """
    losses, eta = _checked(losses), check_tilt(eta)
    if _is_zero(eta):
        return mean(losses, group)
    wide = losses.double()  # the sum cancels against 1 where few losses carry it
    eta = _within(eta, 1e-30, torch.float64)  # so small that it is the mean
    top = _greatest(wide, group)
    # expm1 and log1p keep full precision as η -> 0, and nothing overflows below the largest loss
    excess = total(torch.expm1(eta * (wide - top)), group) / count_of(losses, group)
    return (top + torch.log1p(excess) / eta).to(losses.dtype)


def cvar(losses: Tensor, gamma: float, group: Group = None) -> Tensor:
    """Mean of the worst n/Γ losses: sup of Σ w_i L_i over densities w_i ≤ Γ/n that sum to one.

    The example at the boundary carries the fractional weight that makes this exactly the CVaR; examples tied
    there share it.

    Args:
        losses: One loss an example. [N]
        gamma: The density bound Γ ≥ 1: 1 is the mean, n the largest loss.
        group: A process group, over whose ranks the batch is spread.

    Returns:
        A scalar.

    Example:
        >>> cvar(torch.tensor([1.0, 2.0, 3.0, 4.0]), gamma=2.0)
        tensor(3.5000)
    """
    losses, n = _checked(losses), count_of(losses, group)
    gamma = min(check_gamma(gamma), n)  # all weight on one loss: no larger bound allows more
    everywhere = losses.detach() if group is None else _gather(losses, group)
    boundary = everywhere.sort(descending=True).values[math.ceil(n / gamma) - 1]
    above = (everywhere > boundary).sum(dtype=losses.dtype)
    shared = (1 - above * gamma / n) / (everywhere == boundary).sum(dtype=losses.dtype)
    weights = torch.where(losses > boundary, gamma / n, torch.where(losses == boundary, shared, 0.0))
    return total(weights * losses, group)


# --- the adversary ------------------------------------------------------------------------------------------


def tilt_weights(losses: Tensor, eta: Tilt, where: Tensor | None = None, group: Group = None) -> Tensor:
    """q_i = exp(η L_i) / Σ_j exp(η L_j): the least-distorted reweighting that raises the loss. [N]

    Args:
        losses: One loss an example. [N]
        eta: How hard the weights lean on large losses; 0 gives equal weights.
        where: The rows that take part, boolean [N]; all unless given.
        group: A process group: these are then this rank's weights among all ranks', without a gradient.

    Returns:
        Weights that sum to 1. [N]

    Example:
        >>> tilt_weights(torch.tensor([0.0, 0.0, 1.0]), eta=1.0)
        tensor([0.2119, 0.2119, 0.5761])
    """
    losses = _checked(losses)
    tilts, _ = _tilts(losses if group is None else losses.detach(), check_tilt(eta), where, group)
    normaliser = total(tilts, group)
    _refuse_none(losses, normaliser)
    return tilts / normaliser


def solve_tilt(losses: Tensor, target: float) -> float:
    """The η with Σ q_i L_i = target: entropy balancing, min KL(q‖u) subject to the adversarial loss level.

    The tilted mean rises in η with slope Var_q(L), so a bracketed Newton iteration finds it.

    Args:
        losses: One loss an example. [N]
        target: The adversarial loss to reach, between the mean and the largest loss.

    Returns:
        η.

    Example:
        >>> round(solve_tilt(torch.tensor([1.0, 3.0]), target=2.964), 2)
        2.0
    """
    losses, target = _checked(losses).detach().double(), as_number("target", target)
    count_of(losses, None)
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

    def excess_and_slope(eta: float) -> tuple[float, float]:
        weights = tilt_weights(losses, eta)
        level = float(weights @ losses)
        return level - target, float(weights @ (losses - level).square())

    return rising_root(excess_and_slope, low, high, start=high, relative=1e-14)


def density_ratio_bound(weights: Tensor) -> Tensor:
    """Γ_eff = n / perplexity(q) = exp KL(q‖u): the density-ratio bound of a CVaR adversary of equal support.

    Args:
        weights: The adversary's weights q, which sum to 1. [N]

    Returns:
        Γ_eff, between 1 and n. A scalar.

    Example:
        >>> density_ratio_bound(torch.tensor([0.5, 0.5, 0.0, 0.0]))
        tensor(2.)
    """
    weights = _checked(weights, "weights")
    return count_of(weights, None) * torch.exp(-torch.special.entr(weights).sum())


def share_of_negative_weights(losses: Tensor, eta: Tilt) -> Tensor:
    """Share of examples that the tilted mean pushes towards *lower* confidence: 1 + η(L_i − L̄_q) < 0.

    ∇ Σ q_i L_i = Σ q_i (1 + η(L_i − L̄_q)) ∇L_i, so an example more than 1/η below the tilted mean is
    trained uphill. This is how the objective spends its easy examples.

    Args:
        losses: One loss an example. [N]
        eta: As in `tilted_mean`.

    Returns:
        The share, a scalar between 0 and 1.

    Example:
        >>> share_of_negative_weights(torch.tensor([0.0, 0.0, 0.0, 3.0]), eta=2.0)
        tensor(0.7500)
    """
    losses, eta = _checked(losses).detach(), check_tilt(eta)
    slope = _within(eta, 0.0, losses.dtype)
    return (1 + slope * (losses - tilted_mean(losses, eta)) < 0).to(losses.dtype).mean()


# --- sums over the batch, on one process or many ------------------------------------------------------------


def _tilts(losses: Tensor, eta: Tilt, where: Tensor | None, group: Group) -> tuple[Tensor, Tensor]:
    """exp(η (L_i − top)), zero outside `where` (all ones if it is empty on every rank), and top = max L."""
    eta = _within(eta, 0.0, losses.dtype)
    if where is None:
        top = _greatest(losses, group)
        return torch.exp(eta * (losses - top)), top
    if not isinstance(where, Tensor) or where.dtype != torch.bool or where.shape != losses.shape:
        raise InputError(f"where must be a boolean tensor [{len(losses)}], one truth value an example")
    top = _greatest(losses.masked_fill(~where, -torch.inf), group)
    empty = top == -torch.inf
    top = top.masked_fill(empty, 0.0)
    exponents = eta * (losses - top)
    return torch.exp(exponents.masked_fill(~where & ~empty, -torch.inf).masked_fill(empty, 0.0)), top


def check_tilt(eta: Tilt) -> Tilt:
    """η as a float or a tensor; a tensor's value is not read, so that a GPU need not wait."""
    if not isinstance(eta, Tensor):
        return as_number("eta", eta, least=0)
    if eta.ndim or eta.is_complex() or eta.dtype == torch.bool:
        raise InputError(f"eta must be one number, not {eta.dtype} of shape {list(eta.shape)}")
    return eta


def _within(eta: Tilt, least: float, dtype: torch.dtype) -> Tilt:
    """η from `least` to the largest number of the type: an infinite one times a difference of 0 is NaN."""
    most = torch.finfo(dtype).max
    if isinstance(eta, Tensor):
        return eta.to(torch.promote_types(eta.dtype, dtype)).clamp(least, most)
    return min(max(eta, least), most)


def _is_zero(eta: Tilt) -> bool:
    return not isinstance(eta, Tensor) and eta == 0


def check_gamma(gamma: float) -> float:
    """Γ, a bound on a density ratio."""
    return as_number("gamma", gamma, least=1)


def _checked(losses: Tensor, name: str = "losses") -> Tensor:
    """One number an example, in float32 or wider."""
    if not isinstance(losses, Tensor) or losses.ndim != 1 or losses.is_complex():
        given = (
            f"{losses.dtype} {list(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        )
        raise InputError(f"{name} must be a tensor [N] of real numbers, one an example, not {given}")
    return widen(losses)


def total(values: Tensor, group: Group = None, dim: int = -1) -> Tensor:
    """Sum over an axis, the last if not given, and over all ranks.

    Every rank differentiates the same global value with respect to its own terms only, and DDP then divides
    by the number of ranks: hence the factor on the local gradient.
    """
    local = values.sum(dim=dim)
    if group is None:
        return local
    everywhere = local.detach().clone()
    dist.all_reduce(everywhere, dist.ReduceOp.SUM, group=group)
    return everywhere + dist.get_world_size(group) * (local - local.detach())


def count_of(values: Tensor, group: Group = None) -> int:
    """How many rows the ranks have together; a batch without any is refused."""
    count = len(values)
    if group is not None:
        count = int(total(torch.ones(count, dtype=torch.int64, device=values.device), group))
    if count == 0:
        raise InputError(EMPTY)
    return count


def _refuse_none(losses: Tensor, normaliser: Tensor) -> None:
    """Refuse a batch that is empty on all ranks; a rank with examples need not read the normaliser."""
    if not len(losses) and not normaliser:
        raise InputError(EMPTY)


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
