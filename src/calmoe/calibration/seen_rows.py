"""Which rows a calibrator was fitted on, recognised without keeping any of them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from calmoe.mixture import MixtureOutput
from calmoe.validation import number, table, whole

CHUNK = 1 << 16  # rows
CLOSE = 2e-6  # how far means of the same rows may be apart: single precision, and the text of a csv file


class SeenRows(NamedTuple):
    """How many rows, and means over them that other rows do not share: Σ p²/N, Σ max p/N, Σ c p_c/(C N), …

    The order of rows, and what single precision loses, do not matter.

    >>> log_probs = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    >>> one = MixtureOutput(log_probs, torch.zeros(2, 1), log_probs[:, None])
    >>> seen = SeenRows.of(one, torch.tensor([0, 1]))
    >>> seen.recognises(one), seen.recognises(one._replace(log_probs=log_probs.flip(1)))
    (True, False)
    """

    rows: int
    confidence: float  # the largest probability
    sharpness: float  # the sum of squared probabilities
    place: float  # the mean class, as a share of all classes
    truth: float | None  # the probability of the label

    @classmethod
    def of(cls, output: MixtureOutput, labels: Tensor | None) -> "SeenRows":
        """Of these rows; without labels their probabilities alone are compared."""
        rows, classes = output.log_probs.shape
        places = torch.arange(classes, dtype=torch.float64, device=output.log_probs.device) / classes
        sums = torch.zeros(4, dtype=torch.float64)
        for start in range(0, rows, CHUNK):
            probs = output.log_probs[start : start + CHUNK].double().exp()
            parts = [probs.amax(dim=1).sum(), probs.square().sum(), (probs @ places).sum()]
            if labels is not None:
                parts.append(probs.gather(1, labels[start : start + CHUNK, None]).sum())
            sums[: len(parts)] += torch.stack(parts).cpu()
        confidence, sharpness, place, truth = (sums / rows).tolist()
        return cls(rows, confidence, sharpness, place, None if labels is None else truth)

    def recognises(self, output: MixtureOutput, labels: Tensor | None = None) -> bool:
        """Whether these are the same rows."""
        if len(output.log_probs) != self.rows:
            return False
        given = SeenRows.of(output, labels)
        pairs = zip(self[1:], given[1:], strict=True)
        return all(abs(a - b) <= CLOSE for a, b in pairs if a is not None and b is not None)

    @classmethod
    def from_dict(cls, saved: Any) -> "SeenRows":
        """What `_asdict` gave, checked."""
        table("seen", saved, cls._fields)
        means = [number(name, saved[name], least=0, most=1.001) for name in cls._fields[1:4]]
        truth = saved["truth"]
        share = None if truth is None else number("truth", truth, least=0, most=1.001)
        return cls(whole("rows", saved["rows"], least=1), means[0], means[1], means[2], share)
