"""Rows that repeat other rows: the audit takes rows for independent, and copies make chance look certain.

Rows of equal probabilities need not repeat each other: a small tree gives few different answers, and rounding
makes more of them equal. Where what is true changes smoothly with what is said, their labels agree no more
often than those of rows that are nearly as probable. So two rows of each set are drawn, and the first is
compared with the second, and with the row of another set that is most like the second. In copies the first
two labels never differ. A set is the rows of equal probabilities, or of one value of a column.

Independent rows can look like copies: where a few features tell the label and the model gives kinds of rows
that differ much nearly the same probability, rows of one kind agree and their neighbours do not. Nothing in
the rows tells this from copies. So who knows that rows are independent may say so, and is believed.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from calmoe.auditing.configurations import CHUNK, Configurations
from calmoe.auditing.statistics.after_answer import known_before
from calmoe.new_rows import Cases, may_be_names, numbered_cases
from calmoe.predictions import Predictions

NEAR = 0.02  # probabilities that differ by no more are alike
ALIKE = 0.5  # sets repeat cases if their labels surely differ less than half as often as those of other rows
SURELY = 4.0  # standard errors
FEWEST = 20  # sets: fewer tell nothing
HEAVY = 1.1  # rows per independent row: less hardly narrows an interval
CONSTANT = 0.5  # the share of the probabilities' variance that lies between the cases of a column, at least
LAST = 64  # rows of a set of its own that a row may stand beside


class Repeats(NamedTuple):
    """Rows seem to repeat cases; column: the one that names the cases, None where none does."""

    column: str | None


def find_repeats(
    predictions: Predictions, configurations: Configurations, cases: Cases = "not said"
) -> Repeats | None:
    """Whether many rows look like copies of others, or like repeats of the same case.

    cases: what the user says. Where one column names them, only other columns may contradict it.

    >>> from calmoe.worlds import calibrated
    >>> once = calibrated(seed=0).sample(300, seed=0)
    >>> twice = once.take(np.tile(np.arange(300), 2))
    >>> find_repeats(once, Configurations.of(once)), find_repeats(twice, Configurations.of(twice))
    (None, Repeats(column=None))
    """
    if cases == "every row":
        return None
    rows = _Rows(predictions, configurations)
    for column, sets in _named_sets(predictions):
        if rows.name_cases(sets):
            return Repeats(column)
    return None if cases == "named" else _unnamed(rows, predictions)


def _unnamed(rows: "_Rows", predictions: Predictions) -> Repeats | None:
    """Whether rows of equal probabilities, or of equal probabilities and columns, look like copies.

    Not of columns that are known only with the answer: these make every set agree.
    """
    answers = _fingerprints(predictions.output.log_probs.contiguous().numpy())
    columns = (np.unique(values, return_inverse=True)[1] for values in known_before(predictions).values())
    others = [values for values in columns if not rows.made_of_both(values)]
    alike = _fingerprints(np.stack([answers, *others], axis=1))
    same = _fingerprints(np.stack([alike, predictions.known_labels.numpy()], axis=1))
    copied = any(rows.agree(np.unique(each, return_inverse=True)[1]) for each in (answers, alike))
    return Repeats(None) if copied or _times(same) > 1 else None


def _named_sets(predictions: Predictions) -> Iterator[tuple[str, np.ndarray]]:
    """Columns that may name cases, as the number of each row's set: no measurements, and values enough."""
    for column, values in predictions.groups.items():
        sets = numbered_cases(values)[0]
        if sets.max(initial=0) >= FEWEST and may_be_names(values):
            yield column, sets


def _times(rows: np.ndarray) -> int:
    """How often the whole file stands there: each row's number of copies is a multiple of it."""
    copies = np.unique(rows, return_counts=True)[1]
    return int(np.gcd.reduce(copies)) if len(copies) >= FEWEST else 1


class _Rows:
    """Labels, and an order in which neighbours say nearly the same."""

    def __init__(self, predictions: Predictions, configurations: Configurations) -> None:
        self.labels = predictions.known_labels.numpy()
        self.predicted = configurations.predicted
        self.confidence = predictions.output.confidence.double().numpy()
        self.ties = np.random.default_rng(0).random(len(self.labels))

    @cached_property
    def order(self) -> np.ndarray:
        return np.lexsort((self.ties, self.confidence, self.predicted))

    @cached_property
    def place(self) -> np.ndarray:
        return np.argsort(self.order)

    def agree(self, sets: np.ndarray) -> bool:
        """Whether labels of one set surely differ less than half as often as those of like rows."""
        return _repeat_much(sets) and self._excess(*self._pairs(sets), sets) < -SURELY

    def name_cases(self, sets: np.ndarray) -> bool:
        """Whether rows of one value say much the same and their labels agree, but not those of the next."""
        return self.agree(sets) and self._say_the_same(*self._pairs(sets)) and not self.made_of_both(sets)

    def made_of_both(self, sets: np.ndarray) -> bool:
        """Whether a column is made of probability and label, such as residuals: rows of values next to each
        other say the same, and their labels agree."""
        first, second = self._pairs(sets)
        following = first[:-1], second[1:]
        return len(first) >= FEWEST and self._say_the_same(*following) and self._excess(*following, sets) < 0

    def _excess(self, first: np.ndarray, second: np.ndarray, sets: np.ndarray) -> float:
        """By how many standard errors labels of these pairs differ more than half as often as like rows'."""
        other = self._neighbours(second, sets)
        first, second, other = (rows[other >= 0] for rows in (first, second, other))
        within = self.labels[first] != self.labels[second]
        between = self.labels[first] != self.labels[other]
        excess = within - ALIKE * between
        return float(excess.sum()) / float(excess @ excess) ** 0.5 if excess.any() else 0.0

    def _say_the_same(self, first: np.ndarray, second: np.ndarray) -> bool:
        within = float(((self.confidence[first] - self.confidence[second]) ** 2).mean()) / 2
        return within <= (1 - CONSTANT) * float(self.confidence.var())

    def _pairs(self, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two rows at random of each set that has two."""
        order = np.lexsort((self.ties, sets))
        start = np.flatnonzero(np.diff(sets[order], prepend=-1))[np.bincount(sets) > 1]
        return order[start], order[start + 1]

    def _neighbours(self, rows: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """The row of another set that says most nearly the same; −1 where none is near. [rows]"""
        nearest, least = np.full(len(rows), -1), np.full(len(rows), NEAR)
        for step in (-1, 1):
            place = self.place[rows]
            for _ in range(LAST):
                place = place + step
                inside = (place >= 0) & (place < len(self.order))
                there = self.order[np.where(inside, place, 0)]
                own = inside & (sets[there] == sets[rows])
                if not own.any():
                    break
                place = np.where(own, place, place - step)
            gap = np.abs(self.confidence[there] - self.confidence[rows])
            near = inside & ~own & (self.predicted[there] == self.predicted[rows]) & (gap <= least)
            nearest, least = np.where(near, there, nearest), np.where(near, gap, least)
        return nearest


def _repeat_much(sets: np.ndarray) -> bool:
    """Whether sets enough have several rows, and hold rows enough to narrow an interval."""
    times = np.bincount(sets)
    return bool((times > 1).sum() >= FEWEST) and float(times @ times) >= HEAVY * len(sets)


def _fingerprints(rows: np.ndarray) -> np.ndarray:
    """A whole number a row, the same for equal rows: sums of whole numbers round nothing. [N]"""
    cells = np.ascontiguousarray(rows).view(f"u{rows.dtype.itemsize}")
    factors = np.random.default_rng(0).integers(1, 2**63, cells.shape[1], dtype=np.uint64) * 2 + 1
    parts = (cells[start : start + CHUNK].astype(np.uint64) for start in range(0, len(cells), CHUNK))
    return np.concatenate([((part + 1) * factors).sum(axis=1) for part in parts]).view(np.int64)
