"""A model that predicts: the same four verbs, whatever it was trained on and wherever it comes from."""

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from calmoe.arrays import as_numpy, as_tensor
from calmoe.calibration import Calibrator
from calmoe.errors import InputError, shown, some
from calmoe.mixture import MixtureOutput
from calmoe.models.card import Card
from calmoe.models.taught import Taught
from calmoe.prediction_checks import MISSING
from calmoe.predictions import Predictions

LONGEST_GROUP = 10_000  # characters


class Model:
    """What `calmoe.load` gives. X is a table, an array, images or texts, as the model's `kind` says.

    Attributes:
        kind: What it reads: "tables", "images", "texts" or "arrays".
        classes: The names of the classes, in the order of the probabilities' columns: whole numbers where the
            data's classes are. [C]
        card: What the model was trained on, and its scores.
        calibrator: What repairs the model's answers, if anything does.
        taught: What recognises the rows that it was trained on, if `calmoe train` made it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from calmoe import CalibratedMoEClassifier, load
        >>> X, y = np.arange(80.0).reshape(40, 2), np.repeat(["no", "yes"], 20)
        >>> with TemporaryDirectory() as folder:
        ...     CalibratedMoEClassifier(max_epochs=1, random_state=0).fit(X, y).save(f"{folder}/model")
        ...     load(f"{folder}/model").predict_proba(X[:3]).shape
        (3, 2)
    """

    kind: str = ""  # what it reads: "tables", "images", "texts" or "arrays"
    classes: list[Any]
    card: Card
    calibrator: Calibrator | None = None
    taught: Taught | None = None

    @property
    def classes_(self) -> np.ndarray:
        """The classes as an array. [C]"""
        return np.array(self.classes)

    def __repr__(self) -> str:
        names = [str(name) for name in self.classes]
        listed = ", ".join(names if len(names) <= 12 else [*names[:10], "…", names[-1]])
        return "\n  ".join(
            [
                f"A calmoe model that reads {self.kind}",
                f"classes: {shortened(listed)}",
                *map(shortened, self.card.lines()),
            ]
        )

    @property
    @abstractmethod
    def num_experts(self) -> int:
        """The experts of its output; each view of an image has its own."""

    @property
    def expert_names(self) -> list[str]:
        """What its experts are called; empty where they have no names."""
        return []

    @abstractmethod
    def own_output(self, X: Any) -> MixtureOutput:
        """Mixture, routing and experts of `X` in logarithms, after temperatures, before the calibrator."""

    def output(self, X: Any) -> MixtureOutput:
        """Mixture, routing and experts of `X` in logarithms, as the model is used."""
        own = self.own_output(X)
        return own if self.calibrator is None else self.calibrator.transform(own)

    def with_calibrator(self, calibrator: Calibrator) -> Self:
        """The same model, repaired by a `calibrator` that was fitted on its predictions."""
        if self.calibrator is not None:
            raise InputError(
                f"the model carries {self.calibrator.title} already: give the model that it was made from"
            )
        names = tuple(str(name) for name in self.classes)
        if calibrator.classes is not None and calibrator.classes != names:
            raise InputError(
                f"the calibrator was fitted on the classes {shown(list(calibrator.classes))}, the model has "
                f"{shown(list(names))}: give the model whose predictions it was fitted on"
            )
        calibrator.transform(uniform_output(len(names), self.num_experts))  # refuses other sizes
        model = copy.copy(self)
        model.calibrator = calibrator
        fitted = f", {calibrator.note}" * bool(calibrator.note)
        model.card = replace(self.card, calibrator=f"{calibrator.title}{fitted}")
        return model

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the model into a `folder`, whole or not at all."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class for the rows `X`. [N, C]"""
        probs = as_numpy(self.output(X).log_probs.double().exp())
        return probs / probs.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class for the rows `X`, by name. [N]"""
        best = as_numpy(self.output(X).log_probs).argmax(axis=1)
        return self.classes_[best]

    def predictions(self, X: Any, y: Any = None, groups: Mapping[str, Any] | None = None) -> Predictions:
        """Mixture, routing and experts as `calmoe.Predictions`, ready for `calmoe.audit`.

        Args:
            X: N rows.
            y: The true classes, by name [N], if they are known.
            groups: Columns by name, one value a row.
        """
        labels = None if y is None else as_tensor(self.codes(y))
        columns = {name: group_column(values, name) for name, values in (groups or {}).items()}
        metadata = {"dataset": self.card.dataset, "classes": [str(name) for name in self.classes]}
        if self.expert_names:
            metadata["experts"] = self.expert_names
        own = Predictions(output=self.own_output(X), labels=labels, groups=columns, metadata=metadata)
        return own if self.calibrator is None else self.calibrator.transform(own)

    def codes(self, y: Any) -> np.ndarray:
        """The classes `y`, by name, as their places in `classes`; 1, 1.0 and "1" are the same name."""
        place = {class_name(value): i for i, value in enumerate(self.classes)}
        names = [class_name(value) for value in np.asarray(y, dtype=object).tolist()]
        strange = next((name for name in names if name not in place), None)
        if strange is not None:
            known = some(place, 12)
            raise InputError(f"the label {shown(strange)} is no class of the model: its classes are {known}")
        return np.array([place[name] for name in names], dtype=np.int64)


def uniform_output(classes: int, experts: int) -> MixtureOutput:
    """One row about which nobody knows anything."""
    parts = torch.zeros(1, classes), torch.zeros(1, experts), torch.zeros(1, experts, classes)
    return MixtureOutput(*(part.log_softmax(-1) for part in parts))


def class_name(value: Any) -> str:
    """How a class is written.

    >>> class_name(1.0), class_name(" yes"), class_name(True)
    ('1', 'yes', 'True')
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value).strip()


def shortened(line: str, most: int = 160) -> str:
    """A line that fits a terminal.

    >>> shortened("classes: no, yes"), shortened("a" * 9, most=4)
    ('classes: no, yes', 'aaa…')
    """
    return line if len(line) <= most else f"{line[: most - 1]}…"


def group_column(values: Any, name: str = "") -> np.ndarray:
    """A group column as predictions hold it, with a word for missing values."""
    column = np.asarray(values)
    if column.dtype.kind == "f" and np.isfinite(column).all() and (column == column.round()).all():
        return column.astype(np.int64) if (np.abs(column) < 2**53).all() else column
    if column.dtype.kind in "biuU" or (column.dtype.kind == "f" and np.isfinite(column).all()):
        return column
    if column.dtype.kind == "M":
        column = column.astype("datetime64[D]").astype(str).astype(object)
    missing = [value is None or value != value or value == "NaT" for value in column.tolist()]
    texts = [MISSING if m else class_name(v) for v, m in zip(column.tolist(), missing, strict=True)]
    longest = max(map(len, texts), default=0)
    if longest > LONGEST_GROUP:  # every row would take as much memory as the longest
        raise InputError(
            f"the group column {shown(name, 60)} holds a text of {longest:,} characters: name another"
        )
    return np.array(texts, dtype=str)
