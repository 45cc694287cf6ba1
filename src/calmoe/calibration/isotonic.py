"""Top-label isotonic regression: how often the predicted class is right at each confidence, never falling."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from calmoe.arrays import Array, as_tensor, widen
from calmoe.calibration.log_linear import log_distribution
from calmoe.calibration.saved import read_saved
from calmoe.calibration.temperature import Temperature
from calmoe.errors import InputError, about
from calmoe.files import write_json
from calmoe.validation import numbers

KEYS = ("temperature", "temperature_status", "confidences", "probabilities")
LEAD = 1e-6  # by which the log-probability of the predicted class stays ahead, if it was


class TopLabelIsotonic:
    """The converged temperature, then a rising curve from its confidence to how often it is right.

    Pooled rows that are all right, or all wrong, get half a row of the other outcome: no probability becomes
    0 or 1. Other classes keep their proportions. The predicted class stays ahead of them, so that no
    prediction changes: where the curve falls below the second class, the confidence stops just above it.

    Attributes:
        confidences_: The curve's corners, straight lines between them. [M]
        probabilities_: How often rows come true there. [M]

    Example:
        >>> log_probs = torch.tensor([[0.6, 0.4]] * 50 + [[0.9, 0.1]] * 50).log()
        >>> labels = torch.tensor([0] * 30 + [1] * 20 + [0] * 35 + [1] * 15)
        >>> curve = TopLabelIsotonic().fit(log_probs, labels)
        >>> [round(float(p), 2) for p in curve.transform(log_probs).exp()[[0, -1], 0]]
        [0.6, 0.7]
    """

    def __init__(self) -> None:
        self.temperature_: Temperature
        self.confidences_: np.ndarray
        self.probabilities_: np.ndarray

    def fit(self, log_probs: Array, labels: Array) -> Self:
        """Fit on log_probs [N, C] (log-probabilities or logits) and labels [N]."""
        return self.fit_on(Temperature().fit(log_probs, labels), log_probs, labels)

    def fit_on(self, temperature: Temperature, log_probs: Array, labels: Array) -> Self:
        """Fit on log_probs [N, C] and labels [N], on top of this `temperature`."""
        from sklearn.isotonic import IsotonicRegression  # takes its time to import

        self.temperature_ = temperature
        top, predicted = temperature.transform(log_distribution(log_probs)).max(dim=1)
        right = (predicted == as_tensor(labels, predicted.device)).double().cpu().numpy()
        confidence = top.exp().cpu().numpy()
        pooled = IsotonicRegression().fit(confidence, right).predict(confidence)
        _, block, rows = np.unique(pooled, return_inverse=True, return_counts=True)
        sums = np.bincount(block, right)
        lowest, highest = np.full(len(rows), np.inf), np.zeros(len(rows))
        np.minimum.at(lowest, block, confidence)
        np.maximum.at(highest, block, confidence)
        shares = IsotonicRegression().fit_transform(
            np.arange(len(rows)), (sums + 0.5) / (rows + 1), sample_weight=rows + 1.0
        )
        corners = np.stack([lowest, highest], axis=1).ravel()
        self.confidences_, first = np.unique(corners, return_index=True)
        self.probabilities_ = np.repeat(shares, 2)[first]
        return self

    def transform(self, log_probs: Array) -> Tensor:
        """The `log_probs` after the curve, in at least float32. [N, C]"""
        curve = self._fitted()
        wide = widen(as_tensor(log_probs))
        logs = self.temperature_.transform(log_distribution(log_probs))
        if logs.shape[1] == 1:
            return torch.zeros_like(wide)
        top, predicted = logs.max(dim=1)
        others = logs.scatter(1, predicted[:, None], -torch.inf)
        rest, second = others.logsumexp(dim=1), others.amax(dim=1)
        chance = np.interp(top.exp().cpu().numpy(), self.confidences_, curve)
        lead = (top - second).clamp(max=LEAD)
        least = expit((second - rest + lead).cpu().numpy())  # where it is ahead of the second class by `lead`
        chance = np.maximum(chance, least)
        log_top, log_rest = (
            torch.as_tensor(part, device=logs.device) for part in (np.log(chance), np.log1p(-chance))
        )
        moved = (logs - rest[:, None] + log_rest[:, None]).scatter(1, predicted[:, None], log_top[:, None])
        return torch.log_softmax(moved, dim=1).to(wide.dtype)

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        return {
            "kind": "TopLabelIsotonic",
            "temperature": self.temperature_.temperature_,
            "temperature_status": self.temperature_.status_,
            "confidences": self.confidences_.tolist(),
            "probabilities": self._fitted().tolist(),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """What `to_dict` gave, checked."""
        fitted = cls()
        fitted.temperature_ = Temperature()
        fitted.temperature_.restore(saved["temperature"], saved["temperature_status"], "temperature_status")
        fitted.confidences_ = numbers("confidences", saved["confidences"], (None,))
        corners = fitted.confidences_
        fitted.probabilities_ = numbers("probabilities", saved["probabilities"], (len(corners),))
        if corners[0] < 0 or (np.diff(corners) <= 0).any():
            raise InputError("confidences must rise, from no less than 0")
        curve = fitted.probabilities_
        if curve[0] <= 0 or curve[-1] >= 1 or (np.diff(curve) < 0).any():
            raise InputError("probabilities must lie between 0 and 1, and never fall")
        return fitted

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        saved = read_saved(path, "TopLabelIsotonic", KEYS)
        with about(path):
            return cls.from_dict(saved)

    def _fitted(self) -> np.ndarray:
        if not hasattr(self, "probabilities_"):
            raise InputError("this TopLabelIsotonic is not fitted: call fit(log_probs, labels) first")
        return self.probabilities_
