"""Scores of models on the parts that were held out, and the tables that show them."""

import math
from typing import NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score

from calmoe.arrays import as_numpy
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import Estimate, binned_gap, mean, proportion
from calmoe.defaults import BINS, LEVEL
from calmoe.metrics import accuracy, brier_score
from calmoe.metrics.scores import log_losses
from calmoe.models.card import Scores
from calmoe.own_data.parts import HELD_OUT, SHIFT, Labelled
from calmoe.predictions import Predictions
from calmoe.render.grid import Grid, Heading, count, label, number
from calmoe.render.wording import listed, many, shortened

COLUMNS = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "ece_high": "ECE at most",
    "ece": "estimate",
    "brier": "Brier",
}
PRECISION = {"average_precision": "avg. precision"}  # where one of two classes is rare
ECE_NOTE = (
    f"ECE as calmoe audit has it, in {BINS} bins of equal width; at most: the upper end of its "
    f"{100 * LEVEL:g} % interval. An estimate of 0.000, freed from upward bias, says that no error shows, "
    "not that there is none"
)
FEWEST_OF_GROUP = 30
MOST_GROUPS = 30


class Row(NamedTuple):
    """A model of the table: what it says of each part, and its scores there."""

    name: str
    parts: dict[str, Predictions]
    scores: Scores
    ours: bool = False

    @classmethod
    def of(
        cls, name: str, parts: dict[str, Predictions], rare: int | None = None, ours: bool = False
    ) -> "Row":
        """With its scores; rare: as `scores` has it."""
        return cls(name, parts, {part: scores(answers, rare) for part, answers in parts.items()}, ours)


def scores(predictions: Predictions, rare: int | None = None) -> dict[str, float]:
    """Rows, accuracy, log loss and ECE with 95 % intervals (…_low, …_high), Brier score.

    rare: a class whose average precision counts too, where some row has it. The log loss of one row has no
    interval.
    """
    probs, labels = predictions.output.probs, predictions.known_labels
    values = {"rows": float(len(predictions))}
    for name, estimate in {
        "accuracy": proportion(accuracy(probs, labels), len(labels), LEVEL),
        "log_loss": mean(row_losses(predictions), LEVEL),
        "ece": _ece(predictions),
    }.items():
        values[name] = estimate.value
        if not math.isnan(estimate.low):
            values |= {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    values["brier"] = brier_score(probs, labels)
    if rare is not None and (labels == rare).any():
        truth, score = as_numpy(labels == rare), as_numpy(probs[:, rare])
        values["average_precision"] = float(average_precision_score(truth, score))
    return values


def row_losses(predictions: Predictions) -> np.ndarray:
    """The log loss of each row. [N]"""
    return log_losses(predictions.output.log_probs, predictions.known_labels).numpy()


def _ece(predictions: Predictions) -> Estimate:
    """The audit's own ECE of these rows."""
    rows = Configurations.of(predictions)
    return binned_gap(rows.residual, rows.bins(BINS), BINS, level=LEVEL, noise=rows.noise)


class Tables(NamedTuple):
    """What is shown of the rows: a table a part, a table of groups, and notes on what has few rows."""

    parts: list[Grid]
    groups: Grid | None
    few: list[str]

    @classmethod
    def of(cls, rows: list[Row], data: Labelled) -> "Tables":
        ours = next(row for row in rows if row.ours)
        return cls(score_grids(rows), group_grid(ours.parts[HELD_OUT]), few_notes(data))


def score_grids(rows: list[Row]) -> list[Grid]:
    """A table a part, a row a model; the lowest log loss is bold."""
    return [_grid(rows, part) for part in (HELD_OUT, SHIFT) if part in rows[0].parts]


def _grid(rows: list[Row], part: str) -> Grid:
    table = [row.scores[part] for row in rows]
    best = min(values["log_loss"] for values in table)
    columns = COLUMNS | (PRECISION if any(PRECISION.keys() & values.keys() for values in table) else {})
    lines = []
    for row, values in zip(rows, table, strict=True):
        cells = {key: number(values.get(key, math.nan)) for key in columns}
        cells["log_loss"] = cells["log_loss"]._replace(bold=values["log_loss"] == best)
        lines.append((label(f"{row.name} (this model)" if row.ours else row.name, row.name), *cells.values()))
    headings = (Heading("model", ("model",)), *(Heading(title, (key,)) for key, title in columns.items()))
    what = {HELD_OUT: "Held out", SHIFT: "The shift"}[part]
    size = many(len(rows[0].parts[part]), "row")
    return Grid(f"{what}: {size} that no model has seen", headings, (tuple(lines),))


def group_grid(predictions: Predictions) -> Grid | None:
    """Our model by group, large groups first; those of fewer than 30 rows are not scored."""
    lines = []
    for name, column in predictions.groups.items():
        values, counts = np.unique(column.astype(str), return_counts=True)
        largest = np.argsort(-counts, kind="stable")[:MOST_GROUPS]
        for value in values[largest[counts[largest] >= FEWEST_OF_GROUP]]:
            result = scores(predictions.take(column.astype(str) == value))
            cells = (number(result[key]) for key in COLUMNS)
            lines.append((label(f"{name} {value}", f"{name}={value}"), count(int(result["rows"])), *cells))
    if not lines:
        return None
    headings = (
        Heading("group", ("group",)),
        Heading("rows", ("rows",)),
        *(Heading(title, (key,)) for key, title in COLUMNS.items()),
    )
    return Grid("By group, held out", headings, (tuple(lines),))


def few_notes(data: Labelled) -> list[str]:
    """Parts of few rows; and, a line a group column, the groups with too few rows held out to be scored."""
    notes = [
        f"{part}: {many(len(rows), 'row')} only; {_known(len(rows))}"
        for part, rows in data.judged.items()
        if len(rows) < FEWEST_OF_GROUP
    ]
    usual = np.concatenate([data.parts.fit, data.parts.held_out])
    for name, column in data.source.groups.items():
        texts = column.astype(str)
        sizes = dict(zip(*np.unique(texts[usual], return_counts=True), strict=True))
        rows = {value: int((texts[data.parts.held_out] == value).sum()) for value in sizes}
        if small := {value: n for value, n in rows.items() if n < FEWEST_OF_GROUP}:
            ordered = sorted(small, key=lambda value: -small[value])
            named = shortened([f"{value} ({small[value]} of {sizes[value]})" for value in ordered])
            notes.append(
                f"{name}: too few rows held out to score {listed(named)}; {_known(max(small.values()))}"
            )
        if (scored := len(rows) - len(small)) > MOST_GROUPS:
            notes.append(f"{name}: the table has the {MOST_GROUPS} largest of {scored} groups")
    return notes


def _known(rows: int) -> str:
    """How little an accuracy from so many rows says.

    >>> _known(3), _known(25)
    ('so few say nothing', 'an accuracy from 25 rows is known to ±0.20 only')
    """
    if rows < 4:
        return "so few say nothing"
    return f"an accuracy from {many(rows, 'row')} is known to ±{0.98 / math.sqrt(rows):.2f} only"
