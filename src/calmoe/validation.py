"""Checks of what files hold, before anything uses it: an InputError names the field and what it must be.

The message begins with the field; `calmoe.errors.about` puts the file before it.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import EXACT, LARGEST, as_count, as_number, check_word
from calmoe.errors import InputError, about, refusal, shown
from calmoe.files import legible, open_regular

MOST_BYTES = 16 * 2**20  # of a JSON file
MOST_LEVELS = 50  # of lists and tables in one another
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def read_json(path: str | Path, most: int = MOST_BYTES) -> Any:
    """The value in a JSON file of at most `most` bytes; an OSError where it cannot be opened."""
    with Path(path).open("rb") as stream:
        data = stream.read(most + 1)
    with about(legible(path)):
        return parse_json(data, most)


def read_document(path: Path) -> Any:
    """The value in a JSON file that calmoe wrote into a folder of its own: no link and no device."""
    with open_regular(path) as stream:
        data = stream.read(MOST_BYTES + 1)
    with about(legible(path)):
        return parse_json(data)


def parse_json(data: bytes, most: int = MOST_BYTES) -> Any:
    """JSON in UTF-8 with finite numbers, no key twice, and no endless nesting.

    >>> parse_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    calmoe.errors.InputError: not a readable JSON file (the key 'a' is there twice)
    """
    if len(data) > most:
        raise InputError(f"not a readable JSON file (it is longer than {most:,} bytes)")
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=unique_keys, parse_float=_finite, parse_constant=_finite
        )
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a readable JSON file ({error})") from None
    inside = [value]
    for _ in range(MOST_LEVELS):
        containers = [each.values() if isinstance(each, dict) else each for each in inside if _nests(each)]
        inside = [each for container in containers for each in container]
        if not inside:
            return value
    raise InputError(f"not a readable JSON file (more than {MOST_LEVELS} lists or tables in one another)")


def _nests(value: Any) -> bool:
    return isinstance(value, dict | list)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: no key may stand twice, as one of its values would be lost."""
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {shown(key)} is there twice")
        table[key] = value
    return table


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is no finite number")
    return value


def parse_number(text: str) -> float:
    """As `float` reads it, but for the underscores and the digits of other scripts that it allows.

    >>> parse_number(" -1e-3 ")
    -0.001
    >>> parse_number("1_0")
    Traceback (most recent call last):
    ValueError: 1_0
    """
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def number(
    field: str, value: Any, *, least: float = -LARGEST, most: float = LARGEST, above: float | None = None
) -> float:
    """A finite number.

    >>> number("temperature", 0, above=0)
    Traceback (most recent call last):
    calmoe.errors.InputError: temperature must be a finite number > 0, not 0
    """
    return as_number(field, value, least, most, above)


def whole(field: str, value: Any, *, least: int = 0, most: int = EXACT) -> int:
    """A whole number between two bounds.

    >>> whole("bins", 10.0, least=1)
    Traceback (most recent call last):
    calmoe.errors.InputError: bins must be a whole number of at least 1, not 10.0
    """
    return as_count(field, value, least, most)


def boolean(field: str, value: Any) -> bool:
    """true or false."""
    if isinstance(value, bool):
        return value
    raise refusal(field, "true or false", value)


def text(field: str, value: Any, most: int = 100_000) -> str:
    """A text of at most `most` characters."""
    if isinstance(value, str) and len(value) <= most:
        return value
    raise refusal(field, f"a text of at most {most:,} characters", value)


def one_of(field: str, value: Any, words: Iterable[str]) -> str:
    """One of these words."""
    return check_word(field, value, words)


def items(field: str, value: Any, *, least: int = 0, most: int = 10_000_000) -> list[Any]:
    """A list of `least` to `most` entries.

    >>> items("clamp", None, least=2, most=2)
    Traceback (most recent call last):
    calmoe.errors.InputError: clamp must be a list of 2, not None
    """
    if isinstance(value, list) and least <= len(value) <= most:
        return value
    raise refusal(field, f"a list of {least if least == most else f'{least} to {most:,}'}", value)


def table(field: str, value: Any, keys: Collection[str] = ()) -> dict[str, Any]:
    """A table that has at least these keys.

    >>> table("sweep", {"setting": "eta"}, ("setting", "values"))
    Traceback (most recent call last):
    calmoe.errors.InputError: sweep.values is missing
    """
    if not isinstance(value, dict):
        raise refusal(field, "a table", value)
    for key in keys:
        if key not in value:
            raise InputError(f"{field}.{key} is missing" if field else f"{key} is missing")
    return value


def numbers(field: str, value: Any, shape: tuple[int | None, ...]) -> np.ndarray:
    """Nested lists of finite numbers as an array of this shape; None stands for any length but zero.

    >>> numbers("coefficients", [[1, 2], [3, "4"]], (2, None))
    Traceback (most recent call last):
    calmoe.errors.InputError: coefficients must be finite numbers [2, any], not [[1, 2], [3, '4']]
    """
    array = np.array(value, dtype=object)
    if len(array.shape) == len(shape) and all(
        length == size or (size is None and length) for length, size in zip(array.shape, shape, strict=True)
    ):
        plain = all(type(entry) in (int, float) and abs(entry) <= LARGEST for entry in array.flat)
        if plain:
            return array.astype(np.float64)
    sizes = ", ".join("any" if size is None else str(size) for size in shape)
    raise refusal(field, f"finite numbers [{sizes}]", value)


def check_shapes(weights: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> None:
    """Refuse weights of other names, shapes or kinds than the model's own.

    >>> check_shapes({"bias": torch.zeros(3)}, {"bias": torch.zeros(2)})
    Traceback (most recent call last):
    calmoe.errors.InputError: bias has the shape [3], the model's own has [2]
    """
    for name in sorted(weights.keys() ^ model.keys()):
        raise InputError(f"{name} is missing" if name in model else f"{name} is no weight of the model")
    for name, own in model.items():
        if weights[name].shape != own.shape:
            given, needed = list(weights[name].shape), list(own.shape)
            raise InputError(f"{name} has the shape {given}, the model's own has {needed}")
        allowed = FLOATS if own.is_floating_point() else (own.dtype,)
        if weights[name].dtype not in allowed:
            raise InputError(f"{name} must hold {own.dtype}, not {weights[name].dtype}")


def check_finite(weights: Mapping[str, Tensor]) -> None:
    """Refuse weights with NaN or infinite numbers."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{name} has NaN or infinite numbers")
