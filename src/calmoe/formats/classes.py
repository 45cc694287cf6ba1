"""Which class a label and a column of probabilities stand for: by name or by number, never by a guess."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calmoe.errors import InputError, shown
from calmoe.formats.columns import check_there, class_name, listed

SEPARATORS = "_.:- /"
MOST_CLASSES = 10_000


class Truth(NamedTuple):
    """A column of labels: each row's value as an index [N] into the names of the values."""

    column: str
    codes: np.ndarray
    names: list[str]
    values: list[int] | None
    """What the names stand for, where they are whole numbers or booleans."""


def truth_of(column: str, cells: np.ndarray) -> Truth:
    """The labels in a column of numbers, booleans or text."""
    if cells.ndim != 1:
        raise InputError(f"labels {shown(column)} must be one value a row, not {list(cells.shape)}")
    if cells.dtype.kind not in "biufU":
        raise InputError(f"labels {shown(column)} must hold numbers or text, not {cells.dtype}")
    if cells.dtype.kind == "f" and (gaps := np.isnan(cells)).any():
        raise InputError(f"labels {shown(column)} are blank in row {int(gaps.argmax())}: give each a class")
    if cells.dtype.kind == "f" and (odd := ~(np.isfinite(cells) & (cells == np.round(cells)))).any():
        row = int(odd.argmax())
        raise InputError(
            f"labels must be whole numbers (class indices from 0) or names: row {row} of {shown(column)} has "
            f"{cells[row]:g}"
        )
    if cells.dtype.kind == "U":
        cells = np.char.strip(cells)
        if (blank := cells == "").any():
            raise InputError(
                f"labels {shown(column)} are blank in row {int(blank.argmax())}: give each a class"
            )
    values, codes = np.unique(cells, return_inverse=True)
    if len(values) > MOST_CLASSES:
        raise InputError(f"labels {shown(column)} have {len(values):,} different values: name another column")
    numbers = None if values.dtype.kind == "U" else [int(value) for value in values]
    return Truth(column, codes, [class_name(value) for value in values], numbers)


def suffixes(names: Sequence[str]) -> list[str]:
    """What is left of the names without their common beginning, cut at a separator.

    >>> suffixes(["p_cat", "p_car"]), suffixes(["cat", "car"])
    (['cat', 'car'], ['cat', 'car'])
    """
    first = names[0]
    cuts = [place + 1 for place, letter in enumerate(first) if letter in SEPARATORS]
    for cut in sorted(cuts, reverse=True):
        if all(name.startswith(first[:cut]) and len(name) > cut for name in names):
            return [name[cut:] for name in names]
    return list(names)


def counted(names: Sequence[str]) -> bool:
    """Whether the names are 0, 1, … in some order."""
    return sorted(names, key=lambda name: (len(name), name)) == [str(number) for number in range(len(names))]


class Match(NamedTuple):
    """The names of the classes, which column each one is, and each row's class [N] if there are labels."""

    names: list[str]
    order: list[int]
    labels: np.ndarray | None


def match(
    columns: Sequence[str],
    truth: Truth | None,
    classes: Sequence[str] | None,
    by_place: bool,
    said: Sequence[str],
) -> Match:
    """Match classes with columns of probabilities.

    classes: their names, if the user gave them. by_place: whether labels that are numbers may count the
    columns in their order. said: what a message calls the columns.
    """
    width = len(columns)
    readings = [list(columns), *([short] if (short := suffixes(columns)) != list(columns) else [])]
    _check_numbers(said if len(said) == width else columns, readings[-1])
    known = None if truth is None else set(truth.names)
    if classes is not None:
        if len(classes) != width:
            raise InputError(
                f"{len(classes)} classes ({listed(classes)}) and {width} columns of probabilities "
                f"({listed(said)}): name one class a column"
            )
        names = next((reading for reading in readings if set(reading) == set(classes)), list(classes))
        return _ordered(list(classes), [names.index(name) for name in classes], truth)
    for names in readings:
        if known is not None and known <= set(names) and len(set(names)) == width:
            return _ordered(*_sorted(names), truth)
    names = readings[-1] if by_place else readings[0]
    if truth is None:
        return _ordered(*_sorted(names), None)
    if truth.values is not None and (by_place or counted(names)) and _count_columns(truth, width):
        if truth.names[0] in ("False", "True"):
            names = ["False", "True"]
        labels = np.asarray(truth.values)[truth.codes]
        return Match(names, list(range(width)), labels)
    if len(truth.names) > width:
        raise InputError(
            f"labels {shown(truth.column)} have {len(truth.names)} values ({listed(truth.names)}), "
            f"probabilities {width} columns ({listed(said)}): give one column a class, with --probs"
        )
    example = listed(truth.names if len(truth.names) == width else ["a", "b", "c"][:width])
    raise InputError(
        f"labels {shown(truth.column)} are {listed(truth.names)}, and nothing says which of them "
        f"{listed(said)} stand for: name the classes in the order of the columns, such as "
        f"--classes {example.replace(', ', ',')}"
    )


def _check_numbers(columns: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a number that is written in two ways, as in prob_1 and prob_01."""
    first: dict[str, str] = {}
    for column, name in zip(columns, names, strict=True):
        number = name.lstrip("0") or "0"
        if name.isdecimal() and number in first:
            raise InputError(
                f"columns {shown(first[number])} and {shown(column)} have the same number: keep one"
            )
        if name.isdecimal():
            first[number] = column


def _count_columns(truth: Truth, width: int) -> bool:
    values = truth.values or []
    if truth.names and truth.names[0] in ("False", "True"):
        return width == 2
    return values[0] >= 0 and values[-1] < width


def _sorted(names: list[str]) -> tuple[list[str], list[int]]:
    """Numbers in their order, other names as they come."""
    order = list(range(len(names)))
    if all(re.fullmatch(r"-?[0-9]{1,9}", name) for name in names):
        order.sort(key=lambda place: int(names[place]))
    return [names[place] for place in order], order


def _ordered(names: list[str], order: list[int], truth: Truth | None) -> Match:
    if truth is None:
        return Match(names, order, None)
    for name in truth.names:
        check_there("column for the label", name, names)
    places = np.array([names.index(name) for name in truth.names])
    return Match(names, order, places[truth.codes])


def two_classes(
    column: str,
    truth: Truth | None,
    classes: Sequence[str] | None,
    positive: str | None,
    called: str | None = None,
) -> Match:
    """The classes of a lone column of probabilities: the negative one, then the positive one.

    called: what the column's own name says that the positive class is.
    """
    if classes is not None and len(classes) != 2:
        raise InputError(f"{shown(column)} alone is for two classes, not for {listed(classes)}")
    names = list(classes) if classes is not None else [] if truth is None else truth.names
    chosen = positive if positive is not None else _positive(column, truth, names, called)
    others = [name for name in names if name != chosen]
    if positive is not None and len(others) == 2:
        check_there("class", positive, names)
    if len(others) > 1:
        raise InputError(
            f"{shown(column)} alone is for two classes, but the labels are {listed(names)}: "
            "name a column for each class with --probs"
        )
    negative = others[0] if others else "0" if chosen == "1" else f"not {chosen}"
    order = Match([negative, chosen], [0, 1], None)
    return order if truth is None else _ordered(order.names, order.order, truth)


def _positive(column: str, truth: Truth | None, names: list[str], called: str | None) -> str:
    if called is not None and called in names:
        return called
    if (set(names) <= {"0", "1"} or set(names) == {"-1", "1"}) and called in (None, "1"):
        return "1"
    booleans = set(names) <= {"False", "True"} and (truth is None or truth.values is not None)
    if booleans and (called is None or called.casefold() in ("1", "true")):
        return "True"
    of = f" and the labels are {listed(names)}" if names else ""
    example = names[-1] if names else "yes"
    raise InputError(
        f"{shown(column)} is the probability of one class,{of}: say of which, such as --positive {example}"
    )
