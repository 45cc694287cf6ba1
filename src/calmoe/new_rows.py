"""The rows to judge a model by: they did not teach it, and none repeats another's case."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from calmoe.errors import InputError, shown
from calmoe.formats import Columns
from calmoe.formats.writing import TAUGHT
from calmoe.prediction_checks import MISSING, NO_VALUE
from calmoe.predictions import Predictions

EVERY_ROW = "row"  # in the place of a column: every row is a case of its own
FEWEST_CASES = 20  # a column of fewer values names groups
Cases = Literal["not said", "named", "every row"]
"""What the user says: a column that names the cases, or that every row is a case of its own."""


class NewRows(NamedTuple):
    """Rows that did not teach the model, without the column that says so; and their numbers among all. [M]

    left_out: how many of how many rows taught the model. judged: how many of how many rows are judged, one of
    each case. Both are "" where no row is left out.
    """

    predictions: Predictions
    numbers: np.ndarray
    left_out: str
    cases: Cases = "not said"
    judged: str = ""


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
    """One row, at random, of each value of the column, which is left out; all rows where `column` is None,
    or is `EVERY_ROW`.

    >>> probs, groups = np.full((60, 2), 0.5), {"person": np.arange(60) // 2, "site": ["a", "b"] * 30}
    >>> one = one_of_each(new_rows(Predictions.from_probs(probs, groups=groups)), "person")
    >>> one.judged, list(one.predictions.groups), one.cases
    ('of each person one row is judged: 30 of 60 rows', ['site'], 'named')
    """
    if column is None:
        return new
    if column == EVERY_ROW:
        return new._replace(cases="every row")
    cases, unnamed = numbered_cases(new.predictions.group(column))
    rows = one_row_each(cases, seed)
    if len(rows) < min(FEWEST_CASES, len(cases)):
        raise InputError(
            f"column {shown(column, 60)} names {len(rows)} cases in {len(cases):,} rows, too few to judge "
            f"one row of each: give --cluster a column that names each case"
        )
    kept = new.predictions.take(rows)
    groups = {name: values for name, values in kept.groups.items() if name != column}
    new = new._replace(predictions=replace(kept, groups=groups), numbers=new.numbers[rows])
    new = new._replace(cases="not said" if unnamed else "named")
    if len(rows) == len(cases):
        return new
    judged = f"of each {column} one row is judged: {len(rows):,} of {len(cases):,} rows"
    alone = f", with all {unnamed:,} that name none" if unnamed else ""
    return new._replace(judged=judged + alone)


def judged_rows(predictions: Predictions, cluster: str | None, seed: int) -> Predictions:
    """New rows, one of each case if the column that names them is there."""
    new = new_rows(predictions)
    return one_of_each(new, cluster if cluster in predictions.groups else None, seed).predictions


def one_row_each(cases: np.ndarray, seed: int) -> np.ndarray:
    """The number of one row of each case, at random, in order.

    >>> len(one_row_each(np.array([7, 7, 3, 7]), seed=0))
    2
    """
    order = np.random.default_rng(seed).permutation(len(cases))
    return np.sort(order[np.unique(cases[order], return_index=True)[1]])


def with_cluster(columns: Columns, cluster: str | None) -> Columns:
    """The columns to read: that of the cases is needed beside the groups which the user names."""
    if columns.groups is None or cluster is None or cluster in (EVERY_ROW, *columns.groups):
        return columns
    return replace(columns, groups=(*columns.groups, cluster))


def numbered_cases(column: np.ndarray) -> tuple[np.ndarray, int]:
    """The number of each row's case [N], and how many rows name none: each of these is a case of its own.

    >>> numbered_cases(np.array(["b", " ", "a", "b", "(missing)"]))
    (array([1, 2, 0, 1, 3]), 2)
    """
    ids, cases = np.unique(column, return_inverse=True)
    blank = ~named(ids)
    unnamed = blank[cases]
    numbers = np.where(unnamed, len(ids) + np.cumsum(unnamed), (np.cumsum(~blank) - 1)[cases])
    return np.unique(numbers, return_inverse=True)[1], int(unnamed.sum())


def named(values: np.ndarray) -> np.ndarray:
    """Which values name something: no blanks, no NaN, no words for nothing. [N]

    >>> named(np.array(["b", " ", "NA"])), named(np.array([1.0, np.nan]))
    (array([ True, False, False]), array([ True, False]))
    """
    if values.dtype.kind in "US":
        return ~np.isin(np.char.lower(np.char.strip(values)), [*NO_VALUE, MISSING])
    return ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), dtype=bool)


def may_be_names(values: np.ndarray) -> bool:
    """Whether values may be names, such as words and whole numbers; measurements and dates are none.

    >>> may_be_names(np.array([7.0, np.nan])), may_be_names(np.array([0.5, 1.0]))
    (True, False)
    """
    if values.dtype.kind != "f":
        return values.dtype.kind != "M"
    known = values[~np.isnan(values)]
    return bool((known == known.round()).all())


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
