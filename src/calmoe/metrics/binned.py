"""Calibration by bins: the ECE family and the reliability diagram's numbers.

Equal-width bins are (a, b] with edges i/B in float64: 0 falls in the first, 1 in the last.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import Array, check_bins, check_word
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError
from calmoe.metrics.checks import Of, Rows, check, events
from calmoe.metrics.intervals import wilson

MOST_CELLS = 20_000_000  # bins of all classes together
CHUNK = 1 << 16  # rows at a time where sums add up: what is in hand stays in the cache


def width_bins(confidence: Tensor, bins: int) -> Tensor:
    """The i with i/B < v <= (i + 1)/B, exactly; 0 for v = 0.

    For v narrower than float64, v B is exact and no v lies between i/B and its float64: no search is needed.
    """
    if confidence.dtype != torch.float64 and bins < 10_000:
        return confidence.double().mul_(bins).ceil_().long().sub_(1).clamp_(min=0)
    inner = torch.arange(1, bins, dtype=torch.float64, device=confidence.device) / bins
    return torch.bucketize(confidence.double().contiguous(), inner)


def mass_bins(confidence: Tensor, weights: Tensor, bins: int) -> Tensor:
    """floor(B W(confidence < v) / W): equal mass, ties together, whatever the order of the rows.

    1e-9 forgives the rounding of the running sum: ten weights of 0.1 act as ten of 1.
    """
    values, inverse = confidence.unique(return_inverse=True)
    mass = sum_by(inverse, weights, len(values))
    below = (mass.cumsum(0) - mass) / mass.sum()
    return (bins * below + 1e-9).long().clamp(max=bins - 1)[inverse]


def sum_by(index: Tensor, values: Tensor, size: int) -> Tensor:
    """s_b = sum of the v_i with index_i = b, [size]; unlike bincount, deterministic on CUDA when asked."""
    return values.new_zeros(size).index_add_(0, index, values)


def gaps(confidence: Tensor, outcome: Tensor) -> Tensor:
    """confidence - outcome in float64, [N]."""
    return confidence.double().add(outcome, alpha=-1)


def gap_sums(rows: Rows, bins: int, of: Of) -> Tensor:
    """sum w (confidence - outcome) in each of B equal-width bins: all that an ECE needs, and it adds up."""
    total = torch.zeros(bins, dtype=torch.float64, device=rows.probs.device)
    for part in rows.split(CHUNK):
        confidence, outcome = events(part, of)
        total.index_add_(0, width_bins(confidence, bins), part.weigh(gaps(confidence, outcome)))
    return total


def classwise_gaps(rows: Rows, bins: int) -> tuple[Tensor, Tensor]:
    """For each row and class: the cell c B + bin(p_c), and p_c - 1[y = c]; both [N, C]."""
    probs, classes = rows.probs, rows.probs.shape[1]
    if classes * bins > MOST_CELLS:
        raise InputError(
            f"{classes} classes of {bins} bins are more than {MOST_CELLS} cells: give fewer bins"
        )
    cell = width_bins(probs, bins) + bins * torch.arange(classes, device=probs.device)
    return cell, subtract_label(probs.double(), rows.labels)


def subtract_label(probs: Tensor, labels: Tensor) -> Tensor:
    """p_c - 1[y = c], [N, C]."""
    return probs.scatter_add(1, labels[:, None], -torch.ones_like(probs[:, :1]))


def ece(
    probs: Array, labels: Array, weights: Array | None = None, *, bins: int = BINS, of: Of = "top"
) -> float:
    """Expected calibration error: sum_b share_b |confidence_b - accuracy_b| over B equal-width bins.

    Args:
        probs: Probabilities. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.
        bins: The number of equal-width bins.
        of: "top" judges the probability of the predicted class, a number c that of class c.

    Returns:
        A number between 0 and 1. Biased upward in small samples.

    Example:
        >>> round(ece(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0, 1])), 6)  # |0.9 - 1|/2 + |0.7 - 0|/2
        0.4
        >>> round(ece(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0, 1]), of=1), 6)
        0.4
    """
    rows, bins = check(probs, labels, weights), check_bins(bins)
    return gap_sums(rows, bins, of).abs().sum().item() / rows.total


def adaptive_ece(
    probs: Array, labels: Array, weights: Array | None = None, *, bins: int = BINS, of: Of = "top"
) -> float:
    """The ECE over B bins of equal mass; equal confidences share a bin.

    Args:
        probs: Probabilities. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.
        bins: The number of bins of equal mass.
        of: "top" judges the probability of the predicted class, a number c that of class c.

    Returns:
        A number between 0 and 1.

    Example:
        >>> round(adaptive_ece(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0, 1]), bins=1), 6)
        0.3
    """
    rows, bins = check(probs, labels, weights), check_bins(bins)
    confidence, outcome = events(rows, of)
    gap = gaps(confidence, outcome)
    index = mass_bins(confidence, rows.weigh(torch.ones_like(gap)), bins)
    return sum_by(index, rows.weigh(gap), bins).abs().sum().item() / rows.total


def classwise_ece(probs: Array, labels: Array, weights: Array | None = None, *, bins: int = BINS) -> float:
    """The mean over classes of ece(..., of=c).

    Args:
        probs: Probabilities. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.
        bins: The number of equal-width bins.

    Returns:
        A number between 0 and 1.

    Example:
        >>> round(classwise_ece(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0, 1])), 6)
        0.4
    """
    rows, bins = check(probs, labels, weights), check_bins(bins)
    cell, gap = classwise_gaps(rows, bins)
    classes = gap.shape[1]
    total = sum_by(cell.flatten(), rows.weigh(gap).flatten(), classes * bins)
    return total.abs().sum().item() / rows.total / classes


@dataclass(frozen=True)
class Reliability:
    """The numbers of a reliability diagram, bin by bin; an empty bin is NaN, never zero.

    Attributes:
        edges: Where bins begin and end. [B + 1]
        count: Rows, whatever their weight. [B]
        share: The share of the total weight. [B]
        effective: Kish's effective number of rows, (Σ w)² / Σ w². [B]
        confidence: The mean in the bin, not its centre. [B]
        accuracy: How often rows of the bin come true. [B]

    Example:
        >>> table = reliability(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0, 1]), bins=2)
        >>> table.confidence, table.accuracy, round(table.ece, 6)
        (array([nan, 0.8]), array([nan, 0.5]), 0.3)
        >>> table.interval(level=0.95)[1].round(3)
        array([0.095, 0.905])
    """

    edges: np.ndarray
    count: np.ndarray
    share: np.ndarray
    effective: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def standard_error(self) -> np.ndarray:
        """Binomial: sqrt(a (1 - a) / n) with the effective n."""
        return np.sqrt(self.accuracy * (1 - self.accuracy) / self.effective)

    def interval(self, level: float = LEVEL) -> np.ndarray:
        """Wilson's interval of the accuracy in each bin, [B, 2], at the `level`."""
        return np.stack(wilson(self.accuracy, self.effective, level), axis=1)

    @property
    def gap(self) -> np.ndarray:
        """confidence - accuracy, [B]: positive where overconfident."""
        return self.confidence - self.accuracy

    @property
    def ece(self) -> float:
        """Σ_b share_b |gap_b|."""
        return float(np.nansum(self.share * np.abs(self.gap)))

    @property
    def max_gap(self) -> float:
        """The maximum calibration error: the largest |gap| of a bin that is not empty."""
        return float(np.nanmax(np.abs(self.gap)))


def reliability(
    probs: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    bins: int = BINS,
    of: Of = "top",
    equal: Literal["width", "mass"] = "width",
) -> Reliability:
    """Mean confidence and accuracy by bins of confidence, of equal width or of equal mass.

    Args:
        probs: Probabilities. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.
        bins: The number of bins, B.
        of: "top" judges the probability of the predicted class, a number c that of class c.
        equal: "width" for equal steps of confidence, "mass" for equal shares of rows.

    Returns:
        The numbers of the diagram, bin by bin; `calmoe.render.plots.plot_reliability` draws them.

    Example:
        >>> reliability(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0, 1]), bins=4).count
        array([0, 0, 1, 1])
    """
    check_word("equal", equal, ("width", "mass"))
    rows, bins = check(probs, labels, weights), check_bins(bins)
    confidence, outcome = events(rows, of)
    mass = rows.weigh(torch.ones_like(confidence, dtype=torch.float64))
    return reliability_of(confidence, outcome, mass, bins=bins, equal=equal)


def reliability_of(
    confidence: Tensor,
    outcome: Tensor,
    mass: Tensor,
    *,
    bins: int = BINS,
    equal: Literal["width", "mass"] = "width",
) -> Reliability:
    """The diagram of any event: its probability, whether it came true, and the weight of each row, [N]."""
    if equal == "width":
        index = width_bins(confidence, bins)
        edges = np.arange(bins + 1) / bins
    else:
        index = mass_bins(confidence, mass, bins)
        edges = _mass_edges(confidence, index, bins)

    def total(values: Tensor) -> np.ndarray:
        return sum_by(index, values, bins).cpu().numpy()

    weight = total(mass)
    with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN of an empty bin
        return Reliability(
            edges=edges,
            count=total(torch.ones_like(mass)).astype(np.int64),
            share=weight / weight.sum(),
            effective=np.where(weight > 0, weight**2 / total(mass**2), np.nan),
            confidence=total(mass * confidence) / weight,
            accuracy=total(mass * outcome) / weight,
        )


def _mass_edges(confidence: Tensor, index: Tensor, bins: int) -> np.ndarray:
    """Each bin ends at its greatest confidence, so that bins are (a, b] here too; the last ends at 1."""
    top = confidence.new_zeros(bins).scatter_reduce_(0, index, confidence, "amax").cummax(0).values
    return np.concatenate([[0.0], top.double().cpu().numpy()[:-1], [1.0]])
