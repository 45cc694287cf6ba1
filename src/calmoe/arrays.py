"""From whatever the caller holds (torch, NumPy, lists) to checked tensors and numbers."""

import math
import sys
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from calmoe.errors import InputError, refusal

Array: TypeAlias = Tensor | np.ndarray
LARGEST = sys.float_info.max
EXACT = 2**53  # a float holds every whole number up to here
MOST_BINS = 10_000  # of confidence, wherever bins are counted


def as_tensor(values: Array, device: torch.device | None = None) -> Tensor:
    """A detached tensor over the same memory where possible; NumPy arrays may be read-only or reversed."""
    tensor = values.detach() if isinstance(values, Tensor) else _from_numpy(values)
    tensor = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return tensor if device is None else tensor.to(device)


def as_numpy(tensor: Tensor) -> np.ndarray:
    """The values of a tensor, wherever it lies; what NumPy does not know (bfloat16, float8) as float32."""
    plain = tensor.detach().cpu()
    try:
        return plain.numpy()
    except TypeError:
        pass
    try:
        return plain.float().numpy()
    except (TypeError, RuntimeError):
        kind = str(plain.dtype).removeprefix("torch.")
        raise InputError(f"NumPy has no {kind}: give float32") from None


def widen(values: Tensor) -> Tensor:
    """At least float32: half precision overflows and rounds away what sums need."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def as_number(
    name: str, value: Any, least: float = -LARGEST, most: float = LARGEST, above: float | None = None
) -> float:
    """A real number from `least` to `most`, and greater than `above`; scalars of NumPy and torch count.

    >>> as_number("eta", np.float32(2), least=0), as_number("eta", torch.tensor(3), least=0)
    (2.0, 3.0)
    >>> as_number("rate", None, above=0, most=1)
    Traceback (most recent call last):
    calmoe.errors.InputError: rate must be a finite number > 0 and ≤ 1, not None
    """
    number = _scalar(value)
    real = isinstance(number, Real) and not isinstance(number, bool)
    if real and least <= number <= most and (above is None or number > above):
        try:
            return float(number)
        except OverflowError:  # a whole number of more than 308 digits
            pass
    kind = "a number" if math.isinf(most) else "a finite number"
    bounds = [("≥", least), (">", above), ("≤", most)]
    limits = (f"{sign} {end:g}" for sign, end in bounds if end is not None and abs(end) < LARGEST)
    raise refusal(name, f"{kind} {' and '.join(limits)}".rstrip(), value)


def as_count(name: str, value: Any, least: int = 1, most: int = sys.maxsize) -> int:
    """A whole number between two bounds; scalars of NumPy and torch count.

    >>> as_count("bins", np.int8(15))
    15
    >>> as_count("bins", 100_000, most=10_000)
    Traceback (most recent call last):
    calmoe.errors.InputError: bins must be a whole number between 1 and 10000, not 100000
    """
    count = _scalar(value)
    whole = isinstance(count, Integral) and not isinstance(count, bool)
    if whole and least <= count <= most:
        return int(count)
    bounds = f"of at least {least}" if most >= EXACT else f"between {least} and {most}"
    raise refusal(name, f"a whole number {bounds}", value)


def check_word(name: str, value: Any, words: Iterable[str]) -> str:
    """One of the words.

    >>> check_word("equal", "size", ("width", "mass"))
    Traceback (most recent call last):
    calmoe.errors.InputError: equal must be "width" or "mass", not 'size'
    """
    known = list(words)
    if isinstance(value, str) and value in known:
        return value
    *others, last = (f'"{word}"' for word in known)
    raise refusal(name, f"{', '.join(others)} or {last}" if others else last, value)


def check_bins(bins: int) -> int:
    return as_count("bins", bins, 1, MOST_BINS)


UNSAVED = MappingProxyType({"saved": False})
"""The metadata of a dataclass's field that `plain` leaves out: `field(metadata=UNSAVED)`."""


def plain(value: Any) -> Any:
    """What JSON holds: dataclasses and named tuples as dicts, arrays as lists, numbers not finite as None.

    >>> plain({1: np.array([0.5, np.nan])})
    {'1': [0.5, None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        saved = (field.name for field in fields(value) if field.metadata.get("saved", True))
        return {name: plain(getattr(value, name)) for name in saved}
    if hasattr(value, "_asdict"):
        return {name: plain(inner) for name, inner in value._asdict().items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is not None and not isinstance(value, str | bool | int | float):
        raise TypeError(f"JSON holds no {type(value).__name__}")
    return value


def _scalar(value: Any) -> Any:
    """NumPy's numbers and arrays or tensors without dimensions as Python's numbers."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _from_numpy(values: Any) -> Tensor:
    try:
        array = np.asarray(values)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.writeable or any(stride < 0 for stride in array.strides):
            array = array.copy()
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(_not_numbers(values)) from None


def _not_numbers(values: Any) -> str:
    """What to pass instead, judged by attributes: this module knows neither MixtureOutput nor Predictions."""
    kind = type(values).__name__
    if hasattr(values, "probs"):
        return f"expected an array, got the whole {kind}: pass output.probs (or .log_probs where needed)"
    if hasattr(values, "output"):
        return (
            f"expected an array, got the whole {kind}: pass predictions.output.probs (or .output.log_probs "
            "where needed)"
        )
    entries = f" of {values.dtype}" if hasattr(values, "dtype") else ""
    return (
        f"expected numbers in a rectangular array, got {kind}{entries}: give a torch tensor or a NumPy array"
    )
