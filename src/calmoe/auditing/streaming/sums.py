"""Sums over rows, which add up: of two batches, of two shards, in any order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from calmoe.auditing.statistics.group_columns import MOST_VALUES
from calmoe.metrics.groups import CATEGORIES

Kind = Literal["truth", "words", "whole numbers", "measurements"]
MOST: Mapping[Kind, int] = {"truth": 2, "words": MOST_VALUES, "whole numbers": CATEGORIES, "measurements": 0}


class Tally(NamedTuple):
    """Of rows in bins of confidence, [B] each: how many, Σ D, Σ D², Σ f (1 − f), Σ Y."""

    rows: np.ndarray
    gap: np.ndarray
    square: np.ndarray
    noise: np.ndarray
    right: np.ndarray


class GroupColumn(NamedTuple):
    """A column of groups: a `Tally` [5, B] for each of its values; None where there are too many values."""

    kind: Kind
    values: dict[str, np.ndarray] | None

    def merge(self, other: "GroupColumn") -> "GroupColumn":
        if self.values is None or other.values is None:
            return GroupColumn(self.kind, None)
        names = self.values.keys() | other.values.keys()
        if len(names) > MOST[self.kind]:
            return GroupColumn(self.kind, None)
        return GroupColumn(self.kind, _added(self.values, other.values))


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What one pass leaves of all rows (`counting.count`): totals and group columns add, peaks are maxima.

    >>> one, two = (Sums(totals={"rows": np.array([n])}, peaks={"unlike": np.array([n])}) for n in (1, 2))
    >>> both = one.merge(two)
    >>> both.rows, both.peaks["unlike"]
    (3, array([2]))
    """

    totals: dict[str, np.ndarray]
    peaks: dict[str, np.ndarray]
    groups: dict[str, GroupColumn] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return int(self.totals["rows"][0])

    def merge(self, other: "Sums") -> "Sums":
        """The sums of both; the order of merging changes nothing but the last digits."""
        return Sums(
            totals=_added(self.totals, other.totals),
            peaks={name: np.maximum(peak, other.peaks[name]) for name, peak in self.peaks.items()},
            groups={name: column.merge(other.groups[name]) for name, column in self.groups.items()},
        )


def _added(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Name by name; what one of them lacks counts as zero."""
    both = {name: values + other[name] if name in other else values for name, values in one.items()}
    return both | {name: values for name, values in other.items() if name not in one}
