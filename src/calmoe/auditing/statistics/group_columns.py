"""From the columns of a file to groups of rows: values, years of dates, and quarters of measurements.

A column of words has at most `MOST_VALUES` groups, one of whole numbers as many as `column_groups` has; of
other numbers each quarter of the rows is a group. Rows without a value are a group of their own.
"""

import itertools
import re
from collections.abc import Mapping

import numpy as np

from calmoe.formats.text import look_like_dates
from calmoe.metrics.groups import CATEGORIES, column_groups

MOST_VALUES = 100  # of a column of words that names groups
MISSING = "(missing)"
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T].*)?")
FEWEST = 40  # rows that have a measurement: of fewer, quarters tell nothing


def named(values: np.ndarray) -> np.ndarray:
    """The column with a name for blanks, dates as years (as months within one year), and few whole numbers
    with gaps as words.

    >>> named(np.array(["a", " "])), named(np.array([1.0, np.nan, 2.0]))
    (array(['a', '(missing)'], ...), array(['1', '(missing)', '2'], ...))
    """
    if values.dtype.kind == "f":
        gaps = np.isnan(values)
        there = np.unique(values[~gaps])
        if gaps.any() and len(there) <= CATEGORIES and (there == np.round(there)).all():
            words = np.char.mod("%d", np.where(gaps, 0, values))
            return np.where(gaps, MISSING, words)
    if values.dtype.kind != "U":
        return values
    texts, which = np.unique(np.char.strip(values), return_inverse=True)
    dates = [text for text in texts.tolist() if text]
    if len(dates) > CATEGORIES and all(map(DATE.fullmatch, dates)):
        texts = np.array([text[: 4 if dates[0][:4] != dates[-1][:4] else 7] for text in texts.tolist()])
    return np.where(texts == "", MISSING, texts)[which]


def group_rows(columns: Mapping[str, np.ndarray]) -> dict[tuple[str, str], np.ndarray]:
    """Masks by column and name of the group; a column of truth values has two groups.

    >>> list(group_rows({"hard": np.array([True, False]), "site": np.array(["a", "b"])}))
    [('hard', 'hard'), ('hard', 'not hard'), ('site', 'site a'), ('site', 'site b')]
    >>> [name for _, name in group_rows({"age": np.arange(20, 60, 0.5)})][1:]
    ['age 29.88 to 39.75', 'age 39.75 to 49.62', 'age above 49.62']
    """
    masks: dict[tuple[str, str], np.ndarray] = {}
    for column, given in columns.items():
        values = named(given)
        if names_rows(values):
            continue
        own = column_groups({column: values}, MOST_VALUES).get(column)
        if own is None:
            own = quarters(values)
        elif values.dtype == bool:
            masks |= {(column, column): own[column], (column, f"not {column}"): ~own[column]}
            continue
        masks |= {(column, f"{column} {value}"): mask for value, mask in own.items()}
    return masks


def quarters(values: np.ndarray) -> dict[str, np.ndarray]:
    """Four parts of about as many rows each, and the rows without a value; none of words, or of few rows."""
    if values.dtype.kind not in "fiu":
        return {}
    numbers = values.astype(np.float64)
    there = np.isfinite(numbers)
    if there.sum() < FEWEST:
        return {}
    edges = np.unique(np.quantile(numbers[there], [0.25, 0.5, 0.75]))
    edges = edges[edges < numbers[there].max()]
    part, last = np.searchsorted(edges, numbers), len(edges)
    if not last:
        return {}
    names = [f"{edge:.4g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in itertools.pairwise(names)]
    said = [f"up to {names[0]}", *between, f"above {names[-1]}"]
    masks = {name: there & (part == i) for i, name in enumerate(said)}
    return masks | ({} if there.all() else {MISSING: ~there})


def names_rows(values: np.ndarray) -> bool:
    """Whether words or many whole numbers are mostly there once, such as names of files: they name rows."""
    if values.dtype.kind not in "USiu" or len(values) < 20:
        return False
    different = len(np.unique(values))
    return different > len(values) / 2 and (values.dtype.kind in "US" or different > CATEGORIES)


def why_not(values: np.ndarray) -> str:
    """In a few words why a column has no groups."""
    values = named(values)
    if values.dtype.kind in "US" and look_like_dates(np.unique(values)):
        return "dates not written as 2020-12-31"
    if values.dtype.kind in "US" or names_rows(values):
        return f"{len(np.unique(values)):,} values"
    return "measurements" if np.isfinite(values.astype(np.float64)).sum() < FEWEST else "one value"
