"""What calibrators answer on labelled rows: losses, confidences and whether they came true."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calmoe.calibration import Calibrator
from calmoe.metrics.binned import width_bins
from calmoe.metrics.checks import Of
from calmoe.metrics.scores import log_losses
from calmoe.mixture import MixtureOutput

CHUNK = 1 << 16
BY_CHANCE = 2.0  # an ECE up to so many times what calibrated probabilities show by chance is no finding


class Answers(NamedTuple):
    """One number a row. [N]"""

    loss: np.ndarray  # −log p of the label
    confidence: np.ndarray  # the probability of the event that is judged
    outcome: np.ndarray  # 1.0 where the event came true
    right: np.ndarray  # 1.0 where the predicted class is the label

    @classmethod
    def empty(cls, rows: int) -> "Answers":
        return cls(*np.full((4, rows), np.nan))

    def put(self, rows: np.ndarray, answers: "Answers") -> None:
        """Take over the answers on these rows."""
        for mine, theirs in zip(self, answers, strict=True):
            mine[rows] = theirs

    def take(self, rows: np.ndarray) -> "Answers":
        return Answers(*(part[rows] for part in self))

    def bins(self, bins: int) -> np.ndarray:
        return width_bins(torch.as_tensor(self.confidence), bins).numpy()


def answer(calibrator: Calibrator, output: MixtureOutput, labels: Tensor, of: Of = "top") -> Answers:
    """of="top": the event is that the predicted class is right; of=c: that the label is c."""
    answers = Answers.empty(len(labels))
    for start in range(0, len(labels), CHUNK):
        part = slice(start, start + CHUNK)
        logs = calibrator.transform(output.take(part)).log_probs
        truth = labels[part]
        top, predicted = logs.max(dim=1)
        right = (predicted == truth).double()
        seen, outcome = (top, right) if of == "top" else (logs[:, of], (truth == of).double())
        loss = log_losses(logs, truth)
        confidence = seen.double().exp().clamp(max=1)
        new = (loss, confidence, outcome, right)
        answers.put(np.arange(start, start + len(truth)), Answers(*(each.numpy() for each in new)))
    return answers


def raises_ece(before: Answers, after: Answers, bins: int) -> bool:
    """Whether the ECE after is above the one before, and above what chance explains."""
    return _plain_ece(after, bins) > max(_plain_ece(before, bins), BY_CHANCE * ece_by_chance(after, bins))


def ece_by_chance(answers: Answers, bins: int) -> float:
    """What so many rows of calibrated confidences f show: about Σ_b √(2/π Σ_b f (1 − f)) / N, b over bins."""
    noise = np.bincount(answers.bins(bins), answers.confidence * (1 - answers.confidence))
    return float(np.sqrt(2 / np.pi * noise).sum() / len(answers.loss))


def _plain_ece(answers: Answers, bins: int) -> float:
    gaps = np.bincount(answers.bins(bins), answers.outcome - answers.confidence)
    return float(np.abs(gaps).sum() / len(answers.loss))
