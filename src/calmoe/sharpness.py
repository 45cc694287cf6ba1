"""Sharpness-aware gradients (SAM): the gradient at the worst point near the weights, not at the weights.

Let g be the gradient of the batch's objective at the weights w. The sharp gradient is the one at
w + ρ g / ‖g‖, on the same batch. Two lines in any loop, with any objective of calmoe or of one's own:

>>> model, rows = torch.nn.Linear(2, 1), torch.ones(4, 2)
>>> loss = sharp_gradients(lambda: model(rows).square().mean(), model, rho=0.1)
>>> model.weight.grad is not None  # what optimizer.step() takes
True
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from calmoe.arrays import as_number
from calmoe.errors import InputError, refusal
from calmoe.reducers import Group

__all__ = ["sharp_gradients"]


def sharp_gradients(objective: Callable[[], Tensor], model: nn.Module, rho: float = 0.1) -> Tensor:
    """Set `.grad` to the gradient at w + ρ g / ‖g‖, and return the objective at the weights w.

    Call it once a step: it drops the gradients that are there, also those of other micro-batches. Buffers,
    such as the statistics of batch norm, move in the first pass only. Dropout draws a new mask for each pass.
    Where the gradient is zero everywhere, nothing moves. If it is not finite, what this leaves in `.grad` is
    not finite either, as GradScaler expects.

    Args:
        objective: A function that returns the objective of the whole batch. It is called twice. Or it calls
            backward itself, once a micro-batch, and returns what it likes: the gradients that it left are
            then taken. Over several ranks the gradients must be those of the global batch, as
            DistributedDataParallel and FSDP2's fully_shard leave them.
        model: The module whose parameters move: all that the objective trains. Parameters outside of it would
            get the gradients of both passes.
        rho: How far the worst point may lie, ρ ≥ 0; 0 is the plain gradient, in one pass.

    Returns:
        The objective at the weights, without a gradient.

    Example:
        >>> model, rows = torch.nn.Linear(2, 1), torch.ones(4, 2)
        >>> loss = sharp_gradients(lambda: model(rows).square().mean(), model, rho=0.1)
        >>> model.weight.grad.shape  # what optimizer.step() takes
        torch.Size([1, 2])

        In micro-batches, the function calls backward itself:

        >>> def in_parts():
        ...     for part in rows.split(2):
        ...         (model(part).square().sum() / len(rows)).backward()
        >>> sharp_gradients(in_parts, model, rho=0.1)
    """
    rho = as_number("rho", rho, least=0)
    if not callable(objective):
        raise refusal("the objective", "a function, such as lambda: ERM()(model(x), y)", objective)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    value = _gradients_of(objective, parameters)
    if rho == 0:
        return value
    if any(p.grad is not None and p.grad.is_sparse for p in parameters):
        raise InputError("sharp gradients are dense: give nn.Embedding sparse=False")
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    weights, directions = ([own_part(tensor) for tensor in tensors] for tensors in (parameters, gradients))
    with perturbed(weights, directions, rho, list(model.buffers()), _holders(parameters)):
        _gradients_of(objective, parameters)
    return value


def own_part(tensor: Tensor) -> Tensor:
    """A rank's part of a tensor in shards (DTensor), at the same address; any other tensor as it is."""
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _holders(parameters: Sequence[Tensor]) -> Group:
    """The ranks that hold the parts of the parameters; None where every rank holds them whole."""
    groups = {_holders_of(parameter) for parameter in parameters}
    if len(groups) > 1:
        raise InputError("some parameters are in shards and others are not: shard all of them, or none")
    return groups.pop() if groups else None


def _holders_of(parameter: Any) -> Group:
    if not hasattr(parameter, "placements"):
        return None
    dims = [dim for dim, placement in enumerate(parameter.placements) if placement.is_shard()]
    if len(dims) > 1:
        raise InputError("parameters are in shards over several dimensions of their mesh: use one")
    return parameter.device_mesh.get_group(dims[0]) if dims else None


def _gradients_of(objective: Callable[[], Tensor], parameters: Sequence[nn.Parameter]) -> Tensor:
    for parameter in parameters:
        parameter.grad = None
    value = objective()
    if all(parameter.grad is None for parameter in parameters):
        if not isinstance(value, Tensor) or value.grad_fn is None or value.numel() != 1:
            raise refusal("the objective", "a function that returns one number with its gradient", value)
        value.backward()
    return value.detach() if isinstance(value, Tensor) else value


@contextmanager
def perturbed(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    rho: float,
    buffers: Sequence[Tensor] = (),
    group: Group = None,
) -> Iterator[None]:
    """Inside, the parameters stand at w + ρ g / ‖g‖, the norm taken over all of them; after it, at w again.

    Given a process group, each of its ranks has a piece of the parameters and of their gradients.

    The buffers are after it as they were before it. Nothing waits for the device: a CUDA graph can hold it.
    Autocast around all of this would go on with its copies of the weights as they were: it must forget them.
    """
    tensors = [tensor.detach() for tensor in (*parameters, *buffers)]
    before = [torch.empty_like(tensor) for tensor in tensors]
    copy_all(before, tensors)
    weights = tensors[: len(parameters)]
    moves = ascent([in_layout_of(w, g) for w, g in zip(weights, gradients, strict=True)], rho, group)
    torch._foreach_add_(weights, moves)
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        copy_all(tensors, before)
        torch.clear_autocast_cache()


@torch.no_grad()
def ascent(gradients: Sequence[Tensor], rho: float, group: Group = None) -> list[Tensor]:
    """ρ g / ‖g‖ as one long vector, of which each rank of a group has a piece; zeros where it is zero.

    >>> ascent([torch.tensor([3.0]), torch.tensor([4.0])], rho=0.5)
    [tensor([0.3000]), tensor([0.4000])]
    """
    widest = reduce(torch.promote_types, (gradient.dtype for gradient in gradients), torch.float32)
    norm = torch.stack(torch._foreach_norm(list(gradients), 2, dtype=widest)).norm()
    if group is not None:
        square = norm.square()
        dist.all_reduce(square, group=group)
        norm = square.sqrt()
    return list(torch._foreach_mul(list(gradients), torch.where(norm == 0, 0.0, rho / norm)))


def in_layout_of(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with its numbers in memory as the parameter has them: many at once need it so."""
    return (
        gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)
    )


@torch.no_grad()
def copy_all(to: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy each value to its place, all of one type at once: on a GPU that takes as long as one alone."""
    by_type: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for place, value in zip(to, values, strict=True):
        places, taken = by_type.setdefault(place.dtype, ([], []))
        places.append(place)
        taken.append(value)
    for places, taken in by_type.values():
        torch._foreach_copy_(places, taken)
