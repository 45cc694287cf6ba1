"""Any fitted calibrator, with the classes it was fitted on: one file, one loader, one `transform`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, overload

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import Array, as_tensor
from calmoe.calibration import isotonic, matrix_scaling, routing_recalibration, temperature, vector_scaling
from calmoe.calibration.identity import Identity
from calmoe.calibration.isotonic import TopLabelIsotonic
from calmoe.calibration.matrix_scaling import MatrixScaling
from calmoe.calibration.routing_recalibration import RoutingRecalibration
from calmoe.calibration.saved import check_saved, read_file
from calmoe.calibration.seen_rows import SeenRows
from calmoe.calibration.temperature import PerExpertTemperature, ShiftedTemperature, Temperature
from calmoe.calibration.vector_scaling import VectorScaling
from calmoe.errors import InputError, about, shown, some
from calmoe.files import write_json
from calmoe.formats.writing import TAUGHT
from calmoe.mixture import MixtureOutput
from calmoe.new_rows import taught_rows
from calmoe.predictions import Predictions
from calmoe.validation import items, text

MOST_CLASSES, MOST_TEXT = 100_000, 10_000
FLATTERED = "flattered"
"""Where the metadata of repaired predictions say that their calibrator was fitted on these very rows."""
FLATTERY = (
    "their calibrator was fitted on these very rows, and looks better on them than it is: judge it on others"
)


class Fitted(Protocol):
    """What every kind of calibrator can do; `transform` takes log-probabilities, or the whole output."""

    def to_dict(self) -> dict[str, Any]: ...


class Kind(NamedTuple):
    """A kind of calibrator. What it is called, the fields of its file, and whether it reads experts."""

    title: str
    type: Any
    keys: tuple[str, ...]
    of_experts: bool = False


KINDS: Mapping[str, Kind] = {
    "Identity": Kind("nothing", Identity, ()),
    "Temperature": Kind("a temperature", Temperature, temperature.TEMPERATURE_KEYS),
    "ShiftedTemperature": Kind(
        "a temperature for another place", ShiftedTemperature, temperature.TEMPERATURE_KEYS
    ),
    "PerExpertTemperature": Kind(
        "a temperature for each expert", PerExpertTemperature, temperature.EXPERTS_KEYS, of_experts=True
    ),
    "TopLabelIsotonic": Kind("isotonic regression", TopLabelIsotonic, isotonic.KEYS),
    "VectorScaling": Kind("vector scaling", VectorScaling, vector_scaling.KEYS),
    "MatrixScaling": Kind("matrix scaling", MatrixScaling, matrix_scaling.KEYS),
    "RoutingRecalibration": Kind(
        "boosting by routing", RoutingRecalibration, routing_recalibration.KEYS, of_experts=True
    ),
}


@dataclass(frozen=True)
class Calibrator:
    """A fitted calibrator of any kind. `classes` are the names it was fitted on, `note` says on what.

    Args:
        fitted: A fitted calibrator: `Temperature`, `VectorScaling`, `TopLabelIsotonic`, …
        classes: The names of the classes that it was fitted on.
        note: What it was fitted on, in words.
        seen: Recognises the rows it was fitted on.

    Example:
        >>> import torch
        >>> log_probs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]).log()
        >>> calibrator = Calibrator(Temperature().fit(log_probs, torch.tensor([0, 0, 1, 1])))
        >>> calibrator.title, calibrator.transform(log_probs).exp()[0]
        ('a temperature', tensor([0.7500, 0.2500]))
    """

    fitted: Fitted
    classes: tuple[str, ...] | None = None
    note: str = ""
    seen: SeenRows | None = None

    @property
    def kind(self) -> str:
        """The name of its class, as the file has it."""
        return type(self.fitted).__name__

    @property
    def title(self) -> str:
        """What it is called in a sentence."""
        return KINDS[self.kind].title

    @overload
    def transform(self, given: Predictions) -> Predictions: ...
    @overload
    def transform(self, given: MixtureOutput) -> MixtureOutput: ...
    @overload
    def transform(self, given: Array) -> Tensor: ...
    def transform(self, given: Predictions | MixtureOutput | Array) -> Predictions | MixtureOutput | Tensor:
        """What is `given`, repaired: Predictions, a MixtureOutput or log-probabilities [N, C].

        Routing and experts stay as they are.

        A calibrator that reads experts needs all of the mixture, not its log-probabilities alone. Predictions
        that it was fitted on, on which it looks better than it is, say so in their metadata.
        """
        if isinstance(given, Predictions):
            names = given.class_names
            if self.classes is not None and names is not None and self.classes != names:
                raise InputError(
                    f"the calibrator was fitted on the classes {_listed(self.classes)}, these are "
                    f"{_listed(names)}: give predictions with the same classes in the same order"
                )
            metadata = dict(given.metadata)
            if self._has_seen(given):
                metadata[FLATTERED] = True
            return replace(given, output=self.transform(given.output), metadata=metadata)
        transform: Any = self.fitted.transform  # type: ignore[attr-defined]
        if KINDS[self.kind].of_experts:
            if not isinstance(given, MixtureOutput):
                raise InputError(f"{self.title} reads routing and experts: give Predictions or their output")
            output: MixtureOutput = transform(given)
            return output
        if isinstance(given, MixtureOutput):
            return given._replace(log_probs=transform(given.log_probs))
        moved: Tensor = transform(as_tensor(given))
        return moved

    def _has_seen(self, given: Predictions) -> bool:
        """Whether it was fitted on these very rows; those that taught the model were left out then."""
        if self.seen is None or self.kind == "Identity":
            return False
        new = torch.from_numpy(~taught_rows(given))
        if new.all():
            return self.seen.recognises(given.output, given.labels)
        labels = None if given.labels is None else given.labels[new]
        return self.seen.recognises(given.output.take(new), labels)

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        classes = None if self.classes is None else list(self.classes)
        seen = None if self.seen is None else self.seen._asdict()
        return self.fitted.to_dict() | {"classes": classes, "note": self.note, "seen": seen}

    @classmethod
    def from_dict(cls, saved: Any, where: str = "") -> Self:
        """What `to_dict` gave, or a kind's own, from `saved`, checked; `where` begins messages about it."""
        kind = saved.get("kind") if isinstance(saved, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            known = ", ".join(KINDS)
            raise InputError(f"{where}not a saved calibrator: its kind must be one of {known}")
        card = KINDS[kind]
        saved = check_saved(saved, where, kind, card.keys)
        names = saved.get("classes")
        if names is not None:
            names = tuple(
                text("classes", name, MOST_TEXT)
                for name in items("classes", names, least=1, most=MOST_CLASSES)
            )
        note = text("note", saved.get("note", ""), MOST_TEXT)
        seen = None if saved.get("seen") is None else SeenRows.from_dict(saved["seen"])
        return cls(card.type.from_dict(saved), names, note, seen)

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a calibrator of any kind: what `save` wrote here, or a kind's own `save`."""
        saved = read_file(path)
        with about(path):
            return cls.from_dict(saved)


def _listed(names: Sequence[str], most: int = 6) -> str:
    return some(map(shown, names), most)


def with_flattered_marked(predictions: Predictions) -> Predictions:
    """The same; where a calibrator was fitted on these rows, all of them are marked as having taught.

    >>> one = Predictions.from_probs(np.array([[0.9, 0.1]]))
    >>> with_flattered_marked(replace(one, metadata={"flattered": True})).groups
    {'taught_the_model': array([ True])}
    """
    if FLATTERED not in predictions.metadata:
        return predictions
    return replace(predictions, groups=predictions.groups | {TAUGHT: np.ones(len(predictions), dtype=bool)})
