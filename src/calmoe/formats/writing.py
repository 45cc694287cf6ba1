"""Predictions as a table, csv or parquet: classes by name wherever the reader gives the names back."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calmoe.errors import InputError
from calmoe.files import writing_whole
from calmoe.formats.columns import class_values
from calmoe.formats.naming import LABELS

KINDS = (".csv", ".parquet")
PREDICTED = "predicted"
"""The most probable class of each row: in a table without labels it says what the classes are called."""
TAUGHT = "taught_the_model"
"""True for the rows that a model was trained on: audits and repairs leave them out."""


class Answers(NamedTuple):
    """What a table of predictions holds.

    classes: their names in columns and labels; spoken: their names among the predictions.
    """

    probs: np.ndarray  # [N, C]
    routing: np.ndarray  # [N, K]
    experts: np.ndarray  # [N, K, C]
    labels: np.ndarray | None  # [N] places in classes
    groups: Mapping[str, np.ndarray]
    classes: Sequence[str]
    spoken: Sequence[str]

    def named(self) -> dict[str, Any]:
        """Columns by name: groups, label, predicted, prob_CLASS, …, routing_0, …, expert_0_prob_CLASS, …"""
        names, spoken = class_values(self.classes), class_values(self.spoken)
        columns: dict[str, Any] = {} if self.labels is None else {"label": [names[i] for i in self.labels]}
        columns[PREDICTED] = [spoken[i] for i in self.probs.argmax(axis=1)]
        columns |= {f"prob_{name}": self.probs[:, c] for c, name in enumerate(names)}
        if self.routing.shape[1] > 1:
            columns |= {f"routing_{k}": column for k, column in enumerate(self.routing.T)}
            columns |= {
                f"expert_{k}_prob_{name}": self.experts[:, k, c]
                for k in range(self.experts.shape[1])
                for c, name in enumerate(names)
            }
        taken, groups = {*columns, *LABELS}, {}
        for name, column in self.groups.items():
            free = name
            while free in taken or (free != name and free in self.groups):
                free = f"group_{free}"
            groups[free] = column.tolist()
        return groups | columns

    def sample(self) -> "Answers":
        """A row a class, with these names and groups: what the reader makes of it, it makes of all."""
        count = len(self.classes)
        rows = np.arange(count) % len(self.probs)
        probs = np.full((count, count), 0.5 / count) + 0.5 * np.eye(count)
        experts = np.repeat(probs[:, None], self.experts.shape[1], axis=1)
        return self._replace(
            probs=probs,
            routing=self.routing[rows],
            experts=experts,
            labels=None if self.labels is None else np.arange(count),
            groups={name: column[rows] for name, column in self.groups.items()},
        )

    def forms(self) -> "list[Answers]":
        """With names, with numbers and predictions by name, with numbers alone."""
        numbers = [str(number) for number in range(len(self.classes))]
        return [self, self._replace(classes=numbers), self._replace(classes=numbers, spoken=numbers)]


def write_table(path: Path, answers: Answers) -> None:
    """One file, whole or not at all. Names that the reader would not give back are left out for numbers."""
    if path.suffix == ".csv":
        answers = answers._replace(groups=_without_breaks(answers.groups))
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / f"trial{path.suffix}"
        *better, plain = answers.forms()
        form = next((form for form in better if _reads_back(trial, form.sample())), plain)
    _write(path, form.named())


def _without_breaks(groups: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    r"""Group columns as a cell of a CSV file has them: a line break in a name or a value is written \\n."""

    def one_line(text: Any) -> str:
        return str(text).replace("\r", "\\r").replace("\n", "\\n")

    return {
        one_line(name): np.array([one_line(v) for v in column.tolist()])
        if column.dtype.kind == "U"
        else column
        for name, column in groups.items()
    }


def _reads_back(path: Path, answers: Answers) -> bool:
    """Whether the reader finds the same classes, labels and groups in the file."""
    from calmoe.formats import read_table

    try:
        _write(path, answers.named())
        table = read_table(path)
    except InputError:
        return False
    names = table.metadata.get("classes", [str(number) for number in range(len(answers.classes))])
    if sorted(names) != sorted(answers.classes) or "probs" not in table.arrays:
        return False
    order = [names.index(name) for name in answers.classes]
    labels = table.arrays.get("labels")
    same_labels = (
        labels is None if answers.labels is None else labels is not None and labels.tolist() == order
    )
    experts = table.arrays.get("expert_probs")
    alone = answers.experts.shape[1] == 1
    same_experts = alone if experts is None else np.allclose(experts.numpy()[..., order], answers.experts)
    return (
        same_labels and same_experts and np.allclose(table.arrays["probs"].numpy()[:, order], answers.probs)
    )


def _write(path: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow
    from pyarrow import csv, parquet

    table = pyarrow.table(dict(columns))
    with writing_whole(path) as stream:
        if path.suffix == ".csv":
            csv.write_csv(table, stream)
        else:
            parquet.write_table(table, stream)
