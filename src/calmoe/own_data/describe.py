"""What `calmoe train` understood of the data, in a few lines."""

import re
from collections.abc import Hashable, Mapping, Sequence
from shlex import quote

import numpy as np

from calmoe.formats.text import look_like_dates
from calmoe.models.columns import dates_in, numbers_in
from calmoe.models.model import group_column
from calmoe.new_rows import FEWEST_CASES, may_be_names, numbered_cases
from calmoe.own_data.parts import Labelled
from calmoe.own_data.source import Source
from calmoe.own_data.spec import TrainSpec
from calmoe.render.wording import listed, many, shortened

MANY_NUMBERS = 20  # classes that are numbers: from here on they look like a quantity
ID = re.compile(
    r"(^|[^a-zA-Z]|[a-z](?=I))(id|ID|Id)$"
    r"|^(?i:(id[ _-])?(patient|person|subject|customer|client|user|participant|student|household)"
    r"[ _-]?(id|no|nr|number|name)?)$"
)
MOST_ROWS = 20  # of a case, on average
FEWEST_PAIRS, FEWEST_DIFFER = 40, 20  # rows of a case; neighbours with different labels
ALIKE = 0.25  # the labels of a case differ this much as often as those of neighbours
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
    if alike := spelled_alike([str(each) for each in data.classes]):
        lines.append(
            f"note: {listed(shortened(alike))} differ only in capitals or spaces, and each becomes a class "
            "of its own: if they are one, write them alike"
        )
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
    lines += [] if spec.cluster else _cases_notes(data)
    rest = f", {len(parts.shift):,} are the shift that is held out" if len(parts.shift) else ""
    whole = "" if source.cases is None else f"whole cases of {spec.cluster}, one row of each scored: "
    lines.append(f"split: {whole}{len(parts.fit):,} to learn from, {len(parts.held_out):,} to score on{rest}")
    return lines


def spelled_alike(classes: Sequence[str]) -> list[str]:
    """The classes that are another one but for capitals and spaces, beside it.

    >>> spelled_alike(["No", "Yes", "no", "not sure"])
    ['No', 'no']
    """
    groups: dict[str, list[str]] = {}
    for name in classes:
        groups.setdefault("".join(name.split()).casefold(), []).append(name)
    return [name for group in groups.values() if len(group) > 1 for name in group]


def _cases_notes(data: Labelled) -> list[str]:
    """Columns that may name cases, of which rows teach the model and others judge it."""
    source = data.source
    columns: dict[str, np.ndarray] = {**source.others, **source.columns, **source.groups}
    return [
        f"note: {name} may name cases of several rows, such as persons: if so give --cluster {quote(name)}, "
        "else rows of cases that taught the model judge it; if not, --cluster row"
        for name, values in columns.items()
        if may_name_cases(name, values, data.codes)
    ]


def may_name_cases(name: str, values: np.ndarray, codes: np.ndarray) -> bool:
    """Whether most rows share their value with a few others only, and the column is called an id, or the
    labels of a value agree, but not those of the next value, as they do with measurements."""
    if not may_be_names(values):
        return False
    cases, unnamed = numbered_cases(group_column(values, name))
    rows = np.bincount(cases)
    named = len(values) - unnamed
    if (
        rows.size - unnamed < FEWEST_CASES
        or 2 * rows[rows > 1].sum() < named
        or named > MOST_ROWS * rows.size
    ):
        return False
    if ID.search(name):
        return True
    order = np.lexsort((np.random.default_rng(0).random(len(cases)), cases))
    cases, labels = cases[order], codes[order]
    alike, differ = cases[1:] == cases[:-1], labels[1:] != labels[:-1]
    within, between = differ[alike], differ[~alike]
    enough = len(within) >= FEWEST_PAIRS and between.sum() >= FEWEST_DIFFER
    return bool(enough and within.mean() < ALIKE * between.mean())


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
        elif kind == CATEGORY and look_like_dates(values):
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
        f"note: {name} looks like dates but is read as categories: write all dates as 2020-12-31, and leave "
        "cells without one blank"
        for name in days
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
