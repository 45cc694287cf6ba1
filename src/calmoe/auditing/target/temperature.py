"""Fit a temperature for the target on weighted source rows, and predict the ECE that it leaves there.

A temperature T changes f to f_T and leaves E[Y | S] alone. So with the learned m(S) the target's gaps after T
are E_target[(m(S) − f_T) 1_b(f_T)], corrected as in `scores` by source residuals Y − m(S), and there is
nothing to learn again. Each fold of the source judges a T fitted on the other folds.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtri

from calmoe.auditing.statistics.estimates import NONE, Estimate, ece_from
from calmoe.auditing.target.cross_fit import predicted_gaps
from calmoe.auditing.target.density import FOLDS
from calmoe.auditing.target.shift import Shift
from calmoe.calibration import CalibrationWarning, Temperature
from calmoe.metrics.binned import width_bins
from calmoe.metrics.checks import Of
from calmoe.metrics.scores import possible


@dataclass(frozen=True, kw_only=True)
class Tempered:
    """A temperature fitted on all source rows; its interval takes the weights as exact.

    Attributes:
        temperature: T.
        ece: Predicted for the target, after temperatures of the other folds' rows.

    Example:
        >>> t, error = Estimate(1.5, 1.3, 1.7, 0.1), Estimate(0.02, 0.0, 0.04, 0.01)
        >>> Tempered(temperature=t, ece=error).temperature
        Estimate(1.5, [1.3, 1.7])
    """

    temperature: Estimate
    ece: Estimate


def tempered(shift: Shift, weights: np.ndarray) -> Tempered:
    """Fit T on the source with these weights [n], and predict the ECE that it leaves on the target."""
    logs, labels = shift.source.output.log_probs.double(), shift.source.known_labels
    logs_there, bins, ratio = shift.target.output.log_probs.double(), shift.bins, shift.ratio
    expected = shift.there.confidence + shift.learned.target  # m(S) of the target rows
    index = np.empty(len(logs), int)
    by_fold = []
    for k in range(FOLDS):
        held = torch.as_tensor(ratio.fold == k)
        fitted = _fit(logs[~held], labels[~held], weights[~held.numpy()])
        index[held.numpy()] = width_bins(_event(fitted.transform(logs[held]), shift.of), bins).numpy()
        confidence = _event(fitted.transform(logs_there), shift.of)
        by_fold.append((expected - confidence.numpy(), width_bins(confidence, bins).numpy()))
    gaps, covariance = np.zeros(bins), np.zeros((bins, bins))
    source = shift.unexplained, index, ratio.weights, bins, shift.here.noise
    for values, index_there in by_fold:
        fold_gaps, errors = predicted_gaps(values, index_there, *source)
        gaps += fold_gaps / FOLDS
        covariance += errors / FOLDS
    final = _fit(logs, labels, weights)
    return Tempered(
        temperature=_interval(final, logs, labels, weights, shift.level),
        ece=ece_from(gaps, covariance, shift.level),
    )


def _fit(logs: torch.Tensor, labels: torch.Tensor, weights: np.ndarray) -> Temperature:
    """As `ShiftedTemperature`, which would refuse three folds where all four have just enough rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # a NaN interval says the same
        return Temperature().fit(logs, labels, weights)


def _event(logs: torch.Tensor, of: Of) -> torch.Tensor:
    return (logs.amax(dim=1) if of == "top" else logs[:, of]).exp()


def _interval(
    fitted: Temperature, logs: torch.Tensor, labels: torch.Tensor, weights: np.ndarray, level: float
) -> Estimate:
    """By the sandwich variance of β = 1/T: Var β = Σ a² s² / (Σ a Var_β(z))², s = z_Y − E_β[z]."""
    value = fitted.temperature_
    if fitted.status_ != "optimum":
        return NONE._replace(value=value)
    scores = (logs - logs.amax(dim=1, keepdim=True)).clamp(min=-1e6)
    kept = possible(logs, labels)
    scores, weight = scores[kept], torch.as_tensor(weights)[kept]
    probs = torch.softmax(scores / value, dim=1)
    expected = (probs * scores).sum(dim=1)
    variance = (probs * (scores - expected[:, None]).square()).sum(dim=1)
    slope = scores.gather(1, labels[kept, None]).squeeze(1) - expected
    error = float((weight * slope).square().sum().sqrt() / (weight * variance).sum())
    relative = error * value  # of β, and so of T
    half = float(np.exp(ndtri((1 + level) / 2) * relative))
    return Estimate(value, value / half, value * half, relative * value)
