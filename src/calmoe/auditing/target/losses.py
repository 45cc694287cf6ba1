"""Proper losses row by row, and how much of each depends on the event that the audit judges."""

import numpy as np
import torch

from calmoe.auditing.configurations import CHUNK
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions

RANGES = {"nll": (0.0, np.inf), "brier": (0.0, 2.0)}


def losses_of(
    name: str, predictions: Predictions, of: Of
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """The loss of each row, None without labels; its mean if the mixture is right; and the loss where the
    event comes true less the mean loss where it does not. [N] each"""
    labels = predictions.labels
    losses, own, slope = [], [], []
    for start in range(0, len(predictions), CHUNK):
        rows = slice(start, start + CHUNK)
        logs = predictions.output.log_probs[rows].double()
        probs = logs.exp()
        each = -logs if name == "nll" else probs.square().sum(dim=1, keepdim=True) + 1 - 2 * probs  # [n, C]
        means = probs * each.masked_fill(probs == 0, 0.0)
        event = logs.argmax(dim=1) if of == "top" else torch.full((len(logs),), int(of))
        picked = event[:, None]
        others = 1 - probs.gather(1, picked).squeeze(1)
        wrong = (means.sum(dim=1) - means.gather(1, picked).squeeze(1)) / others
        apart = each.gather(1, picked).squeeze(1) - wrong
        own.append(means.sum(dim=1))
        slope.append(apart.where((others > 1e-9) & apart.isfinite(), torch.zeros_like(apart)))
        if labels is not None:
            losses.append(each.gather(1, labels[rows, None]).squeeze(1))
    return torch.cat(losses).numpy() if losses else None, torch.cat(own).numpy(), torch.cat(slope).numpy()
