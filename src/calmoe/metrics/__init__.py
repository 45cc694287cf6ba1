"""How good are these probabilities? One family, one signature: metric(probs, labels, weights=None).

Only nll takes log-probabilities: nll(log_probs, labels, weights=None), since exp would lose the small ones.
Probabilities are [N, C], labels [N] integers, weights [N] >= 0; torch or NumPy, any device, any float.
Everything is computed in float64 on the tensor's own device. A weight of 2 is the same as the row twice.

>>> import torch
>>> from calmoe.metrics import ece, reliability
>>> probs, labels = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), torch.tensor([0, 1, 1])
>>> round(ece(probs, labels, bins=2), 3)
0.133
>>> reliability(probs, labels, bins=2).count
array([0, 3])
"""

from typing import TYPE_CHECKING, Any

from calmoe.metrics.binned import Reliability, adaptive_ece, classwise_ece, ece, reliability
from calmoe.metrics.groups import Groups, by_group
from calmoe.metrics.resampling import Interval, bootstrap, paired_difference
from calmoe.metrics.scores import BrierDecomposition, accuracy, brier_decomposition, brier_score, nll
from calmoe.metrics.smooth import smooth_ece

if TYPE_CHECKING:
    from calmoe.metrics.streaming import CalibrationError

__all__ = [
    "BrierDecomposition",
    "CalibrationError",
    "Groups",
    "Interval",
    "Reliability",
    "accuracy",
    "adaptive_ece",
    "bootstrap",
    "brier_decomposition",
    "brier_score",
    "by_group",
    "classwise_ece",
    "ece",
    "nll",
    "paired_difference",
    "reliability",
    "smooth_ece",
]


def __getattr__(name: str) -> Any:
    """CalibrationError is loaded on first use: torchmetrics takes seconds to import."""
    if name == "CalibrationError":
        from calmoe.metrics.streaming import CalibrationError

        return CalibrationError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
