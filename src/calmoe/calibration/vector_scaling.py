"""Vector scaling: a slope and an intercept for every class."""

from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import Tensor

from calmoe.arrays import Array
from calmoe.calibration.log_linear import LARGEST, Weights, fit_diagonal, labelled, scale
from calmoe.calibration.saved import read_saved
from calmoe.errors import InputError, about
from calmoe.files import write_json
from calmoe.validation import numbers

KEYS = ("weights", "intercepts")


class VectorScaling:
    """softmax(w_c log f_c + b_c), with the w [C] and b [C] of least cross-entropy; w = 1/T is a temperature.

    One imagined row ties w and b to the temperature, so that there is always an optimum. Predictions may
    change.

    Attributes:
        weights_: w. [C]
        intercepts_: b. [C]

    Example:
        >>> import torch
        >>> log_probs = torch.tensor([[0.6, 0.4]] * 100 + [[0.4, 0.6]] * 100).log()
        >>> labels = torch.tensor([0] * 75 + [1] * 25 + [0] * 25 + [1] * 75)
        >>> vector = VectorScaling().fit(log_probs, labels)
        >>> round(float(vector.transform(log_probs).exp()[0, 0]), 2)
        0.75
    """

    def __init__(self) -> None:
        self.weights_: np.ndarray
        self.intercepts_: np.ndarray

    def fit(self, log_probs: Array, labels: Array) -> Self:
        """Fit on log_probs [N, C] (log-probabilities or logits) and labels [N]."""
        return self.take(fit_diagonal(labelled(log_probs, labels)))

    def take(self, weights: Weights) -> Self:
        """Take over w and b, the `weights`."""
        self.weights_, self.intercepts_ = weights
        return self

    def transform(self, log_probs: Array) -> Tensor:
        """log softmax(w_c log f_c + b_c) of `log_probs`, in at least float32. [N, C]"""
        return scale(log_probs, self._fitted())

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        weights, intercepts = self._fitted()
        return {"kind": "VectorScaling", "weights": weights.tolist(), "intercepts": intercepts.tolist()}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """What `to_dict` gave, checked."""
        intercepts = bounded("intercepts", saved["intercepts"], (None,))
        return cls().take(Weights(bounded("weights", saved["weights"], (len(intercepts),)), intercepts))

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        saved = read_saved(path, "VectorScaling", KEYS)
        with about(path):
            return cls.from_dict(saved)

    def _fitted(self) -> Weights:
        if not hasattr(self, "weights_"):
            raise InputError("this VectorScaling is not fitted: call fit(log_probs, labels) first")
        return Weights(self.weights_, self.intercepts_)


def bounded(field: str, value: Any, shape: tuple[int | None, ...]) -> np.ndarray:
    """Numbers of this shape that no sum of scores lets overflow."""
    array = numbers(field, value, shape)
    if np.abs(array).max() > LARGEST:
        raise InputError(f"{field} must lie between -{LARGEST:g} and {LARGEST:g}")
    return array
