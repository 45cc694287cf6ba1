"""Checks of what a model folder's JSON holds."""

from collections.abc import Collection
from typing import Any

from calmoe.errors import InputError, shown
from calmoe.validation import items, table, text

MOST_CLASSES = 100_000


def exactly(field: str, value: Any, keys: Collection[str]) -> dict[str, Any]:
    """A table with these keys and no others.

    >>> exactly("inputs", {"kind": "texts", "size": 3}, ("kind",))
    Traceback (most recent call last):
    calmoe.errors.InputError: inputs.size is not known: this file is of another calmoe, or damaged
    """
    checked = table(field, value, keys)
    if strange := sorted(set(checked) - set(keys)):
        name = f"{field}.{strange[0]}" if field else strange[0]
        raise InputError(f"{name} is not known: this file is of another calmoe, or damaged")
    return checked


def read_classes(value: Any) -> list[str] | list[int]:
    """The names of the classes: all text, or all whole numbers; no two alike."""
    classes = items("classes", value, least=2, most=MOST_CLASSES)
    kinds = {type(each) for each in classes}
    if kinds not in ({str}, {int}):
        raise InputError(f"classes must be all texts or all whole numbers, not {shown(classes)}")
    if kinds == {str}:
        for each in classes:
            text("classes", each, most=10_000)
    if len(set(classes)) < len(classes):
        raise InputError("classes must be different from each other")
    return classes
