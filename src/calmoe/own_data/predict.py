"""`calmoe predict`: a model's predictions for a table, texts or images, in a file for `calmoe audit`."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calmoe.calibration.calibrator import FLATTERED, FLATTERY, with_flattered_marked
from calmoe.errors import InputError, shown
from calmoe.files import check_new, legible
from calmoe.formats import SAVED
from calmoe.formats.writing import TAUGHT
from calmoe.models.model import Model, class_name
from calmoe.models.table_model import TableModel
from calmoe.own_data.source import DOMAIN, Source, read_images, rows_of
from calmoe.own_data.tables import read_table
from calmoe.predictions import Predictions
from calmoe.render.wording import many


class Predicted(NamedTuple):
    """The predictions, and notes on labels and groups."""

    predictions: Predictions
    notes: list[str]


def predict(model: Model, data: Path, out: Path, label: str = "", groups: tuple[str, ...] = ()) -> Predicted:
    """Predict every row of `data`, and write `out`."""
    check_new(out, SAVED, "predictions")
    if not data.exists():
        raise InputError(f"there is no file or folder {legible(data)}")
    if model.kind == "images" and groups:
        raise InputError("--group names columns, and images have none: put them into DIR/domain/class")
    source, notes = _read(model, data, label, groups)
    taught = _taught(model, source)
    if taught.any():
        or_cases = ", or others of their cases," if "cluster" in model.card.settings else ""
        notes.append(
            f"{int(taught.sum()):,} of {len(taught):,} rows{or_cases} taught the model, which looks better "
            f"on them than it is: the column {TAUGHT} says which, and calmoe audit leaves them out"
        )
    elif source.digest == model.card.digest:
        notes.append(
            "the model was trained on these very data, and looks better on them than it is: audit its "
            "held_out.safetensors, or new rows"
        )
    labels: Any = None
    if len(source.labels):
        unknown = sum(value is None for value in source.labels)
        strange = "" if label else _no_class(model, source)
        if unknown:
            rows = many(unknown, "row has", "rows have")
            notes.append(f"{rows} no label, so the predictions have none: leave such rows out for an audit")
        elif strange:
            notes.append(f"{strange} is no class of the model: the predictions are written without labels")
        else:
            labels = source.labels
    names = [legible(path.relative_to(data) if data.is_dir() else path.name) for path in source.files]
    files = {"file": np.array(names)} if names else {}
    marks = {TAUGHT: taught} if taught.any() else {}
    predictions = model.predictions(source.inputs, labels, files | source.groups | marks)
    notes += _unknown_values(model, source)
    predictions = with_flattered_marked(predictions)
    predictions.save(out)
    if FLATTERED in predictions.metadata:
        notes.append(FLATTERY)
    return Predicted(predictions, notes)


def _read(model: Model, data: Path, label: str, groups: tuple[str, ...]) -> tuple[Source, list[str]]:
    if model.kind == "arrays":
        raise InputError("this model takes arrays: load it in Python, calmoe.load(folder).predictions(X)")
    if model.kind == "images":
        source = read_images(data, labelled=False)
        return source, list(source.notes)
    if data.is_dir():
        raise InputError(f"{legible(data)} is a folder: this model takes {model.kind}, give a file")
    text = model.card.text if model.kind == "texts" else ""
    if model.kind == "texts" and not text:
        raise InputError("the model's card names no column of texts: load it in Python, calmoe.load(folder)")
    table = read_table(data, text)
    there = table.columns  # which of the model's columns it has
    wanted = label or (model.card.label if model.card.label in there else "")
    kept = (*model.card.groups, str(model.card.settings.get("cluster", "")))
    own = (name for name in kept if name in there and name != DOMAIN)
    named = tuple(dict.fromkeys((*groups, *own)))
    source = rows_of(table, data, label=wanted, text=text, groups=named)
    return source, list(source.notes)


def _taught(model: Model, source: Source) -> np.ndarray:
    """Which rows taught the model; none where it does not know. [N]"""
    if model.taught is None:
        return np.zeros(len(source), dtype=bool)
    rows = model.taught.recognises(source.keys(model.card.columns))
    cases = source.groups.get(str(model.card.settings.get("cluster", "")))
    return rows if cases is None else rows | model.taught.knows_cases(cases)


def _unknown_values(model: Model, source: Source) -> list[str]:
    """Columns of which most values were not in the table that the model learned from."""
    if not isinstance(model, TableModel):
        return []
    counts = model.estimator.preparation_.unknown({name: source.columns[name] for name in model.columns})
    return [
        f"column {name}: {count:,} of {len(source):,} values are unknown to the model: are they written as "
        "in the table that it was trained on?"
        for name, count in counts.items()
        if 2 * count > len(source)
    ]


def _no_class(model: Model, source: Source) -> str:
    """A label that is none of the model's classes; "" where all are."""
    strange = {*source.labels} - {class_name(value) for value in model.classes} - {None}
    what = "the folder" if source.kind == "images" else "the label"
    return f"{what} {shown(min(strange), 60)}" if strange else ""
