"""Columns that are known only with the answer: the label itself, or made from it, such as each row's loss."""

import numpy as np

from calmoe.auditing.statistics.ranking import auroc
from calmoe.metrics.groups import CATEGORIES
from calmoe.predictions import Predictions

THE_LABEL = "the label itself"
MADE_OF_IT = "made from the answer"
ONE_LABEL = "one label for each value: repeated rows of the same case, or made from the answer?"
ANSWERS = (THE_LABEL, MADE_OF_IT, ONE_LABEL)
FEWEST = 5  # rows of either answer: one alone has the largest number easily
TELLING = 0.995  # an AUROC above it: measurements such as each row's loss, which only the label gives


def tells_answer(values: np.ndarray, labels: np.ndarray, hits: np.ndarray) -> str | None:
    """Why a column is no group, but the answer: every value has rows of one label only, or right or wrong
    ones only, ten rows a value or more; or measurements part right from wrong nearly perfectly.

    >>> labels = np.repeat([0, 1], 10)
    >>> tells_answer(np.where(labels, "cat", "dog"), labels, labels == 0) == THE_LABEL
    True
    >>> tells_answer(np.arange(20) % 2, labels, labels == 0)
    """
    names, which = np.unique(values, return_inverse=True)
    if 2 <= len(names) <= len(values) / 10:
        if _decides(which, labels):
            return THE_LABEL if len(names) <= 2 * len(np.unique(labels)) else ONE_LABEL
        if _decides(which, hits):
            return MADE_OF_IT
    measured = values.dtype.kind in "fiu" and len(names) > CATEGORIES
    return MADE_OF_IT if measured and _ranked(values, hits) > TELLING else None


def _decides(which: np.ndarray, answers: np.ndarray) -> bool:
    """Whether a value goes with one answer only, where there are several."""
    several = len(np.unique(answers)) > 1
    return several and np.unique(np.stack([which, answers]), axis=1).shape[1] == which.max() + 1


def _ranked(values: np.ndarray, answers: np.ndarray) -> float:
    """How well measurements rank two answers: 1 for perfectly, either way round."""
    numbers = values.astype(np.float64)
    two, rows = np.unique(answers, return_counts=True)
    if len(two) != 2 or rows.min() < FEWEST or not np.isfinite(numbers).all():
        return 0.0
    chance = auroc(numbers, (answers == two[1]).astype(np.float64)).value
    return max(chance, 1 - chance)


def after_answer(predictions: Predictions) -> dict[str, str]:
    """The columns that are known only with the answer, and why: given it, no probability is true."""
    labels = predictions.known_labels.numpy()
    hits = predictions.output.predicted.numpy() == labels
    reasons = {name: tells_answer(own, labels, hits) for name, own in predictions.groups.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def known_before(predictions: Predictions) -> dict[str, np.ndarray]:
    """The columns that tell rows apart before the answer is known."""
    after = after_answer(predictions)
    return {name: own for name, own in predictions.groups.items() if name not in after}
