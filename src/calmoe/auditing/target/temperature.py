"""A temperature on the target: what ECE it will leave there.

A temperature T changes f to f_T and leaves E[Y | S] alone. So with the learned m(S) the target's gaps after T
are E_target[(m(S) − f_T) 1_b(f_T)], corrected as in `target` by source residuals Y − m(S): nothing needs to
be learned again. T itself is fitted without the rows that it is judged on, fold by fold.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtri

from calmoe.auditing.statistics.estimates import NONE, Estimate, ece_from, predicted_gaps
from calmoe.auditing.target.density import FOLDS, DensityRatio
from calmoe.calibration import CalibrationWarning, Temperature
from calmoe.metrics.binned import width_bins
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions


@dataclass(frozen=True, kw_only=True)
class Tempered:
    """A temperature of all source rows, with the interval that the weights' own error is not part of.

    ece: predicted for the target, after temperatures of the other folds' rows.
    """

    temperature: Estimate
    ece: Estimate


def tempered(
    source: Predictions,
    target: Predictions,
    expected: np.ndarray,
    left: np.ndarray,
    noise: np.ndarray,
    ratio: DensityRatio,
    weights: np.ndarray | None,
    of: Of,
    bins: int,
    level: float,
) -> Tempered:
    """weights: T is fitted with them; expected: m(S) there [N]; left: Y − m(S), noise: f (1 − f), [n]."""
    logs, labels = source.output.log_probs.double(), source.known_labels
    logs_there = target.output.log_probs.double()
    even = np.ones(len(logs)) if weights is None else weights
    gaps, covariance = np.zeros(bins), np.zeros((bins, bins))
    index = np.empty(len(logs), int)
    first = []
    for k in range(FOLDS):
        held = torch.as_tensor(ratio.fold == k)
        fitted = _fit(logs[~held], labels[~held], even[~held.numpy()])
        index[held.numpy()] = width_bins(_event(fitted.transform(logs[held]), of), bins).numpy()
        confidence = _event(fitted.transform(logs_there), of)
        first.append((expected - confidence.numpy(), width_bins(confidence, bins).numpy()))
    for values, index_there in first:
        some, errors = predicted_gaps(values, index_there, left, index, ratio.weights, bins, noise)
        gaps += some / FOLDS
        covariance += errors / FOLDS
    final = _fit(logs, labels, even)
    return Tempered(
        temperature=_interval(final, logs, labels, even, level),
        ece=ece_from(gaps, covariance, level),
    )


def _fit(logs: torch.Tensor, labels: torch.Tensor, weights: np.ndarray) -> Temperature:
    """As `ShiftedTemperature`, which would refuse three folds where all four have just enough rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the interval, NaN then, says it
        return Temperature().fit(logs, labels, weights)


def _event(logs: torch.Tensor, of: Of) -> torch.Tensor:
    return (logs.amax(dim=1) if of == "top" else logs[:, of]).exp()


def _interval(
    fitted: Temperature, logs: torch.Tensor, labels: torch.Tensor, weights: np.ndarray, level: float
) -> Estimate:
    """From the score's sandwich in β = 1/T: Var β = Σ a² s² / (Σ a Var_β(z))², s = z_Y − E_β[z]."""
    value = fitted.temperature_
    if fitted.status_ != "optimum":
        return NONE._replace(value=value)
    scores = (logs - logs.amax(dim=1, keepdim=True)).clamp(min=-1e6)
    of_label = logs.gather(1, labels[:, None]).squeeze(1)
    kept = of_label > -torch.inf
    scores, weight = scores[kept], torch.as_tensor(weights)[kept]
    probs = torch.softmax(scores / value, dim=1)
    expected = (probs * scores).sum(dim=1)
    variance = (probs * (scores - expected[:, None]).square()).sum(dim=1)
    slope = scores.gather(1, labels[kept, None]).squeeze(1) - expected
    error = float((weight * slope).square().sum().sqrt() / (weight * variance).sum())
    relative = error * value  # of β, and so of T
    half = float(np.exp(ndtri((1 + level) / 2) * relative))
    return Estimate(value, value / half, value * half, relative * value)
