"""The rows to judge a model by: they did not teach it, and none repeats another's case."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calmoe.errors import InputError, shown
from calmoe.formats.writing import TAUGHT
from calmoe.predictions import Predictions


class NewRows(NamedTuple):
    """Rows that did not teach the model, without the column that says so; and their numbers among all. [M]"""

    predictions: Predictions
    numbers: np.ndarray
    left_out: str  # how many of how many rows; "" where none is left out


def new_rows(predictions: Predictions) -> NewRows:
    """The rows to judge a model by; an InputError where there are none.

    >>> probs, groups = np.array([[0.9, 0.1], [0.3, 0.7]]), {"taught_the_model": [True, False]}
    >>> new = new_rows(Predictions.from_probs(probs, groups=groups))
    >>> new.numbers, new.predictions.groups, new.left_out
    (array([1]), {}, '1 of 2 rows')
    """
    check_new(predictions)
    taught = taught_rows(predictions)
    numbers = np.flatnonzero(~taught)
    kept = predictions.take(numbers) if taught.any() else predictions
    groups = {name: column for name, column in kept.groups.items() if name != TAUGHT}
    left_out = f"{int(taught.sum()):,} of {len(taught):,} rows" if taught.any() else ""
    return NewRows(replace(kept, groups=groups) if TAUGHT in kept.groups else kept, numbers, left_out)


def one_of_each(new: NewRows, column: str | None, seed: int = 0) -> NewRows:
    """One row, at random, of each value of the column, which is left out; all rows where `column` is None.

    >>> probs, groups = np.array([[0.9, 0.1], [0.3, 0.7]]), {"person": [7, 7], "site": ["a", "b"]}
    >>> one = one_of_each(new_rows(Predictions.from_probs(probs, groups=groups)), "person")
    >>> len(one.predictions), list(one.predictions.groups)
    (1, ['site'])
    """
    if column is None:
        return new
    cases = new.predictions.group(column)
    order = np.random.default_rng(seed).permutation(len(cases))
    rows = np.sort(order[np.unique(cases[order], return_index=True)[1]])
    kept = new.predictions.take(rows)
    groups = {name: values for name, values in kept.groups.items() if name != column}
    return NewRows(replace(kept, groups=groups), new.numbers[rows], new.left_out)


def left_out_note(left_out: str) -> str:
    """`NewRows.left_out` as a sentence.

    >>> left_out_note("1,234 of 4,454 rows")
    '1,234 of 4,454 rows taught the model and are left out'
    """
    return f"{left_out} taught the model and are left out"


def taught_rows(predictions: Predictions) -> np.ndarray:
    """Which rows taught the model, as their column says; none where there is no such column. [N]"""
    column = predictions.groups.get(TAUGHT)
    if column is None:
        return np.zeros(len(predictions), dtype=bool)
    if column.dtype != bool:
        raise InputError(
            f"column {shown(TAUGHT)} says which rows taught the model: it must hold true or false, not "
            f"{column.dtype}; rename it if it means something else"
        )
    return column


def marked_alike(files: Sequence[Predictions]) -> list[Predictions]:
    """Predictions of the same rows: what taught one of the models is marked in all, and left out of all."""
    taught = np.any([taught_rows(each) for each in files], axis=0)
    return [replace(each, groups=each.groups | {TAUGHT: taught}) if taught.any() else each for each in files]


def check_new(predictions: Predictions) -> None:
    """Refuse predictions of rows that all taught the model."""
    if taught_rows(predictions).all():
        raise InputError(
            f"all {len(predictions):,} rows taught the model or its repair, which looks better on them than "
            "it is: audit rows that neither has seen"
        )
