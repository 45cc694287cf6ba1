"""The density ratio a(S) = dP_target / dP_source of two files' configurations, from a classifier of the file.

A classifier that tells the files apart knows their ratio: a(S) = (n/N) p/(1 − p), where p is the probability
that a row with S is one of the N target rows and not one of the n source rows.

Rows come in folds, and models of the other folds weight each. Ordinary folds suffice here, unlike in
`statistics.sequential`: the classifier never sees a label, so given all configurations the weights are fixed
numbers for the residuals they multiply. Only the AUC, whether a classifier can tell the files apart at all,
suffers from folds that teach each other; its interval is wider for that (see `_auc`).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import logit
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

from calmoe.arrays import UNSAVED
from calmoe.auditing.configurations import Configurations, Features
from calmoe.auditing.statistics.boosting import one_thread, small_trees
from calmoe.auditing.statistics.estimates import Estimate, normal, within
from calmoe.auditing.statistics.sequential import MOST_TO_LEARN
from calmoe.auditing.target.reading import reading
from calmoe.defaults import LEVEL
from calmoe.errors import InputError

FOLDS, INNER = 4, 2
FEWEST_ROWS = 100  # that each file needs
FEW = 100  # different numbers in a column: a sum of constant weights, a tree's leaves
DIGITS = 5  # after the point, in which float32 and float64 agree
STILL, APART = 1e-3, 2e-3  # how far a constant moves within a file and between files in half precision
FOR_SPLINES = 20_000  # rows that they learn from: splines have few parameters


@dataclass(frozen=True, kw_only=True)
class DensityRatio:
    """a(S) = dP_target / dP_source of the source rows, and how far to trust it.

    Attributes:
        weights: a(S) of each source row by a model that did not see it, clipped at √n and divided by its
            mean. [n]
        fold: The fold of each source row. [n]
        clip: √n, so that no row counts for more than √n rows (Ionides' rule: consistent, with finite
            variance).
        clipped: The share of source rows with a clipped weight.
        beyond: The share of target rows whose ratio lies above the clip, configurations that the source
            hardly has.
        covered: The mean of a(S) over the source before the division; 1 if the ratio is right, less where the
            source lacks part of the target.
        effective: Kish's effective number of source rows, (Σ a)² / Σ a².
        auc: How well a classifier tells the files apart on rows that it did not see; ½: not at all.

    Example:
        >>> from calmoe.worlds import cancelling
        >>> source, target = (Configurations.of(cancelling(seed=0).sample(300, seed=s)) for s in (1, 2))
        >>> round(float(density_ratio(source, target).weights.mean()), 6)
        1.0
    """

    weights: np.ndarray = field(metadata=UNSAVED)  # [n]
    fold: np.ndarray = field(metadata=UNSAVED)  # [n] the fold of each source row
    clip: float
    clipped: float
    beyond: float
    covered: float
    effective: float
    auc: Estimate


def density_ratio(
    source: Configurations, target: Configurations, *, level: float = LEVEL, seed: int = 0
) -> DensityRatio:
    """Learn a(S) = dP_target / dP_source from two files, cross-fitted and calibrated.

    Args:
        source: The rows with labels, as configurations.
        target: The rows elsewhere, as configurations; labels are not looked at.
        level: The certainty of intervals.
        seed: Which rows are in which fold.

    Returns:
        The weights of the source rows, and how far to trust them.

    Example:
        >>> from calmoe.worlds.binary import cancelling
        >>> world = cancelling(seed=0)
        >>> source, target = (Configurations.of(world.sample(500, seed=s)) for s in (1, 2))
        >>> ratio = density_ratio(source, target)
        >>> ratio.effective > 400, ratio.auc.low < 0.5 < ratio.auc.high  # the same world twice
        (True, True)
    """
    check_same(source, target)
    n, few = len(source), min(len(source), len(target))
    if few < FEWEST_ROWS:
        raise InputError(
            f"there are {few} rows in one of the files: their ratio needs at least {FEWEST_ROWS}"
        )
    features = _alike(source.features(), target.features())
    which = np.repeat([0, 1], [n, len(target)])
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    fold, log_odds = np.empty(len(which), int), np.empty(len(which))
    for k, (others, held) in enumerate(folds.split(which, which)):
        fold[held] = k
        log_odds[held] = _log_odds(features, which, others, held, seed)
    ratios = np.exp(np.clip(log_odds, -30, 30)) * n / len(target)
    clip = n**0.5
    weights = np.minimum(ratios[:n], clip)
    return DensityRatio(
        weights=weights / weights.mean(),
        fold=fold[:n],
        clip=clip,
        clipped=float((ratios[:n] > clip).mean()),
        beyond=float((ratios[n:] > clip).mean()),
        covered=float(weights.mean()),
        effective=float(weights.sum() ** 2 / (weights**2).sum()),
        auc=_auc(log_odds, which, fold, level),
    )


def check_same(source: Configurations, target: Configurations) -> None:
    if source.num_experts != target.num_experts:
        raise InputError(
            f"the source has {source.num_experts} experts and the target {target.num_experts}: "
            "give predictions of the same mixture"
        )


def _alike(source: Features, target: Features) -> Features:
    """Both files' features, [n + N], without digits in which only their formats differ.

    Else a routing that is the same in all rows tells a file of float32 from one of decimal numbers. Columns
    count from their medians, so that no number is rounded up in one file and down in the other.
    """
    files = source.numbers, target.numbers
    still = np.all([np.ptp(numbers, axis=0) < STILL for numbers in files], axis=0)
    apart = np.abs(np.subtract(*(np.median(numbers, axis=0) for numbers in files)))
    snapped = [_snapped(*columns) for columns in zip(source.numbers.T, target.numbers.T, strict=True)]
    both = np.concatenate([source.numbers, np.column_stack(snapped)])
    both = np.where(still & (apart < APART), 0.0, both - np.median(both, axis=0))
    return Features(np.round(both, DIGITS), np.concatenate([source.categories, target.categories]))


def _snapped(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The target's column, and where the source's has few values, the nearest of them if another precision
    would move it there.

    >>> _snapped(np.array([0.5, 0.7, 0.5, 0.501]), np.array([0.4999, 0.701, 0.501, 0.6]))
    array([0.5  , 0.7  , 0.501, 0.6  ])
    """
    values = np.unique(source)
    if len(values) > FEW:
        return target
    nearest = values[np.searchsorted((values[1:] + values[:-1]) / 2, target)]
    return np.where(np.abs(nearest - target) <= APART * np.abs(target), nearest, target)


def _log_odds(
    features: Features, which: np.ndarray, others: np.ndarray, held: np.ndarray, seed: int
) -> np.ndarray:
    """log p/(1 − p) of the held rows: boosting and splines, combined by a logistic fit on rows new to both.

    Where nothing tells the files apart, that fit (Platt) gives both no weight, and all ratios are 1.
    """
    others, table = np.random.default_rng(seed).permutation(others)[:MOST_TO_LEARN], features.table()
    inner = StratifiedKFold(INNER, shuffle=True, random_state=seed)
    scores = np.empty((len(others), 2))
    answers = np.zeros((len(held), 2))
    for taught, kept in inner.split(others, which[others]):
        few = taught[:FOR_SPLINES]
        models = zip(_models(len(taught), seed), (others[taught], others[few]), strict=True)
        for column, (classifier, rows) in enumerate(models):
            model = reading(classifier, features)
            with one_thread():
                model.fit(table[rows], which[rows])
                scores[kept, column] = _logits(model, table[others[kept]])
                answers[:, column] += _logits(model, table[held]) / INNER
    platt = LogisticRegression(C=1.0, tol=1e-8).fit(scores, which[others])  # precise enough for slight scores
    return np.asarray(platt.decision_function(answers))


def _models(rows: int, seed: int) -> list[Any]:
    boosting = HistGradientBoostingClassifier(learning_rate=0.1, max_iter=50, **small_trees(rows, seed))
    splines = make_pipeline(
        StandardScaler(),
        SplineTransformer(n_knots=4, degree=2, include_bias=False),
        LogisticRegression(C=0.1, max_iter=200, tol=1e-3),
    )
    return [boosting, splines]


def _logits(model: Any, features: np.ndarray) -> np.ndarray:
    probability = model.predict_proba(features)[:, 1]
    return np.asarray(logit(np.clip(probability, 1e-6, 1 - 1e-6)))


def _auc(scores: np.ndarray, which: np.ndarray, fold: np.ndarray, level: float) -> Estimate:
    """The mean of the folds' areas; DeLong's variance, with Nadeau and Bengio's correction.

    Folds that teach each other are not independent: the mean of K folds counts for (1/K + 1/(K − 1)) and not
    1/K of a fold's variance.
    """
    areas, variance = [], 0.0
    for k in range(FOLDS):
        low, high = (scores[(fold == k) & (which == side)] for side in (0, 1))
        n, m = len(low), len(high)
        ranks = rankdata(np.concatenate([low, high]))
        above = (ranks[n:] - rankdata(high)) / n  # [m] the share of source rows below each target row
        below = 1 - (ranks[:n] - rankdata(low)) / m
        areas.append(float(above.mean()))
        variance += above.var(ddof=1) / m + below.var(ddof=1) / n
    corrected = variance / FOLDS * (1 / FOLDS + 1 / (FOLDS - 1))
    return within(normal(float(np.mean(areas)), float(corrected**0.5), level), 0.0, 1.0)
