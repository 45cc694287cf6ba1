"""Learn where probabilities are off, block by block: a model of earlier blocks judges each block.

Ordinary cross-fitting lets fold 1 teach the judge of fold 2 and fold 2 that of fold 1. Where there is nothing
to learn, the folds' sums are then correlated and their mean varies more than its standard error says. Here
rows come in random blocks, and a model of the earlier blocks judges each block: the sum of D g(S) is a
martingale, so its variance is the sum of the squares and normal intervals hold. The first block only teaches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from calmoe.auditing.configurations import Configurations, Features
from calmoe.auditing.statistics.boosting import one_thread, small_trees
from calmoe.auditing.statistics.splits import how_many, seeds
from calmoe.errors import InputError

FIRST, LATER = 0.4, 3  # the share of rows that only teach, and how many blocks are judged
JUDGED = 2  # blocks that are judged where there are several splits
MOST_TO_LEARN = 200_000  # rows that a model learns from
MOST_TAUGHT, MOST_JUDGED = 100_000, 300_000  # rows of a split of many rows
MANY = 20_000  # rows: with as many, a larger model pays
MOST_KEPT = 20_000  # rows of the past that a block keeps at hand
FEWEST_TO_LEARN = 200  # rows: with fewer, there is nothing to learn from
STEPS = 40  # thresholds a number, at most: fewer make trees faster and no worse
SHRUNK = 10  # rows of value zero that each category's mean includes


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

    def all_parts(self) -> list[np.ndarray]:
        """The row indices of every block, the first one included."""
        return [self.taught, *(self.rows[part] for part in self.parts())]


def blocks(rows: int, seed: int = 0, later: int = LATER) -> list[np.ndarray]:
    """Random blocks of row indices: the first only teaches, the `later` others are judged."""
    order = np.random.default_rng(seed).permutation(rows)
    ends = (rows * (FIRST + (1 - FIRST) * np.arange(later) / later)).astype(int)
    return np.split(order, ends)


def judged_blocks(rows: int, seed: int = 0) -> list[np.ndarray]:
    """The blocks of one split. Of many rows two are enough: MOST_TAUGHT teach, MOST_JUDGED are judged."""
    if rows * FIRST < MOST_TAUGHT:
        return blocks(rows, seed, JUDGED)
    return np.split(np.random.default_rng(seed).permutation(rows)[: MOST_TAUGHT + MOST_JUDGED], [MOST_TAUGHT])


def learn(configurations: Configurations, seed: int = 0, parts: list[np.ndarray] | None = None) -> Learned:
    """Gradient boosting of D = Y − f on the configuration; parts: `judged_blocks` unless given."""
    features, residual = configurations.features(), configurations.residual
    parts = parts or judged_blocks(len(residual), seed)
    kept = tuple(_past(parts, i)[:MOST_KEPT] for i in range(1, len(parts)))
    answers = [
        boosted(features, residual, _past(parts, i), [parts[i], kept[i - 1]], seed)
        for i in range(1, len(parts))
    ]
    return Learned(
        rows=np.concatenate(parts[1:]),
        block=np.repeat(np.arange(1, len(parts)), [len(part) for part in parts[1:]]),
        expected=np.concatenate([expected for expected, _ in answers]),
        taught=parts[0],
        past=kept,
        recalled=tuple(recalled for _, recalled in answers),
    )


def learn_without_routing(configurations: Configurations, learned: Learned, seed: int = 0) -> np.ndarray:
    """ĥ(V): what the same blocks teach of the mixture's own vector alone, for the same judged rows. [J]"""
    if configurations.num_experts == 1:
        return learned.expected
    features, residual, parts = configurations.own_features(), configurations.residual, learned.all_parts()
    answers = [
        boosted(features, residual, _past(parts, i), [parts[i]], seed)[0] for i in range(1, len(parts))
    ]
    return np.concatenate(answers)


def _past(parts: list[np.ndarray], i: int) -> np.ndarray:
    """The rows before block i that teach; rows are in random order, the latest first."""
    return np.concatenate(parts[:i][::-1])[:MOST_TO_LEARN]


def boosted(
    features: Features, values: np.ndarray, past: np.ndarray, asked: Sequence[np.ndarray], seed: int
) -> list[np.ndarray]:
    """Gradient boosting of the values [N] at past rows, and its answers for the rows that are asked."""
    model = HistGradientBoostingRegressor(
        learning_rate=0.06,
        max_iter=50 if len(past) < MANY else 100,
        max_bins=STEPS,
        **small_trees(len(past), seed),
    )
    coded = [_coded(column, values, past) for column in features.categories.T]

    def at(rows: np.ndarray) -> np.ndarray:
        return np.column_stack([features.numbers[rows], *(code[rows] for code in coded)])

    with one_thread():
        model.fit(at(past), values[past])
        return [np.asarray(model.predict(at(rows))) for rows in asked]


def _coded(category: np.ndarray, values: np.ndarray, past: np.ndarray) -> np.ndarray:
    """Categories [N] as numbers that trees can split: the mean value of past rows, drawn towards zero. [N]

    The best split of categories is a threshold on their means. Few rows say little: SHRUNK rows of value
    zero are added to each.
    """
    size = int(category.max()) + 1
    sums = np.bincount(category[past], values[past], minlength=size)
    means = sums / (np.bincount(category[past], minlength=size) + SHRUNK)
    return means.astype(np.float32)[category]


class Lessons(Sequence[Learned]):
    """What each split learned: once, when it is first asked for."""

    def __init__(self, configurations: Configurations, seed: int = 0, splits: int | None = None) -> None:
        splits = how_many(len(configurations)) if splits is None else splits
        if splits < 1 or splits % 2 == 0:
            raise InputError(f"splits must be an odd number, so that one is in the middle; got {splits}")
        self.configurations, self.seeds = configurations, seeds(seed, splits)
        self._learned: dict[int, Learned] = {}

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, split: int) -> Learned:  # type: ignore[override]
        if not 0 <= split < len(self):
            raise IndexError(split)
        if split not in self._learned:
            self._learned[split] = learn(self.configurations, self.seeds[split])
        return self._learned[split]
