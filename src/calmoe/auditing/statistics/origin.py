"""What router and experts say beyond the mixture's own vector V: which of the rows alike in V are right.

With m(V) = E[Y | V], any |g| ≤ 1 and its mean given V taken off, g° = g(S) − E[g(S) | V]:
E[(Y − f − h(V)) g°] = E[(m(S) − m(V)) g(S)] ≤ E|m(S) − m(V)|, whatever the function h of V is. So a g that
was learned on other rows bounds from below what routing adds; where routing adds nothing the moment is zero.
h is the m(V) − f that a control without router and experts learned: it takes off noise. E[g | V] is learned
from the judged rows' configurations, without their labels; its error counts only times that of h.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from sklearn.tree import DecisionTreeRegressor

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import Estimate, at_least, spread
from calmoe.auditing.statistics.sequential import Learned

MOST_EXPLAINED = 20_000  # rows that E[g | V] is learned from


class Added(NamedTuple):
    """E|m(S) − m(V)| from below, and p of the null "given V, router and experts say nothing more"."""

    bound: Estimate
    p_value: float


def added(configurations: Configurations, learned: Learned, without: np.ndarray, level: float) -> Added:
    """learned: of S; without: ĥ(V) of the same judged rows [J]."""
    if configurations.num_experts == 1:
        return Added(Estimate(0.0, 0.0, 0.0, 0.0), 1.0)
    features, rows = configurations.own_features(), learned.rows
    left = configurations.residual[rows] - without
    direction, witness = np.empty(len(rows)), np.empty(len(rows))
    for part in learned.parts():
        here = rows[part]
        own, classes = features.numbers[here], features.categories[here, 0]
        known = np.column_stack([np.ones(len(part)), configurations.confidence[here], without[part]])
        direction[part] = _unexplained(learned.expected[part] - without[part], own, classes, known)
        witness[part] = _unexplained(np.where(direction[part] >= 0, 1.0, -1.0), own, classes, known)
    score, squares = float(direction @ left), direction**2
    variance = max(float(squares @ left**2), float(squares.mean() * (left**2).sum()))
    values = witness * left
    return Added(
        at_least(float(values.mean()), spread(values, witness**2 * configurations.noise[rows]), level),
        float(ndtr(-score / variance**0.5)) if variance > 1e-18 else 1.0,
    )


def _unexplained(
    values: np.ndarray, vector: np.ndarray, classes: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """values [n] less their means by class, by the leaves of a tree on V, and their lines in `known` [n, 3].

    vector [n, A] is what trees learn of V, classes [n] the predicted class.
    """
    if np.ptp(values) < 1e-12:
        return np.zeros_like(values)
    counts = np.bincount(classes)
    means = np.bincount(classes, values) / np.maximum(counts, 1)
    rest, some = values - means[classes], slice(None, MOST_EXPLAINED)
    inputs = np.column_stack([vector, means[classes], known[:, 1:]]).astype(np.float32)
    tree = DecisionTreeRegressor(max_depth=6, min_samples_leaf=25, random_state=0)
    rest = rest - tree.fit(inputs[some], rest[some]).predict(inputs)
    return rest - known @ np.linalg.lstsq(known, rest, rcond=None)[0]
