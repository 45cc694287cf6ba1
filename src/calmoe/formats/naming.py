"""From columns by name to the arrays that predictions are made of; the rest are groups."""

import re
from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from calmoe.arrays import as_tensor
from calmoe.errors import InputError, shown

ARRAYS = ("log_probs", "probs", "log_routing", "routing", "expert_log_probs", "expert_probs", "labels")
COLUMNS = {
    "probs": r"prob_([0-9]+)",
    "log_probs": r"log_prob_([0-9]+)",
    "routing": r"routing_([0-9]+)",
    "log_routing": r"log_routing_([0-9]+)",
    "expert_probs": r"expert_([0-9]+)_prob_([0-9]+)",
    "expert_log_probs": r"expert_([0-9]+)_log_prob_([0-9]+)",
}
NUMERIC = re.compile("|".join(COLUMNS.values()))
LABELS = ("label", "labels")
Named = dict[str, np.ndarray | InputError]
"""Columns by name; of one that cannot be read, why."""


class Table(NamedTuple):
    """What a file holds: arrays under the names above, group columns, metadata."""

    arrays: dict[str, Tensor]
    groups: dict[str, np.ndarray]
    metadata: dict[str, Any]


def is_numeric(name: str) -> bool:
    """Whether a column of this name holds numbers, whatever they look like."""
    return NUMERIC.fullmatch(name) is not None


def check_names(names: list[str]) -> None:
    """Refuse names that are missing, that are given twice, or that look the same."""
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if "\0" in name:
            raise InputError(f"column {number} has a NUL character in its name, {shown(name)}: rename it")
        plain = name.strip()
        if not plain:
            raise InputError(
                f"column {number} has no name: name it or leave it out (pandas: to_csv(..., index=False))"
            )
        if plain in first:
            raise InputError(
                f"columns {first[plain]} and {number} are both named {shown(plain)}: give different names"
            )
        first[plain] = number


def from_columns(columns: dict[str, np.ndarray]) -> Table:
    """Wide columns (`prob_3`, `routing_0`, `expert_1_prob_3`, `label`) as arrays."""
    check_names(list(columns))
    arrays = stacked(columns)
    if not arrays:
        raise InputError("no probability columns: expected `prob_0`, `prob_1`, … (and `label`)")
    _rename_label(columns)
    if "labels" in columns:
        arrays["labels"] = _numbers("label", columns.pop("labels"))
    return Table({name: as_tensor(values) for name, values in arrays.items()}, columns, {})


def stacked(columns: dict[str, np.ndarray], kinds: Iterable[str] = tuple(COLUMNS)) -> dict[str, np.ndarray]:
    """Arrays of these kinds out of the columns that are numbered so, which leave `columns`."""
    arrays = {}
    for array in kinds:
        matches = [match for name in columns if (match := re.fullmatch(COLUMNS[array], name))]
        if matches:
            cells = _by_index(matches)
            sizes = _sizes(array, cells)
            arrays[array] = _stack([cells[index] for index in sorted(cells)], columns).reshape(-1, *sizes)
    return arrays


def from_arrays(columns: dict[str, np.ndarray]) -> Table:
    """Arrays under their own names."""
    check_names(list(columns))
    _rename_label(columns)
    arrays = {name: as_tensor(_numbers(name, columns.pop(name))) for name in ARRAYS if name in columns}
    return Table(arrays, columns, {})


def _rename_label(columns: dict[str, np.ndarray]) -> None:
    """`label` becomes `labels`."""
    if "label" in columns:
        if "labels" in columns:
            raise InputError("there are both `label` and `labels`: keep one")
        columns["labels"] = columns.pop("label")


def _by_index(matches: list[re.Match[str]]) -> dict[tuple[int, ...], str]:
    """The names of columns by their numbers; no number stands for two columns."""
    names: dict[tuple[int, ...], str] = {}
    for match in matches:
        digits = [number.lstrip("0") or "0" for number in match.groups()]
        if max(map(len, digits)) > 9:  # no file has so many columns, and int() has its limits
            raise InputError(f"column {shown(match[0])} has too high a number: count columns from 0")
        index = tuple(map(int, digits))
        if index in names:
            raise InputError(
                f"columns {shown(names[index])} and {shown(match[0])} have the same number: keep one"
            )
        names[index] = match[0]
    return names


def _sizes(array: str, cells: dict[tuple[int, ...], str]) -> list[int]:
    """How many numbers each axis has; every number from zero up must be there."""
    sizes = [1 + max(axis) for axis in zip(*cells, strict=True)]
    # of one index more than there are columns, one is surely missing: no need to count to 3,000,000,000
    within = product(*(range(min(size, len(cells) + 1)) for size in sizes))
    for index in within:
        if index not in cells:
            number = "_".join(map(str, index))
            raise InputError(
                f"columns for {array} have a gap: number {number} is missing; every class has one, from 0"
            )
    return sizes


def _stack(names: list[str], columns: dict[str, np.ndarray]) -> np.ndarray:
    """Columns side by side, [N, columns]; each is freed as soon as it is copied."""
    kinds = [_numbers(name, columns[name]).dtype for name in names]
    stacked = np.empty((len(columns[names[0]]), len(names)), np.result_type(*kinds))
    for place, name in enumerate(names):
        stacked[:, place] = columns.pop(name)
    return stacked


def _numbers(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "fiu":
        classes = ": class indices from 0, in the order of the probabilities" if "label" in name else ""
        raise InputError(f"{name} must hold numbers only, not {values.dtype}{classes}")
    return values
