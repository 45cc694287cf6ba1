"""What `calmoe train` understood of the data, in a few lines."""

import re
from collections.abc import Hashable, Mapping

import numpy as np

from calmoe.models.columns import dates_in, numbers_in
from calmoe.own_data.parts import Labelled
from calmoe.own_data.source import Source
from calmoe.own_data.spec import TrainSpec
from calmoe.render.wording import listed, many, shortened

MANY_NUMBERS = 20  # classes that are numbers: from here on they look like a quantity
DAY = re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d{4}|\d{2})")
NUMBER, DATE, CATEGORY = ("number", "numbers"), ("date", "dates"), ("category", "categories")


def describe(data: Labelled, spec: TrainSpec) -> list[str]:
    """Lines on the rows, the classes, the columns, the groups and the split."""
    source, parts = data.source, data.parts
    what = {"tables": "rows", "texts": "texts", "images": "images"}[source.kind]
    lines = [f"{source.name}: {len(source):,} {what}"]
    if source.kind == "tables":
        idle = _idle(source)
        lines[0] += f", {many(len(source.columns) - len(idle), 'column')} to learn from"
        lines += column_lines(source, idle)
    elif source.unused:
        names = listed(shortened(source.unused))
        lines.append(f"not learned from: {names}; --group {source.unused[0]} scores by it")
    lines.append(class_line(data, spec.label))
    if len(data.classes) >= MANY_NUMBERS and numbers_in(source.labels) is not None:
        lines.append(
            f"note: {spec.label} looks like a quantity, and each of its {len(data.classes)} numbers becomes "
            "a class: ranges of it may be what you want"
        )
    if data.rare is not None:
        lines.append(
            f"{data.classes[data.rare]} is rare: accuracy says little, look at log loss and average precision"
        )
    for name, column in source.groups.items():
        values, counts = np.unique(column.astype(str), return_counts=True)
        smallest = f"{values[counts.argmin()]} with {many(int(counts.min()), 'row')}"
        lines.append(f"group {name}: {many(len(values), 'value')}, the smallest is {smallest}")
    rest = f", {len(parts.shift):,} are the shift that is held out" if len(parts.shift) else ""
    lines.append(f"split: {len(parts.fit):,} to learn from, {len(parts.held_out):,} to score on{rest}")
    return lines


def class_line(data: Labelled, label: str) -> str:
    counts = np.bincount(data.codes, minlength=len(data.classes))
    shares = [
        f"{data.classes[i]} {share:.{0 if 0.05 <= share <= 0.95 else 1}%}"
        for i in np.argsort(-counts, kind="stable")
        for share in [counts[i] / counts.sum()]
    ]
    classes = many(len(data.classes), "class", "classes")
    return f"label {label or 'folder'}: {classes}, {listed(shortened(shares))}"


def column_lines(source: Source, idle: Mapping[str, str]) -> list[str]:
    """How many columns are numbers, dates and categories; where values are missing; what looks like a key."""
    kinds: dict[tuple[str, str], list[str]] = {NUMBER: [], DATE: [], CATEGORY: []}
    gaps: dict[str, int] = {}
    keys, texts, days = [], [], []
    for name, values in source.columns.items():
        if name in idle:
            continue
        if values.dtype.kind == "f":
            kind, absent = NUMBER, np.isnan(values)
        elif values.dtype.kind == "M":
            kind, absent = DATE, np.isnat(values)
        else:
            absent = np.array([value is None for value in values], dtype=bool)
            kind = CATEGORY
            if numbers_in(values) is not None:
                kind = NUMBER
            elif dates_in(values) is not None:
                kind = DATE
        kinds[kind].append(name)
        if absent.any():
            gaps[name] = int(absent.sum())
        if kind == CATEGORY and _is_text(values):
            texts.append(name)
        elif kind == CATEGORY and _are_days(values):
            days.append(name)
        elif kind != DATE and _is_key(values):
            keys.append(name)
    counts = [many(len(names), *words) for words, names in kinds.items() if names]
    lines = [f"columns: {listed(counts)}"]
    if gaps:
        most = sorted(gaps, key=lambda name: -gaps[name])
        lines.append("missing values: " + listed(shortened([f"{name} {gaps[name]:,}" for name in most])))
    if idle:
        lines.append(f"left out: {listed(shortened([f'{name} ({why})' for name, why in idle.items()]))}")
    lines += [
        f"note: {name} is another in every row: if it only numbers them, leave it out with --drop {name}"
        for name in keys
    ]
    lines += [f"note: {name} looks like texts: to learn from them give --text {name}" for name in texts]
    lines += [
        f"note: {name} looks like dates but is read as categories: write dates as 2020-12-31" for name in days
    ]
    return lines


def _idle(source: Source) -> dict[str, str]:
    """The columns that tell nothing, or nothing new, and why; `Preparation` leaves them out."""
    idle: dict[str, str] = {}
    first: dict[Hashable, str] = {}
    for name, values in source.columns.items():
        texts = values.dtype == object
        content: Hashable = tuple(values.tolist()) if texts else values.tobytes()
        if len(set(values.tolist()) if texts else np.unique(values)) == 1:
            idle[name] = "one value"
        elif content in first:
            idle[name] = f"a copy of {first[content]}"
        first.setdefault(content, name)
    return idle


def _is_text(values: np.ndarray) -> bool:
    """Whether most rows have some words of their own."""
    given = [value for value in values if value is not None]
    words = sum(len(str(value).split()) for value in given)
    return len(given) >= 50 and len({*given}) > len(given) / 2 and words >= 4 * len(given)


def _are_days(values: np.ndarray) -> bool:
    """Whether the values are dates in another order than year, month, day."""
    given = {str(value) for value in values if value is not None}
    return bool(given) and all(map(DAY.fullmatch, given))


def _is_key(values: np.ndarray) -> bool:
    """Whether every row has a value of its own that is no measurement."""
    if len(values) < 50:
        return False
    listed = values.tolist()
    if len(set(listed)) < len(listed):
        return False
    if values.dtype == object:
        numbers = numbers_in(values)
        if numbers is None:
            return True
        values = numbers
    return bool((values == np.round(values)).all())
