"""What predictions must hold: shapes, sums of one, labels within the classes, columns of groups.

An InputError names the first row that is wrong, and says what to do.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import as_numpy
from calmoe.errors import InputError, shown
from calmoe.files import is_utf8

MISSING = "(missing)"
NO_VALUE = frozenset({"", "?", "-", "na", "n/a", "nan", "null", "none", "missing"})
"""Words for a missing value, in small letters, where others are numbers, dates or names of cases."""
ROWS = 2**18
"""Rows that are checked at a time, to save memory."""


def check_mappings(groups: Any, metadata: Any) -> None:
    """Refuse groups or metadata that are no dicts by name."""
    if not isinstance(groups, dict) or not all(isinstance(name, str) and name for name in groups):
        raise InputError("groups must be a dict: columns of length N by their names")
    if not isinstance(metadata, dict):
        raise InputError(f"metadata must be a dict, not {type(metadata).__name__}")


def _check_text(name: str, text: str) -> None:
    """Refuse what a column of text cannot hold."""
    if not is_utf8(text):
        raise InputError(
            f"group column {shown(name)} holds half of a surrogate pair, which is no character: "
            "write the text again as UTF-8"
        )
    if "\0" in text:
        raise InputError(f"group column {shown(name)} holds a NUL character: take it out")


def check_group(name: str, column: np.ndarray, n: int) -> None:
    """Refuse a group column of another length or kind."""
    plain = column.dtype.kind in "biuf" and column.itemsize <= 8
    if column.shape != (n,) or not (plain or column.dtype.kind == "U"):
        raise InputError(
            f"group column {shown(name)} must hold {n} booleans, numbers or strings, not shape "
            f"{list(column.shape)} of {column.dtype}"
        )
    _check_text(name, "".join([name, *(column.tolist() if column.dtype.kind == "U" else ())]))


def check_parts(parts: dict[str, Tensor]) -> None:
    """Refuse shapes other than [N, C], [N, K], [N, K, C], or the last two alone; parts: by own names."""
    shapes = [tuple(part.shape) for part in parts.values()]
    *probs, routing, experts = shapes
    if len(experts) == 3 and routing == experts[:2] and probs in ([], [(experts[0], experts[2])]):
        return
    given = ", ".join(f"{name} {list(part.shape)}" for name, part in parts.items())
    expected = ", ".join(["[N, C]", "[N, K]", "[N, K, C]"][-len(parts) :])
    raise InputError(f"shapes disagree: {given}; expected {expected}")


def check_log_probs(name: str, logs: Tensor) -> None:
    """Refuse what are no logarithms of probabilities."""
    if not logs.is_floating_point():
        raise InputError(f"{name} must hold floating-point numbers, not {logs.dtype}")
    sums = torch.cat([part.double().exp().sum(dim=-1) for part in logs.split(ROWS)])
    _check_sums(name, sums, "give log-probabilities (log_softmax of logits)")


def check_probs(name: str, probs: Tensor) -> None:
    """Refuse what are no probabilities; those that are a millionth below 0 or above 1 pass."""
    low, high = probs.aminmax()
    if not (low >= -1e-6 and high <= 1 + 1e-6):
        outside = ((probs < -1e-6) | (probs > 1 + 1e-6)).flatten(1).any(dim=1)
        if outside.any():  # otherwise it is NaN, and the check of the sums says so
            raise InputError(
                f"{name} must lie between 0 and 1, row {_first(outside)} does not: give the softmax of "
                "logits, the exp of logarithms, a hundredth of percentages"
            )
    sums = torch.cat([part.double().sum(dim=-1) for part in probs.split(ROWS)])
    _check_sums(name, sums, "normalise them, or give more decimals")


def _check_sums(name: str, sums: Tensor, remedy: str, tolerance: float = 1e-3) -> None:
    """Refuse sums of probabilities, [N] or [N, K], that are NaN or not 1."""
    if ((sums - 1).abs() <= tolerance).all():
        return
    sums = sums[:, None].flatten(1)
    missing = sums.isnan().any(dim=1)
    if missing.any():
        raise InputError(f"{name} has NaN in {int(missing.sum())} rows, first in row {_first(missing)}")
    gaps = (sums - 1).abs()
    off = (gaps > tolerance).any(dim=1)
    if off.any():
        row = _first(off)
        worst = sums[row, gaps[row].argmax()]
        raise InputError(
            f"{name}: probabilities sum to {worst:.4g} in row {row}, not 1 ({int(off.sum())} such rows): "
            f"{remedy}"
        )


def check_labels(labels: Tensor, n: int, classes: int) -> None:
    """Refuse labels of another length, or outside 0..classes − 1."""
    if labels.shape != (n,):
        raise InputError(f"labels must be {n} integers, not shape {list(labels.shape)}")
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = _first(outside)
        counted = (int(labels.min()), int(labels.max())) == (1, classes)
        begin_at_one = ": classes are counted from 0, subtract 1" if counted else ""
        raise InputError(
            f"labels must lie between 0 and {classes - 1}: row {row} has {int(labels[row])} "
            f"({int(outside.sum())} such rows){begin_at_one}"
        )


def _first(mask: Tensor) -> int:
    return int(mask.nonzero()[0, 0])


def whole_numbers(labels: Tensor) -> Tensor:
    """The labels as int64, if they are whole numbers of any kind."""
    if labels.dtype == torch.bool or labels.is_complex():
        kind = "booleans" if labels.dtype == torch.bool else "complex numbers"
        raise InputError(f"labels must be whole numbers (class indices from 0), not {kind}")
    numbers = labels.double().flatten()
    odd = (numbers != numbers.round()) | ~(numbers.abs() < 2**53)  # NaN too
    if odd.any():
        row = _first(odd)
        value = "a number too large" if numbers[row].abs() >= 2**53 else f"{numbers[row]:g}"
        raise InputError(f"labels must be whole numbers (class indices from 0): row {row} has {value}")
    return labels.long()


def group_column(name: str, values: Any) -> np.ndarray:
    """A group column as a NumPy array; pandas' objects become strings or booleans where all of them are.

    >>> group_column("plan", ["basic", None, float("nan")])
    array(['basic', '(missing)', '(missing)'], dtype='<U9')
    """
    if isinstance(values, Tensor):
        return as_numpy(values)
    try:
        column = np.asarray(values)
        if column.dtype.kind == "S":
            return np.char.decode(column, "utf-8")
        if isinstance(values, np.ndarray) and column.dtype != object:
            return column.astype(column.dtype.newbyteorder("="), copy=False)
        objects = np.asarray(values, dtype=object)
    except UnicodeDecodeError:
        raise InputError(f"group column {shown(name)} holds bytes that are not UTF-8: give strings") from None
    except (TypeError, ValueError):
        raise InputError(
            f"group column {shown(name)} must hold booleans, numbers or strings, one a row"
        ) from None
    gaps = [_is_gap(value) for value in objects.flat]
    if objects.ndim == 1 and any(gaps) and not all(gaps):
        known = {type(value) for value, gap in zip(objects, gaps, strict=True) if not gap}
        if known in ({str}, {bool}):
            filled = [MISSING if gap else str(value) for value, gap in zip(objects, gaps, strict=True)]
            column = objects = np.array(filled, dtype=object)
    kinds = {type(value) for value in objects.flat}
    if kinds == {str}:
        _check_text(name, "".join(objects.flat))  # NumPy drops a NUL at the end
    return np.array(objects.tolist()) if column.dtype == object and kinds in ({str}, {bool}) else column


def _is_gap(value: Any) -> bool:
    """None, NaN, or what pandas has for a missing value."""
    return value is None or (not isinstance(value, str) and str(value) in ("nan", "<NA>", "NaT"))
