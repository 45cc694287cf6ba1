"""Columns of text: the distinct values, the value of each row as an index, and whether these are dates."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from calmoe.errors import InputError, shown
from calmoe.formats.budget import Budget

MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
DATE = re.compile(
    r"(\d{1,2}([./-])\d{1,2}\2\d{4}|\d{2}([./-])\d{2}\3\d{2}|\d{1,2}/\d{1,2}/\d{2}|\d{4}([./-])\d{1,2}\4\d{1,2}"
    rf"|\d{{1,2}}[ -]({MONTH})[a-z]*\.?[ -]\d{{4}}|({MONTH})[a-z]*\.? \d{{1,2}},? \d{{4}})([ T].*)?",
    re.IGNORECASE,
)
MOSTLY = 0.8  # of the different values


def look_like_dates(values: Iterable[Any]) -> bool:
    """Whether most of the words are dates, in whatever order.

    >>> look_like_dates(["31.12.2020", "1.1.2021", "2.1.2021", "14 Mar 2022", "unknown"])
    True
    """
    given = {str(value).strip() for value in values if value is not None} - {""}
    return sum(DATE.fullmatch(value) is not None for value in given) >= max(1, MOSTLY * len(given))


def distinct(column: Any) -> tuple[np.ndarray, list[str]]:
    """The index of each row's value in an Arrow column, [N], and the distinct values."""
    encoded = column.dictionary_encode().combine_chunks()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def repeat(name: str, codes: np.ndarray, values: list[str], budget: Budget) -> np.ndarray:
    """The value of each row, [N]. NUL is refused: NumPy drops one at the end, which may merge two groups."""
    if any("\0" in value for value in values):
        raise InputError(f"group column {shown(name)} holds a NUL character: take it out")
    budget.spend_text(codes.size, max(map(len, values), default=0))
    return np.asarray(values, dtype=str)[codes]
