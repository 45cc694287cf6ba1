"""Batch norm where a batch is spread over ranks: over all of its rows, or over each rank's own.

torch's SyncBatchNorm refuses tensors on a CPU. This one runs on both, so that what is tested is what trains.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from calmoe.arrays import widen
from calmoe.reducers import Group


class SynchronisedBatchNorm(_BatchNorm):
    """Batch norm by mean and variance of all ranks' rows; a rank may have none."""

    group: Group = None

    def _check_input_dim(self, input: Tensor) -> None:
        """Whatever the norm that it stands for takes."""

    def forward(self, rows: Tensor) -> Tensor:
        if not self.training and self.running_mean is not None:
            return super().forward(rows)
        wide, others = widen(rows), [0, *range(2, rows.ndim)]
        count = wide.new_full((1,), rows.numel() // rows.shape[1])
        sums = _Total.apply(torch.cat([wide.sum(others), count]), self.group)
        count, shape = sums[-1].detach(), [1, -1, *[1] * (rows.ndim - 2)]
        mean = sums[:-1] / count
        centred = wide - mean.view(shape)
        variance = _Total.apply(centred.square().sum(others), self.group) / count
        self._keep(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        scaled = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        return scaled.to(rows.dtype)

    @torch.no_grad()
    def _keep(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics, as torch's batch norm does."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


class RankBatchNorm(_BatchNorm):
    """Batch norm by a rank's own rows; by the running statistics where these are too few for a variance."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Whatever the norm that it stands for takes."""

    def forward(self, rows: Tensor) -> Tensor:
        if rows.numel() // rows.shape[1] > 1 or self.running_mean is None:
            return super().forward(rows)
        return nn.functional.batch_norm(
            rows, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )


class _Total(torch.autograd.Function):
    """The sum over ranks. Every rank's loss depends on it, so its gradient is a sum over ranks too."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return _summed(values, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _summed(gradients[0], ctx.group), None


def _summed(values: Tensor, group: Group) -> Tensor:
    values = values.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(values, group=group)
    return values


def over_ranks(module: nn.Module, group: Group, synchronised: bool) -> nn.Module:
    """The module with each of its batch norms by all ranks' rows, or by each rank's own; same tensors."""
    if isinstance(module, _BatchNorm) and not isinstance(module, SynchronisedBatchNorm | RankBatchNorm):
        kind = SynchronisedBatchNorm if synchronised else RankBatchNorm
        norm = kind(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats
        )
        norm._parameters, norm._buffers = module._parameters, module._buffers
        norm.train(module.training)
        if isinstance(norm, SynchronisedBatchNorm):
            norm.group = group
        return norm
    for name, child in module.named_children():
        setattr(module, name, over_ranks(child, group, synchronised))
    return module
