"""Predict how a mixture does on an unlabelled target from a labelled source, if E[Y | S] is the same.

All means over the target are doubly robust (`cross_fit`): a mean over target rows of what the source taught,
corrected by source labels under the weights of `density`.
"""

from dataclasses import dataclass

import numpy as np

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.target.assumption import Plausibility, over_splits, plausibility
from calmoe.auditing.target.checks import check_targets
from calmoe.auditing.target.cross_fit import cross_fitted
from calmoe.auditing.target.decimals import written_alike
from calmoe.auditing.target.density import DensityRatio, density_ratio
from calmoe.auditing.target.scores import Scores, observed_scores, predicted_scores
from calmoe.auditing.target.shift import Shift
from calmoe.auditing.target.temperature import Tempered, tempered
from calmoe.defaults import BINS, LEVEL
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions

ENOUGH = 100  # effective source rows: with fewer, nothing is predicted
MOST_BEYOND = 0.05  # the largest share of the target that may lie where the source has hardly a row
FURTHEST = 0.25  # how far the mean of the ratio may be from 1


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the source predicts for the target, or why it predicts nothing.

    Attributes:
        rows: The target's rows.
        ratio: How the two files differ.
        verdict: Why nothing can be predicted; None where something is.
        source: Scores by the source's labels.
        predicted: Under the assumption that E[Y | S] is the same.
        actual: By the target's own labels, where it has any.
        plain: A temperature fitted on the source.
        shifted: A temperature fitted with the weights for the target.
        plausibility: A test of the assumption on labelled target rows.

    Example:
        >>> from calmoe.worlds import calibrated
        >>> source, target = (calibrated(seed=0).sample(600, seed=s) for s in (0, 1))
        >>> result = predict_target(source, target)
        >>> result.rows, result.verdict
        (600, None)
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
    """Predict how the mixture will do on the target, if E[Y | S] is the same there.

    Labels of the target itself test the assumption too, and stand beside the predictions; they never enter
    a prediction.

    Args:
        source: Predictions with labels.
        target: Predictions of the same mixture elsewhere.
        labelled: More rows from there, with labels that test the assumption.
        of: "top" judges "the predicted class is right", a number c "the label is c".
        bins: The number of equal-width bins.
        level: The certainty of intervals.
        seed: Which rows are in which fold.

    Returns:
        The predicted scores, or why there are none.

    Example:
        >>> from calmoe.worlds.binary import cancelling, shifted
        >>> world = cancelling(seed=0)
        >>> elsewhere = shifted(world, seed=0)
        >>> target = predict_target(world.sample(2000, seed=0), elsewhere.sample(1000, seed=0))
        >>> target.predicted.accuracy.low < elsewhere.accuracy < target.predicted.accuracy.high
        True
    """
    check_targets(source, target, labelled)
    return predict_checked(source, target, labelled, of=of, bins=bins, level=level, seed=seed)


def predict_checked(
    source: Predictions,
    target: Predictions,
    labelled: Predictions | None,
    *,
    of: Of,
    bins: int,
    level: float,
    seed: int,
) -> Target:
    """`predict_target` for files that `check_targets` has let pass."""
    if labelled is None and target.labels is not None:
        labelled = target
    files = [source, target] if labelled is None else [source, target, labelled]
    alike = written_alike(files)
    here, there, *tests = (Configurations.of(rows, of) for rows in alike)
    as_read = (here, there) if alike[0] is source else [Configurations.of(rows, of) for rows in files[:2]]
    ratio = density_ratio(here, there, level=level, seed=seed)
    verdict = _why_nothing(ratio)
    predicted, plain, shifted, test = None, None, None, None
    if verdict is None:
        asked = [rows.features() for rows in (there, *tests)]
        learned, *tested = cross_fitted(here.features(), asked, here.residual, ratio.fold, seed)
        shift = Shift(
            source=source,
            target=target,
            here=here,
            there=there,
            ratio=ratio,
            learned=learned,
            of=of,
            bins=bins,
            level=level,
        )
        predicted = predicted_scores(shift)
        plain, shifted = tempered(shift, np.ones(len(source))), tempered(shift, ratio.weights)
        for extra in tests:
            first = plausibility(extra, tested[0].by_fold, here, learned.source, ratio, level)
            test = over_splits(first, extra, here, there, level, seed)
    return Target(
        rows=len(target),
        ratio=ratio,
        verdict=verdict,
        source=observed_scores(source, as_read[0], of, bins, level),
        predicted=predicted,
        actual=None if target.labels is None else observed_scores(target, as_read[1], of, bins, level),
        plain=plain,
        shifted=shifted,
        plausibility=test,
    )


def _why_nothing(ratio: DensityRatio) -> str | None:
    """Why nothing can be predicted; None where something can."""
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
