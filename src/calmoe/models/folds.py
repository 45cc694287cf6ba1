"""Folds: which rows are left out together, each row once."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, check_cv

from calmoe.arrays import as_count
from calmoe.errors import InputError, shown

MOST_VALUES = 20  # of a column of numbers that are left out one by one; above it ranges are left out


def stratified_folds(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """A fold from 0 to count − 1 for each row; every class is spread as evenly as its size allows.

    >>> stratified_folds(np.array([0, 0, 0, 1]), 2, np.random.default_rng(0)).tolist().count(0)
    2
    """
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.int64)
    folds[order] = np.arange(len(labels)) % count
    return folds


def make_folds(
    cv: Any, labels: np.ndarray, groups: np.ndarray | None, kept: np.ndarray, given: Any, y: Any, seed: int
) -> np.ndarray:
    """The fold of each kept row, from a number of folds, a splitter of scikit-learn, or splits."""
    if cv is None or isinstance(cv, int | np.integer):
        count = min(as_count("cv", 5 if cv is None else cv, 2), len(labels))
        if groups is None:
            return stratified_folds(labels, count, np.random.default_rng(seed))
        return grouped_folds(labels, groups, count, seed)
    rows = len(y)
    folds = np.full(rows, -1)
    whole_groups = None
    if groups is not None:
        whole_groups = np.empty(rows, dtype=groups.dtype)
        whole_groups[kept] = groups
    for number, (_, test) in enumerate(check_cv(cv, y, classifier=True).split(given, y, whole_groups)):
        if (folds[test] >= 0).any():
            raise InputError("cv must leave out every row exactly once: it leaves out some rows twice")
        folds[test] = number
    if (folds[kept] < 0).any():
        raise InputError("cv must leave out every row exactly once: some rows are never left out")
    return np.unique(folds[kept], return_inverse=True)[1]


def grouped_folds(labels: np.ndarray, groups: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Folds that keep the rows of a group together."""
    different = len(np.unique(groups))
    if different < 2:
        raise InputError("groups holds one group only: give at least two, or none at all")
    splitter = StratifiedGroupKFold(min(count, different), shuffle=True, random_state=seed % 2**32)
    folds = np.zeros(len(labels), dtype=np.int64)
    # each row alone counts once: classes rarer than the folds are spread as well as they can be
    for number, (_, test) in enumerate(_quiet_split(splitter, labels, groups)):
        folds[test] = number
    return np.unique(folds, return_inverse=True)[1]


def _quiet_split(splitter: Any, labels: np.ndarray, groups: np.ndarray) -> Iterable[tuple[Any, Any]]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield from splitter.split(labels, labels, groups)


def value_folds(values: np.ndarray, count: int) -> np.ndarray:
    """Folds of whole values, of about equal size; −1 where a value has over half of the rows.

    Without such a value too little is left to learn from.

    >>> value_folds(np.array([0, 0, 0, 0, 0, 1, 2, 2]), 3).tolist()
    [-1, -1, -1, -1, -1, 1, 0, 0]
    """
    sizes = np.bincount(values)
    left_out = [value for value in np.argsort(-sizes, kind="stable") if 0 < sizes[value] <= len(values) / 2]
    place, filled = np.full(len(sizes), -1), np.zeros(max(1, min(count, len(left_out))), dtype=np.int64)
    for value in left_out:
        place[value] = filled.argmin()
        filled[place[value]] += sizes[value]
    return place[values]


def shift_groups(name: str, values: np.ndarray) -> np.ndarray:
    """What a shift of this column leaves out together: its values, or ranges where numbers are many.

    >>> shift_groups("state", np.array(["CA", "NY", "CA"], dtype=object)).tolist()
    [0, 1, 0]
    """
    if values.dtype.kind in "fM":
        numbers = values.astype(np.float64)
        if len(np.unique(numbers[~np.isnan(numbers)])) > MOST_VALUES:
            edges = np.nanquantile(numbers, np.linspace(0, 1, 11)[1:-1])
            numbers = np.where(np.isnan(numbers), np.nan, np.searchsorted(edges, numbers, side="right"))
        groups = np.unique(numbers, return_inverse=True)[1]
    else:
        groups = np.unique([value or "" for value in values], return_inverse=True)[1]
    if groups.max() == 0:
        raise InputError(
            f"expect_shift: the column {shown(name)} has one value only, so none can be left out: "
            "name another column"
        )
    return groups
