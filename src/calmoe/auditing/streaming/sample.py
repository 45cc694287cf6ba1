"""A uniform sample of rows that no batch size, order or sharding changes: the rows with the smallest keys.

A row's key is a one-to-one hash of its number in the table, turned by the seed. So no two keys tie, and the
smallest keys of all rows are among the smallest keys of each part.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions

LARGEST = np.uint64(2**64 - 1)


class Sample(NamedTuple):
    """Some rows of a table in its order: their numbers [M], and what was predicted."""

    numbers: np.ndarray
    predictions: Predictions

    def take(self, rows: np.ndarray) -> "Sample":
        return Sample(self.numbers[rows], self.predictions.take(rows))


def keys(numbers: np.ndarray, seed: int) -> np.ndarray:
    """A key for each row number, as if drawn at random: SplitMix64, which is one-to-one. [N] uint64

    >>> len(np.unique(keys(np.arange(1000), seed=0)))
    1000
    """
    state = _mixed(np.array([seed + 1], np.uint64)) + numbers.astype(np.uint64)
    return _mixed(state * np.uint64(0x9E3779B97F4A7C15))


def _mixed(state: np.ndarray) -> np.ndarray:
    """SplitMix64's last step: shifts and odd factors, each of which can be undone."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def smallest(samples: Sequence[Sample], most: int, seed: int) -> Sample:
    """The rows of all samples with the smallest keys, at most so many, in the order of the table."""
    parts = sorted(samples, key=lambda sample: int(sample.numbers[0]))
    whole = Sample(
        np.concatenate([part.numbers for part in parts]), _together([part.predictions for part in parts])
    )
    order = np.argsort(whole.numbers, kind="stable")
    if len(order) > most:
        order = order[np.sort(np.argpartition(keys(whole.numbers[order], seed), most)[:most])]
    return whole if len(order) == len(whole.numbers) and (order[1:] > order[:-1]).all() else whole.take(order)


class Draw:
    """Draws a sample while rows pass by, of a table of so many rows.

    Only rows with keys up to a limit are kept, hardly more than are wanted. The limit hangs on the numbers of
    rows alone, and among all rows of the table there are enough below it.
    """

    def __init__(self, most: int, rows: int, seed: int) -> None:
        self.most, self.seed = most, seed
        self.limit = limit(most, rows)
        self.parts: list[Sample] = []

    def add(self, first: int, predictions: Predictions) -> None:
        """Rows of the table from number `first` on."""
        numbers = np.arange(first, first + len(predictions))
        kept = keys(numbers, self.seed) <= self.limit
        if kept.any():
            whole = Sample(numbers, predictions)
            self.parts.append(whole if kept.all() else whole.take(kept))

    def sample(self) -> Sample | None:
        """What was drawn; None where no row was."""
        return smallest(self.parts, self.most, self.seed) if self.parts else None


def limit(most: int, rows: int) -> np.uint64:
    """A key that is larger than the `most` smallest of so many, but once in ten million tables.

    So many keys are below it on average as are wanted, six standard deviations and ten more.

    >>> int(limit(200_000, 20_000_000)) / 2**64 * 20_000_000 < 203_000
    True
    """
    enough = most + 6 * most**0.5 + 10
    return LARGEST if enough >= rows else np.uint64(int(2**64 * (enough / rows)))


def _together(parts: Sequence[Predictions]) -> Predictions:
    """One below the other."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Predictions(
        output=MixtureOutput(
            *(torch.cat(each) for each in zip(*(part.output for part in parts), strict=True))
        ),
        labels=torch.cat([part.known_labels for part in parts]),
        groups={name: np.concatenate([part.groups[name] for part in parts]) for name in first.groups},
        metadata=first.metadata,
    )
