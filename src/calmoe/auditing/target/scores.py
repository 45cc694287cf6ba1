"""How good the probabilities are on a population: counted on its own labels, or predicted from a source."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import (
    NONE,
    Estimate,
    binned_gap,
    ece_from,
    mean,
    proportion,
    within,
)
from calmoe.auditing.target.cross_fit import CrossFitted, predicted_gaps, predicted_mean
from calmoe.auditing.target.losses import RANGES, losses_of
from calmoe.auditing.target.shift import Shift
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How good the probabilities are on one population.

    Attributes:
        accuracy: E[Y] of the event.
        ece: Σ_b |E[D 1_b]| at equal-width bins, with `total_gap`'s interval.
        nll: The log loss of all classes; NaN where a label has probability zero.
        brier: The Brier score of all classes.
        share: The share of rows, bin by bin. [B]
        confidence: Their mean confidence; NaN where a bin is empty. [B]
        right: How often they are right. [B]
        right_low: The lower ends of its intervals. [B]
        right_high: The upper ends. [B]

    Example:
        >>> from calmoe.worlds import calibrated
        >>> rows = calibrated(seed=0).sample(300, seed=0)
        >>> scores = observed_scores(rows, Configurations.of(rows), of="top", bins=10, level=0.95)
        >>> scores.ece.low, round(float(scores.share.sum()), 6)
        (0.0, 1.0)
    """

    accuracy: Estimate
    ece: Estimate
    nll: Estimate
    brier: Estimate
    share: np.ndarray  # [B]
    confidence: np.ndarray  # [B]
    right: np.ndarray  # [B]
    right_low: np.ndarray  # [B]
    right_high: np.ndarray  # [B]


def observed_scores(
    predictions: Predictions, configurations: Configurations, of: Of, bins: int, level: float
) -> Scores:
    """By the population's own labels: no shift, equal weights, nothing learned."""
    scores: dict[str, Any] = {}
    for name in ("nll", "brier"):
        losses, *_ = losses_of(name, predictions, of)
        assert losses is not None
        scores[name] = within(mean(losses, level), *RANGES[name]) if np.isfinite(losses).all() else NONE
    rows, index = len(configurations), configurations.bins(bins)
    table = configurations.reliability(bins)
    low, high = table.interval(level).T
    return Scores(
        accuracy=proportion(float(configurations.known_outcome.mean()), rows, level),
        ece=binned_gap(configurations.residual, index, bins, level=level, noise=configurations.noise),
        **scores,
        share=table.count / rows,
        confidence=table.confidence,
        right=table.accuracy,
        right_low=low,
        right_high=high,
    )


def predicted_scores(shift: Shift) -> Scores:
    """What the source's labels say about the target, if E[Y | S] is the same in both."""
    here, there = shift.here, shift.there
    accuracy = predicted_mean(
        here.residual, there.confidence, shift.learned, shift.ratio.weights, shift.level, noise=here.noise
    )
    return Scores(
        accuracy=within(accuracy, 0.0, 1.0),
        **_binned(shift),
        nll=_proper_score("nll", shift),
        brier=_proper_score("brier", shift),
    )


def _binned(shift: Shift) -> dict[str, Any]:
    """The predicted ECE and the reliability diagram."""
    here, there, bins, surplus = shift.here, shift.there, shift.bins, shift.learned.target
    index, index_there = here.bins(bins), there.bins(bins)
    source = shift.unexplained, index, shift.ratio.weights, bins, here.noise
    gaps, covariance = predicted_gaps(surplus, index_there, *source)
    counts = np.bincount(index_there, minlength=bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = counts / counts.sum()
        confidence = np.bincount(index_there, there.confidence, minlength=bins) / counts
        # a row's influence on a ratio is its value less the ratio
        average = np.nan_to_num(np.bincount(index_there, surplus, bins) / counts)
        _, errors = predicted_gaps(surplus - average[index_there], index_there, *source)
        right = confidence + gaps / share
        half = float(ndtri((1 + shift.level) / 2)) * np.sqrt(np.diag(errors)) / share
    return {
        "ece": ece_from(gaps, covariance, shift.level),
        "share": share,
        "confidence": confidence,
        "right": np.clip(right, 0, 1),
        "right_low": np.clip(right - half, 0, 1),
        "right_high": np.clip(right + half, 0, 1),
    }


def _proper_score(name: str, shift: Shift) -> Estimate:
    """A proper score on the target: what the mixture expects of itself there, plus what it is off by.

    Where the event is h more probable than f, the loss is h (Z(event) − E_f[Z | not the event]) more: exact
    for two classes, and for more if the mixture is right about which of the others. Source labels correct
    what it is not right about.
    """
    losses, own, slope = losses_of(name, shift.source, shift.of)
    _, own_there, slope_there = losses_of(name, shift.target, shift.of)
    if losses is None or not np.isfinite(losses).all():
        return NONE
    learned = shift.learned
    scaled = CrossFitted(source=learned.source * slope, by_fold=learned.by_fold * slope_there)
    score = predicted_mean(losses - own, own_there, scaled, shift.ratio.weights, shift.level)
    return within(score, *RANGES[name])
