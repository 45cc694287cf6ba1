"""Nothing, as a calibrator: the probabilities stay as they are."""

from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from calmoe.arrays import Array, as_tensor, widen
from calmoe.calibration.saved import read_saved
from calmoe.calibration.temperature_solvers import check_scores
from calmoe.files import write_json


class Identity:
    """log softmax(log f): the answer where no repair helps.

    Example:
        >>> Identity().transform(torch.tensor([[0.9, 0.1]]).log()).exp()
        tensor([[0.9000, 0.1000]])
    """

    def fit(self, log_probs: Array, labels: Array) -> Self:
        """Learn nothing from log_probs [N, C] and labels [N]."""
        check_scores(as_tensor(log_probs))
        return self

    def transform(self, log_probs: Array) -> Tensor:
        """The `log_probs` [N, C], in at least float32."""
        scores = as_tensor(log_probs)
        check_scores(scores)
        return torch.log_softmax(widen(scores), dim=-1)

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        return {"kind": "Identity"}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """What `to_dict` gave, checked."""
        return cls()

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        return cls.from_dict(read_saved(path, "Identity", ()))
