"""Columns of text: the distinct values, and the value of each row as an index."""

from typing import Any

import numpy as np

from calmoe.errors import InputError, shown
from calmoe.formats.budget import Budget


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
