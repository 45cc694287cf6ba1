"""The ECE of a stream: B + 1 sums, whatever the number of rows and processes."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from calmoe.arrays import Array, as_tensor, check_bins
from calmoe.defaults import BINS
from calmoe.metrics.binned import gap_sums
from calmoe.metrics.checks import Of, check

if TYPE_CHECKING:
    from torchmetrics import Metric
else:
    try:
        from torchmetrics import Metric
    except ImportError:

        class Metric:
            """What CalibrationError needs of torchmetrics.Metric, where that is not installed."""

            def add_state(self, name: str, default: Tensor, dist_reduce_fx: str) -> None:
                setattr(self, name, default)

            def reset(self) -> None:
                self.sums = torch.zeros_like(self.sums)

            def to(self, device: torch.device | str) -> "Metric":
                self.sums = self.sums.to(device)
                return self

            def forward(self, *batch: Array | None, **named: Array | None) -> Tensor:
                """The value of this batch alone, which is also added to the stream."""
                before = self.sums
                self.reset()
                self.update(*batch, **named)
                value = _error(self.sums)
                self.sums = before + self.sums
                return value

            __call__ = forward


class CalibrationError(Metric):
    """calmoe.metrics.ece of everything seen so far, in O(bins) memory; one value over all processes.

    A torchmetrics.Metric where torchmetrics is installed, so that it moves, resets, synchronises and joins a
    MetricCollection as others do. Without torchmetrics it has the same update, compute, reset and forward.

    Args:
        bins: The number of equal-width bins.
        of: "top" judges the probability of the predicted class, a number c that of class c.
        kwargs: What torchmetrics' Metric takes, such as dist_sync_on_step.

    Example:
        >>> metric = CalibrationError(bins=10)
        >>> metric.update(torch.tensor([[0.9, 0.1]], dtype=torch.float64), torch.tensor([0]))
        >>> metric.update(torch.tensor([[0.7, 0.3]], dtype=torch.float64), torch.tensor([1]))
        >>> metric.compute()
        tensor(0.4000, dtype=torch.float64)
    """

    full_state_update = False
    higher_is_better = False
    is_differentiable = False
    sums: Tensor  # [B + 1]: sum w (confidence - outcome) in each bin, then sum w

    def __init__(self, bins: int = BINS, of: Of = "top", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bins, self.of = check_bins(bins), of
        self.add_state("sums", torch.zeros(self.bins + 1, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, probs: Array, labels: Array, weights: Array | None = None) -> None:
        """Add rows: `probs` [N, C], `labels` [N], `weights` [N].

        Without rows or weight it adds nothing: an error would keep other ranks waiting.
        """
        none = not (as_tensor(probs).numel() or as_tensor(labels).numel())
        if none or (weights is not None and not as_tensor(weights).any()):
            return
        rows = check(probs, labels, weights)
        gaps = gap_sums(rows, self.bins, self.of)
        self.sums = self.sums + torch.cat([gaps, gaps.new_tensor([rows.total])]).to(self.sums.device)

    def compute(self) -> Tensor:
        """sum_b |gap_b| / W in float64; NaN while no row with weight was seen."""
        return _error(self.sums if _SYNCHRONISED else _over_processes(self.sums))


_SYNCHRONISED = hasattr(Metric, "sync")  # torchmetrics adds the processes' states up before it calls compute


def _error(sums: Tensor) -> Tensor:
    return sums[:-1].abs().sum() / sums[-1]


def _over_processes(sums: Tensor) -> Tensor:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return sums
    everywhere = sums.clone()
    torch.distributed.all_reduce(everywhere)
    return everywhere
