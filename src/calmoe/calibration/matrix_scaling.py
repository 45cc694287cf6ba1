"""Matrix scaling of log-probabilities (Dirichlet calibration): every class may speak to every other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import Array, as_number
from calmoe.calibration.log_linear import Labelled, Weights, fit_matrices, labelled, scale
from calmoe.calibration.saved import read_saved
from calmoe.calibration.vector_scaling import bounded
from calmoe.errors import InputError, about
from calmoe.files import write_json
from calmoe.metrics.scores import log_losses
from calmoe.validation import number

STRENGTHS = (0.03, 0.003)
MOST_CLASSES = 128
FOLDS = 3
KEYS = ("matrix", "intercepts", "strength")


class MatrixScaling:
    """softmax(W log f + b), with the W [C, C] and b [C] of least cross-entropy plus a price.

    Entries off the diagonal and intercepts pay strength / 2 times their square, with the columns of log f
    standardised; the diagonal is nearly free. With more than 24 classes only the 8 main directions of log f
    reach other classes; more than 128 are refused. Predictions may change.

    Args:
        strength: The price; unless given, three-fold cross-validation chooses 0.03 or 0.003.

    Attributes:
        strength_: The strength of the fit.

    Example:
        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> log_probs = torch.randn(2000, 3, generator=generator).log_softmax(1)
        >>> swapped = log_probs[:, [1, 0, 2]]  # the truth: classes 0 and 1 were mistaken for each other
        >>> labels = torch.multinomial(swapped.exp(), 1, generator=generator).squeeze(1)
        >>> fitted = MatrixScaling().fit(log_probs, labels).transform(log_probs)
        >>> bool((fitted - swapped).abs().mean() < 0.1)
        True
    """

    def __init__(self, strength: float | None = None) -> None:
        self.strength = None if strength is None else as_number("strength", strength, least=0)
        self.matrix_: np.ndarray
        self.intercepts_: np.ndarray
        self.strength_: float

    def fit(self, log_probs: Array, labels: Array) -> Self:
        """Fit on log_probs [N, C] (log-probabilities or logits) and labels [N]."""
        rows = labelled(log_probs, labels)
        if rows.logs.shape[1] > MOST_CLASSES:
            raise InputError(f"matrix scaling takes at most {MOST_CLASSES} classes: use VectorScaling")
        strength = _cross_validated(rows) if self.strength is None else self.strength
        stronger = [each for each in STRENGTHS if each > strength]
        return self.take(fit_matrices(rows, [*stronger, strength])[-1], strength)

    def take(self, weights: Weights, strength: float) -> Self:
        """Take over W and b, the `weights`, fitted with this `strength`."""
        (self.matrix_, self.intercepts_), self.strength_ = weights, strength
        return self

    def transform(self, log_probs: Array) -> Tensor:
        """log softmax(W log f + b) of `log_probs`, in at least float32. [N, C]"""
        return scale(log_probs, self._fitted())

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        matrix, intercepts = self._fitted()
        return {
            "kind": "MatrixScaling",
            "matrix": matrix.tolist(),
            "intercepts": intercepts.tolist(),
            "strength": self.strength_,
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """What `to_dict` gave, checked."""
        intercepts = bounded("intercepts", saved["intercepts"], (None,))
        classes = len(intercepts)
        if classes > MOST_CLASSES:
            raise InputError(f"intercepts must be at most {MOST_CLASSES}")
        matrix = bounded("matrix", saved["matrix"], (classes, classes))
        return cls().take(Weights(matrix, intercepts), number("strength", saved["strength"], least=0))

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        saved = read_saved(path, "MatrixScaling", KEYS)
        with about(path):
            return cls.from_dict(saved)

    def _fitted(self) -> Weights:
        if not hasattr(self, "matrix_"):
            raise InputError("this MatrixScaling is not fitted: call fit(log_probs, labels) first")
        return Weights(self.matrix_, self.intercepts_)


def _cross_validated(rows: Labelled, strengths: Sequence[float] = STRENGTHS) -> float:
    """The strength of least held-out NLL; folds hold equal shares of each class, in the order of the rows."""
    order = np.argsort(rows.labels, kind="stable")
    fold = np.empty(len(order), int)
    fold[order] = np.arange(len(order)) % FOLDS
    losses = np.zeros(len(strengths))
    for held_out in range(FOLDS):
        rest, judged = fold != held_out, fold == held_out
        if not rest.any() or not judged.any():
            continue
        logs, labels = torch.as_tensor(rows.logs[judged]), torch.as_tensor(rows.labels[judged])
        fits = fit_matrices(Labelled(rows.logs[rest], rows.labels[rest], rows.slope), strengths)
        for i, weights in enumerate(fits):
            losses[i] += float(log_losses(scale(logs, weights), labels).sum())
    return strengths[int(losses.argmin())]
