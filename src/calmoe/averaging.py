"""Averaged weights: an exponential average of a training's weights, and batch norm's statistics for it.

In a loop of one's own, `torch.optim.swa_utils` does the same: `AveragedModel` with `get_ema_multi_avg_fn`,
then `update_bn`.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from calmoe.errors import InputError

__all__ = ["estimate_statistics", "update_average"]


@torch.no_grad()
def update_average(averages: Sequence[Tensor], weights: Sequence[Tensor], decay: float) -> None:
    """a ← decay · a + (1 − decay) · w, in place.

    Args:
        averages: The averages a, changed in place.
        weights: The present weights w, of the same shapes.
        decay: How much of the old average stays, between 0 and 1.

    Example:
        >>> average = torch.tensor([1.0])
        >>> update_average([average], [torch.tensor([2.0])], decay=0.75)
        >>> average
        tensor([1.2500])
    """
    torch._foreach_lerp_(list(averages), [weight.detach() for weight in weights], 1 - decay)


@torch.no_grad()
def estimate_statistics(
    model: nn.Module, batches: Iterable[Tensor], forward: Callable[[Tensor], object] | None = None
) -> None:
    """Set batch norm's running statistics to their mean over the batches, as the present weights see them.

    A short last batch counts as much as a full one: its rows weigh more.

    Each module is left in training mode or not, as it was. If a batch fails, the statistics are as they were.
    Without batch norm nothing happens, and no batch is drawn.

    Args:
        model: The module with batch norm in it.
        batches: Inputs, one tensor a batch; at least one.
        forward: Runs the model on a batch, if calling it is not enough.

    Example:
        >>> norm = nn.BatchNorm1d(1)
        >>> estimate_statistics(norm, [torch.tensor([[1.0], [3.0]]), torch.tensor([[4.0], [8.0]])])
        >>> norm.running_mean
        tensor([4.])
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    training = {module: module.training for module in model.modules()}
    before = [(norm.momentum, {n: b.clone() for n, b in norm.named_buffers()}) for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
    model.train()
    empty = True
    try:
        for batch in batches:
            (forward or model)(batch)
            empty = False
        if empty:
            raise InputError("there is no batch to estimate statistics from: give at least one")
    except BaseException:
        for norm, (_, buffers) in zip(norms, before, strict=True):
            for name, buffer in norm.named_buffers():
                buffer.copy_(buffers[name])
        raise
    finally:
        for norm, (momentum, _) in zip(norms, before, strict=True):
            norm.momentum = momentum
        for module, mode in training.items():
            module.training = mode
