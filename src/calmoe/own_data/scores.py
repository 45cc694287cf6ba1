"""Scores of models on the parts that were held out, and the tables that show them."""

from typing import NamedTuple

import numpy as np

from calmoe.metrics import accuracy, brier_score, ece, nll
from calmoe.predictions import Predictions
from calmoe.render.grid import Grid, Heading, count, label, number

HELD_OUT, SHIFT = "held out", "shift"
COLUMNS = (("accuracy", "accuracy"), ("log_loss", "log loss"), ("ece", "ECE"), ("brier", "Brier"))
FEWEST_OF_GROUP = 30
MOST_GROUPS = 30


class Row(NamedTuple):
    """A model of the table: what it says of each part."""

    name: str
    parts: dict[str, Predictions]
    ours: bool = False


def scores(predictions: Predictions) -> dict[str, float]:
    """Rows, accuracy, log loss, ECE and Brier score."""
    probs, labels = predictions.output.probs, predictions.known_labels
    return {
        "rows": float(len(predictions)),
        "accuracy": accuracy(probs, labels),
        "log_loss": nll(predictions.output.log_probs, labels),
        "ece": ece(probs, labels),
        "brier": brier_score(probs, labels),
    }


def score_grids(rows: list[Row]) -> list[Grid]:
    """A table a part, a row a model; the lowest log loss is bold."""
    return [_grid(rows, part) for part in (HELD_OUT, SHIFT) if part in rows[0].parts]


def _grid(rows: list[Row], part: str) -> Grid:
    table = {row.name: scores(row.parts[part]) for row in rows}
    best = min(each["log_loss"] for each in table.values())
    lines = []
    for name, each in table.items():
        cells = [
            number(each[key])._replace(bold=key == "log_loss" and each[key] == best) for key, _ in COLUMNS
        ]
        lines.append((label(name, name), *cells))
    headings = (Heading("model", ("model",)), *(Heading(title, (key,)) for key, title in COLUMNS))
    what = {HELD_OUT: "Held out", SHIFT: "The shift"}[part]
    return Grid(
        f"{what}: {len(rows[0].parts[part]):,} rows that no model has seen", headings, (tuple(lines),)
    )


def group_grid(predictions: Predictions) -> tuple[Grid | None, list[str]]:
    """Our model by group; groups of fewer than 30 rows are only counted."""
    lines, notes = [], []
    for name, column in predictions.groups.items():
        values, counts = np.unique(column.astype(str), return_counts=True)
        small = int((counts < FEWEST_OF_GROUP).sum())
        if small:
            notes.append(f"{name}: {small} of {len(values)} values have fewer than {FEWEST_OF_GROUP} rows")
        for value in values[counts >= FEWEST_OF_GROUP][:MOST_GROUPS]:
            result = scores(predictions.take(column.astype(str) == value))
            cells = (number(result[key]) for key, _ in COLUMNS)
            lines.append((label(f"{name} {value}", f"{name}={value}"), count(int(result["rows"])), *cells))
    if not lines:
        return None, notes
    headings = (
        Heading("group", ("group",)),
        Heading("rows", ("rows",)),
        *(Heading(title, (key,)) for key, title in COLUMNS),
    )
    return Grid("By group, held out", headings, (tuple(lines),)), notes
