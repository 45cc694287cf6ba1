"""What the labelled source says about an unlabelled target, if E[Y | S] is the same in both.

All means over the target are `doubly_robust`: what was learned on the source, over target rows, corrected by
source labels under the weights of `density`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.sections.surface import diagram
from calmoe.auditing.statistics.estimates import (
    NONE,
    Estimate,
    binned_gap,
    ece_from,
    mean,
    predicted_gaps,
    proportion,
    within,
)
from calmoe.auditing.target.assumption import FEWEST as FEWEST_LABELLED
from calmoe.auditing.target.assumption import Plausibility, over_splits, plausibility
from calmoe.auditing.target.cross_fit import Learned, learn, predicted_mean
from calmoe.auditing.target.density import FEWEST, DensityRatio, density_ratio
from calmoe.auditing.target.losses import RANGES, losses_of
from calmoe.auditing.target.temperature import Tempered, tempered
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError
from calmoe.metrics.checks import Of
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions

ENOUGH = 100  # effective source rows below which nothing is predicted
MOST_BEYOND = 0.05  # the largest share of the target that may lie where the source has hardly a row
FURTHEST = 0.25  # how far the mean of the ratio may be from 1


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How good the probabilities are on one population: found on its labels, or predicted for it.

    accuracy: E[Y] of the event; ece: Σ_b |E[D 1_b]| at equal-width bins, with `total_gap`'s interval; nll,
    brier: the proper scores of all classes; NaN where a label has probability zero. The diagram, bin by bin:
    the share of rows, their mean confidence, how often they are right, with an interval each; NaN where a
    bin is empty.
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


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is predicted for the target, or why nothing is.

    verdict: why nothing can be predicted; None where something is. predicted: under the assumption that
    E[Y | S] is the same; actual: by the target's own labels, where it has any. source: by the source's.
    plain, shifted: a temperature fitted on the source, and one fitted with the weights for the target.
    plausibility: a test of the assumption on labelled target rows.
    """

    rows: int
    ratio: DensityRatio
    verdict: str | None
    source: Scores
    predicted: Scores | None
    actual: Scores | None
    plain: Tempered | None
    shifted: Tempered | None
    plausibility: Plausibility | None


def predict_target(
    source: Predictions,
    target: Predictions,
    labelled: Predictions | None = None,
    *,
    of: Of = "top",
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
) -> Target:
    """Predict how the mixture will do on the target; labelled: target rows that test the assumption.

    Where the target itself has labels, they test it, and are shown beside what was predicted; no label of
    the target is used to predict.

    >>> from calmoe.worlds.binary import cancelling, shifted
    >>> world = cancelling(seed=0)
    >>> elsewhere = shifted(world, seed=0)
    >>> found = predict_target(world.sample(2000, seed=0), elsewhere.sample(1000, seed=0))
    >>> found.predicted.accuracy.low < elsewhere.accuracy < found.predicted.accuracy.high
    True
    """
    if labelled is None and target.labels is not None:
        labelled = target
    for name, other in (("target", target), ("labelled target", labelled)):
        if other is not None:
            check_target(source, other, name)
    seen, there = Configurations.of(source, of), Configurations.of(target, of)
    ratio = density_ratio(seen, there, level=level, seed=seed)
    verdict = _verdict(ratio)
    actual = None if target.labels is None else _found(target, there, of, bins, level)
    found, plain, shifted, tested = None, None, None, None
    if verdict is None:
        features, features_there = seen.features(), there.features()
        extra = None if labelled is None else Configurations.of(labelled, of)
        asked = features_there if extra is None else np.concatenate([features_there, extra.features()])
        learned = learn(features, asked, seen.residual, ratio.fold, seed)
        gaps_labelled = learned.by_fold[:, len(there) :]
        learned = Learned(source=learned.source, by_fold=learned.by_fold[:, : len(there)])
        scores: dict[str, Any] = {
            name: _score(name, source, target, learned, ratio, of, level) for name in ("nll", "brier")
        }
        about = seen.residual, there.confidence, learned, ratio.weights, level
        found = Scores(
            accuracy=within(predicted_mean(*about, noise=seen.noise), 0.0, 1.0),
            **_binned(seen, there, learned, ratio.weights, bins, level),
            **scores,
        )
        left = seen.residual - learned.source
        plain, shifted = (
            tempered(
                source,
                target,
                there.confidence + learned.target,
                left,
                seen.noise,
                ratio,
                weights,
                of,
                bins,
                level,
            )
            for weights in (None, ratio.weights)
        )
        if extra is not None:
            tested = plausibility(extra, gaps_labelled, seen, learned.source, ratio, level)
            tested = over_splits(tested, extra, seen, there, level, seed)
    return Target(
        rows=len(target),
        ratio=ratio,
        verdict=verdict,
        source=_found(source, seen, of, bins, level),
        predicted=found,
        actual=actual,
        plain=plain,
        shifted=shifted,
        plausibility=tested,
    )


def check_target(source: Predictions, target: Predictions, name: str = "target") -> None:
    """One line where two files cannot be of the same mixture."""
    for what, ours, theirs in (
        ("classes", source.num_classes, target.num_classes),
        ("experts", source.num_experts, target.num_experts),
    ):
        if ours != theirs:
            raise InputError(
                f"the source has {ours} {what} and the {name} {theirs}: give predictions of the same mixture"
            )
    if name == "target" and len(target) < FEWEST:
        raise InputError(f"the target has {len(target)} rows; at least {FEWEST} are needed to know it")
    if name == "labelled target" and target.labels is None:
        raise InputError("the labelled target carries no labels: give rows that do, or leave it out")
    if name == "labelled target" and len(target) < FEWEST_LABELLED:
        raise InputError(
            f"there are {len(target)} labelled target rows: a test needs at least {FEWEST_LABELLED}"
        )
    if (shared := _shared(source, target)) > 0.5:
        raise InputError(
            f"{shared:.0%} of the {name}'s rows are rows of the source, whose labels would judge what they "
            "taught: give rows that the source does not hold"
        )


def _shared(source: Predictions, target: Predictions) -> float:
    """The share of target rows that the source holds just once: chance would not find so many of those."""

    def marks(output: MixtureOutput) -> np.ndarray:  # a number a row, by what router and experts say
        said = torch.cat([output.log_routing.exp(), output.expert_log_probs.exp().flatten(1)], dim=1).double()
        return (said @ torch.linspace(1, 2, said.shape[1], dtype=said.dtype).sqrt()).numpy().round(9)

    ours, theirs = marks(source.output), marks(target.output)
    values, counts = np.unique(ours, return_counts=True)
    return 1.0 if np.array_equal(ours, theirs) else float(np.isin(theirs, values[counts == 1]).mean())


def _verdict(ratio: DensityRatio) -> str | None:
    """Why nothing can be predicted."""
    if ratio.beyond > MOST_BEYOND:
        return (
            f"{ratio.beyond:.0%} of the target lies in configurations that the source hardly has "
            f"(a classifier tells the files apart with AUC {ratio.auc.value:.3f})"
        )
    if abs(ratio.covered - 1) > FURTHEST:
        return f"the density ratio does not add up: its mean over the source is {ratio.covered:.2f}, not 1"
    if ratio.effective < ENOUGH:
        return (
            f"weighted towards the target, the source's labels count for {ratio.effective:.0f} effective "
            f"rows; at least {ENOUGH} are needed"
        )
    return None


def _binned(
    seen: Configurations,
    there: Configurations,
    learned: Learned,
    weights: np.ndarray,
    bins: int,
    level: float,
) -> dict[str, Any]:
    """The predicted ECE and the reliability diagram."""
    index, index_there = seen.bins(bins), there.bins(bins)
    gaps, covariance = predicted_gaps(
        learned.target, index_there, seen.residual - learned.source, index, weights, bins, seen.noise
    )
    counts = np.bincount(index_there, minlength=bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = counts / counts.sum()
        confidence = np.bincount(index_there, there.confidence, minlength=bins) / counts
        gap = gaps / share
        # of a ratio: what a row adds is its value less the ratio
        centred = (
            learned.target
            - np.nan_to_num(np.bincount(index_there, learned.target, bins) / counts)[index_there]
        )
        left = seen.residual - learned.source
        _, errors = predicted_gaps(centred, index_there, left, index, weights, bins, seen.noise)
        half = float(ndtri((1 + level) / 2)) * np.sqrt(np.diag(errors)) / share
    right = confidence + gap
    return {
        "ece": ece_from(gaps, covariance, level),
        "share": share,
        "confidence": confidence,
        "right": np.clip(right, 0, 1),
        "right_low": np.clip(right - half, 0, 1),
        "right_high": np.clip(right + half, 0, 1),
    }


def _score(
    name: str,
    source: Predictions,
    target: Predictions,
    learned: Learned,
    ratio: DensityRatio,
    of: Of,
    level: float,
) -> Estimate:
    """A proper score on the target: what the mixture expects of itself there, and what it is off by.

    Where the event is h more probable than f, the loss is h (Z(event) − E_f[Z | not the event]) more: exact
    for two classes, and for more if the mixture is right about which of the others; what it is not, source
    labels correct.
    """
    losses, own, slope = losses_of(name, source, of)
    _, own_there, slope_there = losses_of(name, target, of)
    if losses is None or not np.isfinite(losses).all():
        return NONE
    scaled = Learned(source=learned.source * slope, by_fold=learned.by_fold * slope_there)
    return within(predicted_mean(losses - own, own_there, scaled, ratio.weights, level), *RANGES[name])


def _found(predictions: Predictions, seen: Configurations, of: Of, bins: int, level: float) -> Scores:
    """By the population's own labels: no shift, all rows alike, nothing learned."""
    assert seen.outcome is not None
    scores: dict[str, Any] = {}
    for name in ("nll", "brier"):
        losses, *_ = losses_of(name, predictions, of)
        assert losses is not None
        scores[name] = within(mean(losses, level), *RANGES[name]) if np.isfinite(losses).all() else NONE
    shown = diagram(seen, bins=bins, level=level)
    return Scores(
        accuracy=proportion(float(seen.outcome.mean()), len(seen), level),
        ece=binned_gap(seen.residual, seen.bins(bins), bins, level=level, noise=seen.noise),
        **scores,
        share=shown.count / len(seen),
        confidence=shown.confidence,
        right=shown.right,
        right_low=shown.right_low,
        right_high=shown.right_high,
    )
