"""What router and experts say beyond the mixture's own vector V: which of the rows alike in V are right.

With m(V) = E[Y | V] and any |g| ≤ 1, E[Cov(Y, g(S) | V)] = E[(m(S) − m(V)) g(S)] ≤ E|m(S) − m(V)|. So a g
that was learned on other rows bounds from below what routing adds. Rows alike in V form strata, and the
covariance is measured inside them: nothing that V says enters it. Where most rows have twins, rows of exactly
the same V, a stratum is a set of twins, and that holds for every m(V), smooth or not.

Elsewhere no two rows have the same V, and no test without an assumption exists (Shah and Peters, 2020). A
tree learns E[g | V] from the judged rows' configurations, without their labels; rows of a leaf that are
neighbours in the control's ĥ(V) are then a stratum. What is left of m(V) inside them is taken to be no larger
than what the control sees there: the bound is lowered by as much.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from sklearn.tree import DecisionTreeRegressor

from calmoe.auditing.configurations import Configurations, Features
from calmoe.auditing.statistics.estimates import RARE, Estimate, at_least
from calmoe.auditing.statistics.sequential import Learned

MOST_EXPLAINED = 20_000  # rows that E[g | V] is learned from
ALIKE = 8  # rows of a stratum where no two have the same V
NOTHING = Estimate(0.0, 0.0, 0.0, 0.0)
OWN_VECTOR, ROUTING, BOTH, NOT_DECIDED = "mixture's own vector", "routing", "both", "not decided"


class Added(NamedTuple):
    """E|m(S) − m(V)| from below, and p of the null "given V, router and experts say nothing more"."""

    bound: Estimate
    p_value: float


def added(configurations: Configurations, learned: Learned, without: np.ndarray, level: float) -> Added:
    """learned: of S; without: ĥ(V) of the same judged rows [J]."""
    if configurations.num_experts == 1:
        return Added(NOTHING, 1.0)
    features, rows = configurations.own_features(), learned.rows
    left = configurations.residual[rows] - without
    score = exchanged = own = doubt = 0.0
    values, squares = np.zeros(len(rows)), np.zeros(len(rows))
    for part in learned.parts():
        here = rows[part]
        more = learned.expected[part] - without[part]
        vector = Features(features.numbers[here], features.categories[here])
        strata = Strata(alike(vector, without[part], more))
        said = strata.centred(np.column_stack([configurations.confidence[here], without[part]]))
        rest = strata.centred(left[part])
        direction = _beside(strata.centred(more), said)
        witness = _beside(strata.centred(np.where(direction >= 0, 1.0, -1.0)), said)
        score += float(direction @ rest)
        exchanged += float((strata.sums(direction**2) * strata.sums(rest**2) / strata.free).sum())
        own += float(strata.scale @ (direction * rest) ** 2)
        values[part] = strata.scale * witness * rest
        squares[part] = strata.scale * values[part] ** 2
        doubt += float(strata.scale @ np.abs(witness * said[:, 1]))
    variance, n = max(exchanged, own), len(rows)
    value = float(values.mean())
    spread = max(float(squares.sum()) - n * value**2, RARE)
    return Added(
        at_least(value - doubt / n, spread**0.5 / n, level),
        float(ndtr(-score / variance**0.5)) if variance > 1e-18 else 1.0,
    )


class Strata:
    """Rows alike in V, and sums over them; a row alone in its stratum counts for nothing.

    index [n]: the stratum of each row. free [G]: the degrees of freedom of each stratum, at least 1.
    scale [n]: m/(m − 1) of a row's stratum of m rows, as Σ u e m/(m − 1) is m times a covariance.
    """

    def __init__(self, index: np.ndarray) -> None:
        self.index, self.counts = index, np.bincount(index)
        self.free = np.maximum(self.counts - 1, 1)
        self.scale = (self.counts / self.free)[index]

    def sums(self, values: np.ndarray) -> np.ndarray:
        """[n] -> [G]"""
        return np.bincount(self.index, values, minlength=len(self.counts))

    def centred(self, values: np.ndarray) -> np.ndarray:
        """Values [n] or [n, A] less their means by stratum; rounding errors become zero."""
        columns = values.reshape(len(values), -1).T
        means = [(self.sums(column) / self.counts)[self.index] for column in columns]
        rest = (columns - means).T
        return np.where(np.abs(rest) > 1e-12, rest, 0.0).reshape(values.shape)


def _beside(values: np.ndarray, said: np.ndarray) -> np.ndarray:
    """values [n] less their lines in what V says [n, 2]."""
    return values - said @ np.linalg.lstsq(said, values, rcond=None)[0]


def alike(vector: Features, control: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The stratum of each row: its twins, or else its neighbours. [n]

    vector: what trees learn of V; control [n]: ĥ(V); values [n]: of which V may explain a part. Where there
    are no more rows without twins than sets of twins, V is discrete, and rows without twins stay alone.
    """
    twins = _twins(vector)
    lonely = np.flatnonzero(np.bincount(twins)[twins] == 1)
    if 2 * len(lonely) <= twins.max() + 1:
        return twins
    inputs = np.column_stack([vector.numbers[lonely], control[lonely]]).astype(np.float32)
    least = 3 * ALIKE
    tree = DecisionTreeRegressor(max_depth=6, min_samples_leaf=least, random_state=0)
    some = slice(None, MOST_EXPLAINED)
    leaf = tree.fit(inputs[some], values[lonely][some]).apply(inputs)
    order = np.lexsort((control[lonely], leaf))
    leaves, start, size = np.unique(leaf[order], return_index=True, return_counts=True)
    at = np.repeat(np.arange(len(leaves)), size)
    runs = np.maximum(size // ALIKE, 1)
    run = (np.arange(len(order)) - start[at]) * runs[at] // size[at]
    strata = twins.copy()
    strata[lonely[order]] = twins.max() + 1 + (np.cumsum(runs) - runs)[at] + run
    return np.unique(strata, return_inverse=True)[1]


def _twins(vector: Features) -> np.ndarray:
    """Rows with exactly the same numbers and categories have the same index. [n]"""
    bits = np.ascontiguousarray(vector.numbers, np.float32).view(np.uint32).astype(np.uint64)
    bits = np.column_stack([bits, vector.categories.astype(np.uint64)])
    factors = np.random.default_rng(0).integers(1, 2**63, bits.shape[1], dtype=np.uint64) * 2 + 1
    mixed = bits * factors
    hashed = (mixed ^ (mixed >> np.uint64(31))).sum(axis=1, dtype=np.uint64)
    return np.unique(hashed, return_inverse=True)[1]
