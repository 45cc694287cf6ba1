"""Experts: any classifiers, fitted fold by fold, and what each says about rows it has not seen."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import has_fit_parameter

from calmoe.errors import InputError, shown
from calmoe.models.watching import each_told

Named = tuple[str, Any]
FEWEST_ROWS = 100  # that differ; below it trees find nothing to split
GATE_ROWS = 500  # that differ; below it a gate learns nothing but noise
# chosen by cross-validated log loss on training rows of eight tables
BOOSTING = {
    "learning_rate": 0.05,
    "max_iter": 150,
    "max_leaf_nodes": 15,
    "l2_regularization": 5.0,
    "max_features": 0.5,
}
TREES = {"n_estimators": 100, "min_samples_leaf": 3, "max_features": 0.3}
FLOOR = 1e-5  # of the class frequencies, mixed into every answer: no class is impossible


def default_experts(rows: int) -> list[Named]:
    """Logistic regression, histogram boosting and extra trees; the first alone where rows are few."""
    if rows < FEWEST_ROWS:
        return [("linear", LogisticRegression(max_iter=10_000, tol=1e-10))]  # exact costs nothing here
    return [
        ("linear", LogisticRegression(max_iter=1000)),
        ("boosting", HistGradientBoostingClassifier(**BOOSTING)),
        ("trees", ExtraTreesClassifier(**TREES)),
    ]


def named_experts(experts: Any, rows: int) -> list[Named]:
    """Pairs of a name and a classifier, from a list of either."""
    if experts is None:
        return default_experts(rows)
    if not isinstance(experts, Sequence) or isinstance(experts, str) or not len(experts):
        raise InputError(
            f"experts must be a list of classifiers, or of pairs of a name and one, not {shown(experts)}"
        )
    pairs: list[Named] = []
    for expert in experts:
        name, model = expert if isinstance(expert, tuple) else (_own_name(expert, pairs), expert)
        if not hasattr(model, "fit") or isinstance(model, type):
            raise InputError(f"the expert {shown(name)} is no classifier: it has no fit")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_. -]{1,80}", name):
            raise InputError(f"an expert's name must be letters, digits and - _ . only, not {shown(name)}")
        if name in dict(pairs):
            raise InputError(f"two experts are named {shown(name)}: rename one")
        pairs.append((name, model))
    return pairs


def _own_name(model: Any, pairs: list[Named]) -> str:
    kind = type(model).__name__.lower()
    count = sum(re.fullmatch(rf"{re.escape(kind)}(-\d+)?", name) is not None for name, _ in pairs)
    return f"{kind}-{count + 1}" if count else kind


def expert_seeds(seed: int, count: int) -> list[int]:
    """A seed for each expert."""
    return [seed + 1 + k for k in range(count)]


class Material:
    """The rows that experts learn from: prepared numbers, or X as it came."""

    def __init__(self, inputs: Any, labels: np.ndarray, weights: np.ndarray, prepared: bool) -> None:
        self.inputs, self.labels, self.weights, self.prepared = inputs, labels, weights, prepared
        self.weighted = not (weights == weights[0]).all()
        self.prior = np.bincount(labels, weights) / weights.sum()

    def fit(self, name: str, model: Any, rows: np.ndarray, seed: int) -> Any:
        """A fresh copy of the model, fitted on these rows. Labels are numbers from 0."""
        fresh = seeded(clone(model), seed)
        options = {}
        if self.weighted:
            if not has_fit_parameter(fresh, "sample_weight"):
                raise InputError(
                    f"the expert {shown(name)} takes no sample_weight: fit without weights, or leave it out"
                )
            options["sample_weight"] = self.weights[rows]
        return fresh.fit(_safe_indexing(self.inputs, rows), self.labels[rows], **options)

    def left_out(self, name: str, model: Any, rows: np.ndarray, others: np.ndarray, seed: int) -> np.ndarray:
        """The log-probabilities for `others` of the model fitted on `rows`. [M, C]"""
        classes = np.unique(self.labels[rows])
        if len(classes) == 1:
            probs = np.zeros((len(others), len(self.prior)))
            probs[:, classes[0]] = 1.0
            return smoothed(probs, self.prior)
        fitted = self.fit(name, model, rows, seed)
        inputs = _safe_indexing(self.inputs, others)
        if self.prepared:
            seen = self.inputs[rows]
            constant = (seen == seen[0]).all(axis=0)
            inputs[:, constant] = seen[0, constant]  # of these columns nothing was learned
        return answers(name, fitted, inputs, self.prior)


def rows_that_teach(folds: np.ndarray, together: np.ndarray | None = None) -> list[np.ndarray]:
    """Which rows teach what is said about each fold: no row of it, and none of a group that has one. [N] each

    >>> rows_that_teach(np.array([0, 0, 1, 1]), together=np.array([7, 8, 8, 9]))
    [array([False, False, False,  True]), array([ True, False, False, False])]
    """
    others = [folds != fold for fold in range(folds.max() + 1)]
    if together is None:
        return others
    return [rows & ~np.isin(together, together[~rows]) for rows in others]


def cross_fit(
    experts: list[Named],
    material: Material,
    folds: np.ndarray,
    seeds: Sequence[int],
    n_jobs: int | None,
    together: np.ndarray | None = None,
) -> np.ndarray:
    """What each expert says about each row, fitted on the other folds: log-probabilities. [N, K, C]

    Rows of fold −1 are always learned from, and get no answer. together: groups [N]; a row does not teach
    what is said about others of its group.
    """
    learned = rows_that_teach(folds, together)
    tasks = [(k, fold) for k in range(len(experts)) for fold in range(folds.max() + 1)]
    fits = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(material.left_out)(
            *experts[k], np.flatnonzero(learned[fold]), np.flatnonzero(folds == fold), seeds[k]
        )
        for k, fold in tasks
    )
    logs = np.zeros((len(folds), len(experts), len(material.prior)))
    for (k, fold), part in zip(tasks, each_told("experts, fold by fold", fits, len(tasks)), strict=True):
        logs[folds == fold, k] = part
    return logs


def refit(experts: list[Named], material: Material, seeds: Sequence[int], n_jobs: int | None) -> list[Named]:
    """Every expert, fitted on all rows."""
    rows = np.arange(len(material.labels))
    fits = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(material.fit)(name, model, rows, seed)
        for (name, model), seed in zip(experts, seeds, strict=True)
    )
    models = each_told("experts on all rows", fits, len(experts))
    return [(name, model) for (name, _), model in zip(experts, models, strict=True)]


def answers(name: str, fitted: Any, inputs: Any, prior: np.ndarray) -> np.ndarray:
    """The expert's log-probabilities over all classes, those that it never saw included. [N, C]"""
    if not hasattr(fitted, "predict_proba"):
        raise InputError(
            f"the expert {shown(name)} gives no probabilities: wrap it in CalibratedClassifierCV"
        )
    given = np.asarray(fitted.predict_proba(inputs), dtype=np.float64)
    if not np.isfinite(given).all():
        raise InputError(f"the expert {shown(name)} gives probabilities that are no numbers: leave it out")
    probs = np.zeros((len(given), len(prior)))
    probs[:, np.asarray(fitted.classes_, dtype=np.int64)] = given
    return smoothed(probs, prior)


def smoothed(probs: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """log of (1 − ε) p + ε · the class frequencies."""
    totals = probs.sum(axis=1, keepdims=True)
    probs = np.where(totals > 0, probs / np.where(totals > 0, totals, 1.0), prior)
    return np.log((1 - FLOOR) * probs + FLOOR * prior)


def seeded(model: Any, seed: int) -> Any:
    """Give every random_state of the model, and of models inside it, a seed of its own."""
    rng = np.random.RandomState(seed)
    states = [
        key
        for key, value in sorted(model.get_params(deep=True).items())
        if (key == "random_state" or key.endswith("__random_state")) and value is None
    ]
    return model.set_params(**{key: int(rng.randint(2**31 - 1)) for key in states}) if states else model
