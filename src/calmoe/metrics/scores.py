"""Accuracy and the proper scores."""

from typing import NamedTuple

import torch
from torch import Tensor

from calmoe.arrays import Array, check_bins
from calmoe.defaults import BINS
from calmoe.metrics.binned import classwise_gaps, subtract_label, sum_by
from calmoe.metrics.checks import Rows, check, check_log


def accuracy(probs: Array, labels: Array, weights: Array | None = None) -> float:
    """The share of rows whose most probable class is the label; of equal classes the first is predicted.

    Args:
        probs: Probabilities. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.

    Returns:
        A number between 0 and 1.

    Example:
        >>> accuracy(torch.tensor([[0.9, 0.1], [0.7, 0.3]]), torch.tensor([0, 1]))
        0.5
    """
    rows = check(probs, labels, weights)
    return rows.mean(hits(rows))


def nll(log_probs: Array, labels: Array, weights: Array | None = None) -> float:
    """Negative log-likelihood -E log p_y, of log-probabilities; a label of probability zero gives inf.

    Args:
        log_probs: Log-probabilities. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.

    Returns:
        Nats a row; lower is better.

    Example:
        >>> round(nll(torch.tensor([[0.9, 0.1], [0.7, 0.3]]).log(), torch.tensor([0, 1])), 4)
        0.6547
    """
    rows = check_log(log_probs, labels, weights)
    return rows.mean(log_losses(rows.probs, rows.labels))


def brier_score(probs: Array, labels: Array, weights: Array | None = None) -> float:
    """E sum_c (p_c - 1[y = c])^2, from 0 to 2.

    Args:
        probs: Probabilities. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.

    Returns:
        A number between 0 and 2; lower is better.

    Example:
        >>> round(brier_score(torch.tensor([[0.9, 0.1], [0.7, 0.3]]), torch.tensor([0, 1])), 6)
        0.5
    """
    rows = check(probs, labels, weights)
    return rows.mean(squared_errors(rows))


class BrierDecomposition(NamedTuple):
    """Three terms that add up to the Brier score.

    Attributes:
        calibration: Σ share (confidence − accuracy)², over bins and classes: 0 where the probabilities are
            true.
        refinement: Σ share accuracy (1 − accuracy): low where the model tells rows apart.
        within_bins: What bins hide: 0 where predictions are constant in each.

    Example:
        >>> sum(BrierDecomposition(calibration=0.25, refinement=0.5, within_bins=0.0))
        0.75
    """

    calibration: float
    refinement: float
    within_bins: float


def brier_decomposition(
    probs: Array, labels: Array, weights: Array | None = None, *, bins: int = BINS
) -> BrierDecomposition:
    """The Brier score = calibration + refinement + within_bins, by bins of p_c, summed over the classes c.

    calibration = sum share (conf - acc)^2 and refinement = sum share acc (1 - acc); within_bins, the variance
    of p in its bin less twice its covariance with y, is 0 when predictions are constant in each bin.

    Args:
        probs: Probabilities. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.
        bins: The number of equal-width bins.

    Returns:
        The three terms.

    Example:
        >>> terms = brier_decomposition(torch.tensor([[0.8, 0.2]] * 4), torch.tensor([0, 0, 1, 1]))
        >>> [round(term, 6) for term in terms]
        [0.18, 0.5, 0.0]
    """
    rows, bins = check(probs, labels, weights), check_bins(bins)
    cell, gap = classwise_gaps(rows, bins)
    cells = gap.shape[1] * bins
    index, share = cell.flatten(), rows.weigh(torch.ones_like(gap)).flatten() / rows.total
    p = rows.probs.double().flatten()
    y = p - gap.flatten()
    mass = sum_by(index, share, cells)
    present = mass.clamp(min=torch.finfo(torch.float64).tiny)
    confidence, frequency = (
        sum_by(index, share * p, cells) / present,
        sum_by(index, share * y, cells) / present,
    )
    inner_p, inner_y = p - confidence[index], y - frequency[index]
    return BrierDecomposition(
        calibration=float((mass * (confidence - frequency) ** 2).sum()),
        refinement=float((mass * frequency * (1 - frequency)).sum()),
        within_bins=float((share * inner_p * (inner_p - 2 * inner_y)).sum()),
    )


def hits(rows: Rows) -> Tensor:
    """1[argmax p = y], [N]."""
    return (rows.probs.argmax(1) == rows.labels).double()


def log_losses(log_probs: Tensor, labels: Tensor) -> Tensor:
    """-log p_y, [N], from log-probabilities [N, C]; never below 0."""
    return -log_probs.gather(1, labels[:, None]).squeeze(1).double().clamp(max=0)


def possible(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Whether the label has a probability above zero, [N], from log-probabilities or logits [N, C].

    >>> possible(torch.tensor([[0.5, 0.5], [1.0, 0.0]]).log(), torch.tensor([1, 1]))
    tensor([ True, False])
    """
    return log_probs.gather(1, labels[:, None]).squeeze(1) > -torch.inf


def squared_errors(rows: Rows) -> Tensor:
    """sum_c (p_c - 1[y = c])^2, [N]."""
    return subtract_label(rows.probs.double(), rows.labels).square().sum(1)
