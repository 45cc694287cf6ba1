"""The experts and the routing of a mixture, out of columns of any name."""

import re
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import as_tensor
from calmoe.errors import InputError, shown
from calmoe.formats.classes import counted, suffixes
from calmoe.formats.columns import Columns, check_there, listed
from calmoe.formats.naming import Named, is_numeric, stacked

EXPERT = re.compile(r"expert_([0-9]{1,9})_(?:prob|p|proba)_(.+)")
BETWEEN = ("_", "_prob_", "_p_", "_proba_")


class Scores(NamedTuple):
    """Probabilities, their logarithms or logits [N, C] or [N, K, C]; the last axis is 1 for a lone class.

    names: what the last axis is called. by_place: whether the user put it in the order of the classes.
    """

    columns: list[str]
    names: list[str]
    values: np.ndarray
    log: bool = False
    by_place: bool = False
    lone: bool = False


class Remaining:
    """The columns of a file, which leave as they are used, and what the user says of them.

    arrays: whether they are arrays of any shape, as in npz files.
    """

    def __init__(self, columns: Named, asked: Columns, arrays: bool) -> None:
        self.columns, self.asked, self.arrays = dict(columns), asked, arrays

    def take(self, name: str) -> np.ndarray:
        check_there("column", name, self.columns)
        values = readable(self.columns, name)
        del self.columns[name]
        return values

    def take_numbers(self, name: str) -> np.ndarray:
        values = self.take(name)
        if values.dtype.kind not in "fiu":
            raise InputError(f"column {shown(name)} must hold numbers only, not {_odd_cell(values)}")
        if not values.ndim:
            raise InputError(f"array {shown(name)} is one number: give one a row")
        return values

    def numbered(self, kinds: tuple[str, ...]) -> Scores | None:
        """The first of these arrays that is there, under its own name or as numbered columns."""
        for kind in kinds:
            used, values = ([kind], None) if self.arrays else self._stacked(kind)
            if self.arrays and kind in self.columns:
                values = self.take_numbers(kind)
            if values is not None:
                width = values.shape[-1] if values.ndim else 0
                return Scores(used, [str(number) for number in range(width)], values, log="log_" in kind)
        return None

    def _stacked(self, kind: str) -> tuple[list[str], np.ndarray | None]:
        plain = {name: readable(self.columns, name) for name in self.columns if is_numeric(name)}
        names = list(plain)
        values = stacked(plain, [kind]).get(kind)
        used = [name for name in names if name not in plain]
        for name in used:
            del self.columns[name]
        return used, values


def readable(columns: Named, name: str) -> np.ndarray:
    """The column, or the error that says why it cannot be read."""
    values = columns[name]
    if isinstance(values, InputError):
        raise values
    return values


def _odd_cell(column: np.ndarray) -> str:
    """The first cell of a column of text that is no number."""
    for row, cell in enumerate(column.tolist() if column.dtype.kind == "U" and column.ndim == 1 else ()):
        try:
            float(cell)
        except ValueError:
            return f"{shown(cell, 60)} in row {row}"
    return str(column.dtype)


def expert_scores(parts: Remaining, scores: Scores | None) -> Scores | None:
    """The experts' probabilities [N, K, C], classes in the order of the mixture's columns, if any."""
    if parts.asked.experts is not None:
        return _named(parts, list(parts.asked.experts), scores)
    if not parts.arrays and (by_class := _by_class(parts, scores)) is not None:
        return by_class
    numbered = parts.numbered(("expert_log_probs", "expert_probs"))
    named = scores is not None and not (scores.by_place or counted(suffixes(scores.names)))
    if numbered is not None and named and parts.asked.classes is None:
        raise InputError(
            f"nothing says which class each column of the experts is ({listed(numbered.columns)}): name them "
            "with --experts, or the classes in their order with --classes"
        )
    return numbered


def routing_weights(parts: Remaining, experts: Tensor | None) -> dict[str, Tensor]:
    """The routing [N, K], or [K] for all rows, under its name."""
    asked, kind = parts.asked, "routing"
    if asked.routing is None:
        numbered = parts.numbered(("log_routing", "routing"))
        if numbered is None:
            return {}
        kind, values = "log_routing" if numbered.log else "routing", numbered.values
    elif isinstance(asked.routing[0], str):
        columns = [parts.take_numbers(str(name)) for name in asked.routing]
        alone = len(columns) == 1 and parts.arrays
        values = columns[0] if alone else _beside(columns)
    else:
        values = np.array(asked.routing, dtype=np.float64)
    if experts is not None and experts.ndim == 3 and values.shape[-1] != experts.shape[1]:
        raise InputError(
            f"the routing is of {values.shape[-1]} experts, the probabilities of {experts.shape[1]}"
        )
    if not asked.routing_logits:
        return {kind: as_tensor(values)}
    if kind == "log_routing":
        raise InputError("log_routing holds logarithms by name: leave out --routing-logits")
    return {"log_routing": torch.log_softmax(as_tensor(values).double(), dim=-1)}


def _named(parts: Remaining, names: list[str], scores: Scores | None) -> Scores:
    """The experts that the user names: by array, by column, or by the beginnings of columns' names."""
    there = [name for name in names if name in parts.columns]
    if not there and scores is not None and not parts.arrays:
        names = [_beginning(parts, name, each) for name in names for each in _classes(scores)]
    elif len(there) < len(names):
        for name in names:
            check_there("column", name, parts.columns)
    columns = [parts.take_numbers(name) for name in names]
    lone = scores is not None and scores.lone
    if len(columns) == 1 and columns[0].ndim > 1:
        values = columns[0][..., None] if lone and columns[0].ndim == 2 else columns[0]
        numbers = [str(number) for number in range(values.shape[-1])]
        return Scores(names, numbers, values, by_place=True, lone=lone)
    width = _width(parts, len(names), scores)
    chunks = [names[start : start + width] for start in range(0, len(names), width)]
    values = _beside(columns).reshape(len(columns[0]), len(chunks), width)
    wanted = suffixes(chunks[0]) if scores is None else _classes(scores)
    for place, chunk in enumerate(chunks):
        if width > 1 and set(short := suffixes(chunk)) == set(wanted):  # by name, where names say it
            values[:, place] = values[:, place][:, [short.index(name) for name in wanted]]
    return Scores(chunks[0], wanted, values, by_place=True, lone=lone)


def _classes(scores: Scores) -> list[str]:
    """What the classes are called in the names of the mixture's columns."""
    return [scores.names[0].rpartition("_")[2]] if scores.lone else suffixes(scores.names)


def _width(parts: Remaining, columns: int, scores: Scores | None) -> int:
    """How many columns an expert has."""
    if scores is not None:
        width = scores.values.shape[-1]
    elif parts.asked.classes is not None:
        width = len(parts.asked.classes)
    elif parts.asked.routing is not None and columns % len(parts.asked.routing) == 0:
        width = columns // len(parts.asked.routing)
    else:
        raise InputError("nothing says how many columns an expert has: name the classes with --classes")
    if columns % width:
        raise InputError(f"{columns} columns of experts are not {width} for each: expert first, then class")
    return width


def _beginning(parts: Remaining, expert: str, of: str) -> str:
    candidates = [f"{expert}{between}{of}" for between in BETWEEN]
    for name in candidates:
        if name in parts.columns:
            return name
    raise InputError(
        f"there is no column {shown(candidates[0])} for the expert {shown(expert)}: name all its columns "
        f"with --experts, expert first, then class (the file has {listed(parts.columns)})"
    )


def _by_class(parts: Remaining, scores: Scores | None) -> Scores | None:
    """Columns such as expert_0_prob_cat, for each class of the mixture's columns."""
    if scores is None or scores.log:
        return None
    matches = [match for name in parts.columns if (match := EXPERT.fullmatch(name))]
    readings = [list(scores.names), _classes(scores)]
    classes = next((names for names in readings if {match[2] for match in matches} == set(names)), None)
    if classes is None:
        return None
    number = 1 + max(int(match[1]) for match in matches)
    by_place = {(int(match[1]), match[2]): match[0] for match in matches}
    if len(by_place) != len(matches) or len(matches) != number * len(classes):
        raise InputError(f"columns of experts have a gap or stand twice: each expert needs {listed(classes)}")
    columns = [parts.take_numbers(by_place[expert, name]) for expert in range(number) for name in classes]
    values = _beside(columns).reshape(len(columns[0]), number, len(classes))
    return Scores([matches[0][0]], scores.names, values, by_place=scores.by_place, lone=scores.lone)


def _beside(columns: list[np.ndarray]) -> np.ndarray:
    if any(column.ndim != 1 or len(column) != len(columns[0]) for column in columns):
        raise InputError(
            f"columns must be equally long, one value a row, not {listed(c.shape for c in columns)}"
        )
    return np.stack([column.astype(np.float64) for column in columns], axis=1)
