"""Learn where probabilities are off, block by block: a model of earlier blocks judges each block.

Ordinary cross-fitting lets fold 1 teach the judge of fold 2 and fold 2 that of fold 1. Where there is nothing
to learn, the folds' sums are then correlated and their mean varies more than its standard error says. Here
rows come in random blocks, and a model of the earlier blocks judges each block: the sum of D g(S) is a
martingale, so its variance is the sum of the squares and normal intervals hold. The first block only teaches.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.boosting import small_trees

FIRST, LATER = 0.4, 3  # the share of rows that only teach, and how many blocks are judged
MOST_TO_LEARN = 200_000  # rows that a model learns from
MANY = 20_000  # rows: with as many, a larger model pays
MOST_KEPT = 20_000  # rows of the past that a block keeps at hand
FEWEST_TO_LEARN = 200  # rows: with fewer, there is nothing to learn from


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The judged rows, the block of each, and the m(S) − f that a model of earlier blocks predicts."""

    rows: np.ndarray  # [J] indices of the judged rows, block by block
    block: np.ndarray  # [J] 1, 2, …
    expected: np.ndarray  # [J] ĥ(S)
    taught: np.ndarray  # indices of the first block
    past: tuple[np.ndarray, ...]  # for each judged block: indices of earlier rows, at most MOST_KEPT
    recalled: tuple[np.ndarray, ...]  # and what the block's model, which learned from these, predicts there

    def parts(self) -> list[np.ndarray]:
        """Positions in `rows` of each block."""
        return [np.flatnonzero(self.block == b) for b in range(1, len(self.past) + 1)]


def blocks(rows: int, seed: int = 0) -> list[np.ndarray]:
    """Random blocks of row indices: the first only teaches, the others are judged."""
    order = np.random.default_rng(seed).permutation(rows)
    ends = (rows * (FIRST + (1 - FIRST) * np.arange(LATER) / LATER)).astype(int)
    return np.split(order, ends)


def learn(configurations: Configurations, seed: int = 0, parts: list[np.ndarray] | None = None) -> Learned:
    """Gradient boosting of D = Y − f on the configuration, block by block; parts: `blocks` unless given."""
    features, residual = configurations.features(), configurations.residual
    parts = parts or blocks(len(residual), seed)
    expected, recalled, kept = [], [], []
    for i in range(1, len(parts)):
        past = np.concatenate(parts[:i][::-1])[:MOST_TO_LEARN]  # rows are in random order, the latest first
        rounds = 50 if len(past) < MANY else 100
        model = HistGradientBoostingRegressor(
            learning_rate=0.06, max_iter=rounds, **small_trees(len(past), seed)
        )
        kept.append(past[:MOST_KEPT])
        with threadpool_limits(1, user_api="openmp"):  # the same sums on every machine, busy or not
            model.fit(features[past], residual[past])
            expected.append(model.predict(features[parts[i]]))
            recalled.append(model.predict(features[kept[-1]]))
    return Learned(
        rows=np.concatenate(parts[1:]),
        block=np.repeat(np.arange(1, len(parts)), [len(part) for part in parts[1:]]),
        expected=np.concatenate(expected),
        taught=parts[0],
        past=tuple(kept),
        recalled=tuple(recalled),
    )
