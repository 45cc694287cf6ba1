"""Means over a target from a labelled source, right if either of two learned things is ("doubly robust").

For any value Z of a row (right or wrong, a loss) and its mean μ(S) as learned on the source,

    E_target[Z] = E_target[μ(S)] + E_source[a(S) (Z − μ(S))],    a = dP_target / dP_source  (`density`).

The first term is a mean over target rows, the second corrects it on source labels. The error is the product
of those of μ and a, and so cross-fitted estimates of both leave the normal interval intact; ordinary folds
suffice, since what one fold teaches another enters through that product only. The models learn μ as a
correction to what the mixture itself expects: Z − E_f[Z], zero if calibrated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from calmoe.auditing.configurations import Features
from calmoe.auditing.statistics.boosting import one_thread, small_trees
from calmoe.auditing.statistics.estimates import RARE, Estimate, binned_means, mean, normal
from calmoe.auditing.statistics.sequential import MOST_TO_LEARN
from calmoe.auditing.target.density import FOLDS
from calmoe.auditing.target.reading import reading
from calmoe.defaults import LEVEL


@dataclass(frozen=True, kw_only=True)
class CrossFitted:
    """μ(S) − E_f[Z] of a value Z: for source rows by the model of the other folds, for target rows by all."""

    source: np.ndarray  # [n]
    by_fold: np.ndarray  # [folds, N]

    @property
    def target(self) -> np.ndarray:
        """The mean over the folds' models, none of which saw a target row. [N]"""
        return self.by_fold.mean(axis=0)


def cross_fitted(
    source: Features, targets: Sequence[Features], values: np.ndarray, fold: np.ndarray, seed: int = 0
) -> list[CrossFitted]:
    """Gradient boosting of the values [n] on the source's features, fold by fold; of each target its own."""
    table, asked = source.table(), [target.table() for target in targets]
    expected, answers = np.empty(len(values)), [np.empty((FOLDS, len(rows))) for rows in asked]
    for k in range(FOLDS):
        others = np.random.default_rng(seed).permutation(np.flatnonzero(fold != k))[:MOST_TO_LEARN]
        boosting = HistGradientBoostingRegressor(
            learning_rate=0.1, max_iter=60, **small_trees(len(others), seed)
        )
        model = reading(boosting, source)
        with one_thread():
            model.fit(table[others], values[others])
            expected[fold == k] = model.predict(table[fold == k])
            for by_fold, rows in zip(answers, asked, strict=True):
                by_fold[k] = model.predict(rows)
    return [CrossFitted(source=expected, by_fold=by_fold) for by_fold in answers]


def predicted_mean(
    surplus: np.ndarray,
    known: np.ndarray,
    learned: CrossFitted,
    weights: np.ndarray,
    level: float = LEVEL,
    *,
    noise: np.ndarray | None = None,
) -> Estimate:
    """E_target[Z] from the source's Z − E_f[Z] [n] and the target's E_f[Z] [N].

    noise: f (1 − f) of the source rows, where Z is right or wrong: a few errors must not look certain, as in
    `estimates.spread`.
    """
    first = mean(known + learned.target, level)
    unexplained = surplus - learned.source
    correction = float(weights @ unexplained / weights.sum())
    squares = float((weights**2 * (unexplained - correction) ** 2).sum())
    if noise is not None:
        heaviest = float(weights.max()) ** 2
        squares = max(squares, min(float((weights**2 * noise).sum()), RARE * heaviest)) + heaviest / 2
    error = squares**0.5 / float(weights.sum())
    return normal(first.value + correction, float(np.hypot(first.standard_error, error)), level)


def predicted_gaps(
    there: np.ndarray,
    index_there: np.ndarray,
    unexplained: np.ndarray,
    index: np.ndarray,
    weights: np.ndarray,
    bins: int,
    noise: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """E[v 1_b] of target rows v plus the source's weighted E[a u 1_b], [B], with their covariance [B, B].

    u, `unexplained`: the source's residuals. noise: f (1 − f) of the source rows. A bin with target rows but
    no source row has the variance of an unknown residual of ±½.
    """
    first, error_there = binned_means(there, index_there, bins)
    correction, error = binned_means(unexplained, index, bins, weights, noise)
    share = np.bincount(index_there, minlength=bins) / len(there)
    unknown = np.where(np.bincount(index, minlength=bins) == 0, share**2 / 4, 0.0)
    return first + correction, error_there + error + np.diag(unknown)
