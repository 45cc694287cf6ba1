"""Columns of text: each different value once, and the rows that it stands in."""

from typing import Any

import numpy as np

from calmoe.errors import InputError
from calmoe.formats.budget import Budget
from calmoe.formats.naming import quoted


def distinct(column: Any) -> tuple[np.ndarray, list[str]]:
    """Which value of an Arrow column stands in each row, [N], and the different values."""
    encoded = column.dictionary_encode().combine_chunks()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def repeat(name: str, codes: np.ndarray, values: list[str], budget: Budget) -> np.ndarray:
    """The value of each row, [N]; without NUL, which NumPy drops from the end so that groups become one."""
    if any("\0" in value for value in values):
        raise InputError(f"group column {quoted(name)} holds a NUL character: take it out")
    budget.spend_text(codes.size, max(map(len, values), default=0))
    return np.asarray(values, dtype=str)[codes]
