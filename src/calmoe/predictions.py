"""Predictions: the narrow waist. Training writes this file; everything after training only reads it.

`Predictions.save` writes one file, safetensors or a table; `Predictions.load` also reads npz, csv and parquet
files that other tools wrote (`calmoe.formats` names their columns).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from calmoe.arrays import Array, as_numpy, as_tensor
from calmoe.errors import InputError, about, shown
from calmoe.files import is_utf8, write_whole
from calmoe.formats import FORMAT, NOTE, Table, read_table
from calmoe.formats.writing import KINDS as TABLES
from calmoe.formats.writing import Answers, write_table
from calmoe.mixture import MixtureOutput, combine
from calmoe.validation import unique_keys

__all__ = ["Predictions"]

LOGS = {"probs": "log_probs", "routing": "log_routing", "expert_probs": "expert_log_probs"}
ROWS = 2**18
"""Rows that are checked at a time."""
LONGEST_NAME = 60
"""Characters of a name that tables and figures show."""


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What a model said about N examples, what was true, and which groups each example belongs to.

    Construction checks everything, except that log_probs is the experts' mixture: a temperature changes it.

    Args:
        output: Mixture, router and experts in logarithms: [N, C], [N, K], [N, K, C].
        labels: The true classes, whole numbers of any kind, kept as int64 [N]; None for unlabelled data.
        groups: Columns of length N by name: booleans (a subset such as "hard"), numbers or strings (an
            attribute such as "domain").
        metadata: What else the file should say, as JSON holds it; "classes" and "experts" are their names.

    Example:
        >>> probs = np.array([[0.9, 0.1], [0.3, 0.7]])
        >>> groups = {"hard": [False, True]}
        >>> predictions = Predictions.from_probs(probs, labels=np.array([0, 1]), groups=groups)
        >>> len(predictions), predictions.num_classes, predictions.subset("hard").labels
        (2, 2, tensor([1]))
    """

    output: MixtureOutput
    labels: Tensor | None = None
    groups: dict[str, np.ndarray] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_mappings(self.groups, self.metadata)
        columns = {name: _column(name, values) for name, values in self.groups.items()}
        object.__setattr__(self, "groups", columns)
        if self.labels is not None:
            object.__setattr__(self, "labels", _whole_numbers(as_tensor(self.labels)))
        self._check()

    @classmethod
    def from_probs(
        cls,
        probs: Array,
        labels: Array | None = None,
        *,
        routing: Array | None = None,
        expert_probs: Array | None = None,
        groups: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> "Predictions":
        """From probabilities.

        Args:
            probs: The model's probabilities [N, C]. They stay as they are, even if they are not the sum of
                routing × expert_probs (as after a temperature).
            labels: The true classes. [N]
            routing: The router's weights [N, K], for a mixture.
            expert_probs: The experts' probabilities [N, K, C], for a mixture.
            groups: Columns of length N by name.
            metadata: As in `Predictions`.
        """
        arrays = {"probs": probs, "routing": routing, "expert_probs": expert_probs, "labels": labels}
        given = {name: as_tensor(values) for name, values in arrays.items() if values is not None}
        return assemble(Table(given, groups or {}, metadata or {}))

    def __len__(self) -> int:
        return len(self.output.log_probs)

    @property
    def num_classes(self) -> int:
        """The number of classes, C."""
        return self.output.log_probs.shape[1]

    @property
    def num_experts(self) -> int:
        """The number of experts, K."""
        return self.output.log_routing.shape[1]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes are called, if `metadata["classes"]` says it."""
        names = self.metadata.get("classes")
        if not isinstance(names, list | tuple) or len(names) != self.num_classes:
            return None
        return tuple(names) if all(isinstance(name, str) for name in names) else None

    @property
    def expert_names(self) -> tuple[str, ...]:
        """What the experts are called, as `metadata["experts"]` says, or by their numbers: "expert 0", …

        Only names that tables and figures can show count: different ones, one line of 60 characters at most.
        """
        names = self.metadata.get("experts")
        if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
            short = all(name.isprintable() and 0 < len(name) <= LONGEST_NAME for name in names)
            if short and len(set(names)) == len(names) == self.num_experts:
                return tuple(names)
        return tuple(f"expert {k}" for k in range(self.num_experts))

    @property
    def known_labels(self) -> Tensor:
        """The labels; an error where there are none."""
        if self.labels is None:
            named = ", ".join(map(shown, self.groups))
            listed = f"; the other columns are named {named}" if named else ""
            raise InputError(
                "these predictions carry no labels, and only labels say how true they are: add what came "
                f"true as `label` (`labels` in arrays), or name its column with --label{listed}"
            )
        return self.labels

    def group(self, name: str) -> np.ndarray:
        """The column `name`."""
        if name not in self.groups:
            known = ", ".join(sorted(self.groups)) or "none"
            raise InputError(f"no group column {shown(name)} in these predictions (they have: {known})")
        return self.groups[name]

    def mask(self, name: str) -> Tensor:
        """The boolean column `name` as a mask. [N]"""
        column = self.group(name)
        if column.dtype != bool:
            raise InputError(
                f"group column {shown(name)} is not boolean but {column.dtype}: it names no subset"
            )
        return as_tensor(column)

    def take(self, rows: Array) -> "Predictions":
        """The given `rows` (indices or a boolean mask)."""
        index = as_tensor(rows)
        return Predictions(
            output=MixtureOutput(*(part[index] for part in self.output)),
            labels=None if self.labels is None else self.labels[index],
            groups={name: column[index.numpy()] for name, column in self.groups.items()},
            metadata=self.metadata,
        )

    def subset(self, name: str) -> "Predictions":
        """The rows where the boolean column `name` is true."""
        return self.take(self.mask(name))

    def save(self, path: str | Path) -> None:
        """Write the file `path`, whole or not at all: safetensors (logarithms, float32), csv or parquet.

        A csv or parquet table has a column a class, named prob_CLASS where `metadata["classes"]` names the
        classes, and labels by name; of the metadata it keeps nothing else.
        """
        if Path(path).suffix in TABLES:
            write_table(Path(path), self._answers())
            return
        if Path(path).suffix != ".safetensors":
            kinds = ", ".join((".safetensors", *TABLES))
            raise InputError(f"{path}: predictions are saved as {kinds}: end the name in one of them")
        tensors = {k: v.float() for k, v in self.output._asdict().items()}
        if self.labels is not None:
            tensors["labels"] = self.labels
        categories: dict[str, list[str]] = {}
        for name, column in self.groups.items():
            if column.dtype.kind == "U":
                values, column = np.unique(column, return_inverse=True)
                categories[name] = values.tolist()
            tensors[f"group.{name}"] = as_tensor(column)
        # safetensors refuses tensors that share memory, as those of a single expert do
        alone = {k: v.to("cpu", copy=True, memory_format=torch.contiguous_format) for k, v in tensors.items()}
        # one entry: safetensors does not keep the order of several, and equal predictions give equal bytes
        header = {"format": FORMAT, "metadata": self.metadata, "categories": categories}
        try:
            note = json.dumps(header)
            json.loads(note, object_pairs_hook=unique_keys)  # keys such as 1 and "1" become one
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{path}: metadata must be what JSON can hold ({error})") from None
        write_whole(path, safetensors.torch.save(alone, {"calmoe": note}))

    @classmethod
    def load(cls, path: str | Path, *, limit: int | None = None) -> "Predictions":
        """Read a safetensors, npz, csv or parquet file and check it; an InputError says what is wrong.

        Where names of columns leave a doubt, `calmoe.read_predictions` has options that say what they are.

        Args:
            path: The file.
            limit: The bytes of memory that it may unpack to; by default the number in CALMOE_READ_LIMIT, else
                32 times the file's length (at least 64 MiB, at most 8 GiB).
        """
        with about(path):
            return assemble(read_table(Path(path), limit))

    def _answers(self) -> Answers:
        """As tables hold it."""
        probs, routing, experts = (as_numpy(logs.double().exp()) for logs in self.output)
        labels = None if self.labels is None else as_numpy(self.labels)
        names = self.class_names or tuple(str(number) for number in range(self.num_classes))
        return Answers(probs, routing, experts, labels, self.groups, classes=names, spoken=names)

    def _check(self) -> None:
        _check_shapes(self.output._asdict())
        n, classes = self.output.log_probs.shape
        if n == 0:
            raise InputError("there are no rows")
        for name, logs in self.output._asdict().items():
            if not logs.is_floating_point():
                raise InputError(f"{name} must hold floating-point numbers, not {logs.dtype}")
            remedy = "give log-probabilities (log_softmax of logits)"
            _check_sums(name, _sums_of_logs(logs), remedy)
        if self.labels is not None:
            _check_labels(self.labels, n, classes)
        for name, column in self.groups.items():
            plain = column.dtype.kind in "biuf" and column.itemsize <= 8
            if column.shape != (n,) or not (plain or column.dtype.kind == "U"):
                raise InputError(
                    f"group column {shown(name)} must hold {n} booleans, numbers or strings, not shape "
                    f"{list(column.shape)} of {column.dtype}"
                )
            _check_text(name, "".join([name, *(column.tolist() if column.dtype.kind == "U" else ())]))


def _check_mappings(groups: Any, metadata: Any) -> None:
    if not isinstance(groups, dict) or not all(isinstance(name, str) and name for name in groups):
        raise InputError("groups must be a dict: columns of length N by their names")
    if not isinstance(metadata, dict):
        raise InputError(f"metadata must be a dict, not {type(metadata).__name__}")


def _check_text(name: str, text: str) -> None:
    """Refuse what a column of text cannot hold."""
    if not is_utf8(text):
        raise InputError(
            f"group column {shown(name)} holds half of a surrogate pair, which is no character: "
            "write the text again as UTF-8"
        )
    if "\0" in text:
        raise InputError(f"group column {shown(name)} holds a NUL character: take it out")


def _check_shapes(parts: dict[str, Tensor]) -> None:
    """Refuse shapes other than [N, C], [N, K], [N, K, C], or the last two alone; parts: by own names."""
    shapes = [tuple(part.shape) for part in parts.values()]
    *probs, routing, experts = shapes
    if len(experts) == 3 and routing == experts[:2] and probs in ([], [(experts[0], experts[2])]):
        return
    given = ", ".join(f"{name} {list(part.shape)}" for name, part in parts.items())
    expected = ", ".join(["[N, C]", "[N, K]", "[N, K, C]"][-len(parts) :])
    raise InputError(f"shapes disagree: {given}; expected {expected}")


def _check_sums(name: str, sums: Tensor, remedy: str, tolerance: float = 1e-3) -> None:
    """Refuse sums of probabilities, [N] or [N, K], that are NaN or not 1."""
    if ((sums - 1).abs() <= tolerance).all():
        return
    sums = sums[:, None].flatten(1)
    missing = sums.isnan().any(dim=1)
    if missing.any():
        raise InputError(f"{name} has NaN in {int(missing.sum())} rows, first in row {_first(missing)}")
    gaps = (sums - 1).abs()
    off = (gaps > tolerance).any(dim=1)
    if off.any():
        row = _first(off)
        worst = sums[row, gaps[row].argmax()]
        raise InputError(
            f"{name}: probabilities sum to {worst:.4g} in row {row}, not 1 ({int(off.sum())} such rows): "
            f"{remedy}"
        )


def _sums(probs: Tensor) -> Tensor:
    """Sums over the last axis in double precision, some rows at a time to save memory."""
    return torch.cat([part.double().sum(dim=-1) for part in probs.split(ROWS)])


def _sums_of_logs(logs: Tensor) -> Tensor:
    return torch.cat([part.double().exp().sum(dim=-1) for part in logs.split(ROWS)])


def _check_labels(labels: Tensor, n: int, classes: int) -> None:
    if labels.shape != (n,):
        raise InputError(f"labels must be {n} integers, not shape {list(labels.shape)}")
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = _first(outside)
        counted = (int(labels.min()), int(labels.max())) == (1, classes)
        begin_at_one = ": classes are counted from 0, subtract 1" if counted else ""
        raise InputError(
            f"labels must lie between 0 and {classes - 1}: row {row} has {int(labels[row])} "
            f"({int(outside.sum())} such rows){begin_at_one}"
        )


def _first(mask: Tensor) -> int:
    return int(mask.nonzero()[0, 0])


def assemble(table: Table) -> Predictions:
    """Predictions out of named arrays, as probabilities or logarithms, with or without experts.

    Without routing and experts the model counts as a mixture of one expert.
    """
    try:
        return _assemble(table)
    except InputError as error:
        if NOTE in table.metadata:
            raise InputError(f"{error} (read as: {table.metadata[NOTE]})") from None
        raise


def _assemble(table: Table) -> Predictions:
    arrays = table.arrays
    names = [log if log in arrays else name for name, log in LOGS.items()]
    parts = {name: arrays[name] for name in names if name in arrays}
    if (names[1] in parts) != (names[2] in parts):
        raise InputError("routing and experts come together: give both or neither")
    if names[1] in parts:
        _check_shapes(parts)
    elif names[0] in parts and parts[names[0]].ndim != 2:
        shape = list(parts[names[0]].shape)
        raise InputError(f"{names[0]} must be [N, C], a row per example, a column per class, not {shape}")
    log_probs, log_routing, experts = (_logs(name, parts[name]) if name in parts else None for name in names)
    if log_routing is None or experts is None:
        if log_probs is None:
            raise InputError("no probabilities: expected `log_probs` or `probs`")
        output = MixtureOutput(log_probs, log_probs.new_zeros(len(log_probs), 1), log_probs.unsqueeze(1))
    elif log_probs is None:
        output = combine(log_routing, experts)
    else:
        output = MixtureOutput(log_probs, log_routing, experts)
    labels = arrays.get("labels")
    return Predictions(output=output, labels=labels, groups=table.groups, metadata=table.metadata)


def _logs(name: str, values: Tensor) -> Tensor:
    if values.dtype == torch.bool or values.is_complex():
        raise InputError(f"{name} must hold numbers, not {str(values.dtype).removeprefix('torch.')}")
    if 0 in values.shape:
        raise InputError("there are no rows" if values.shape[0] == 0 else f"{name} has no columns")
    values = values.to(torch.promote_types(values.dtype, torch.float32))  # half is too coarse for a logarithm
    if name in LOGS.values():
        return values
    low, high = values.aminmax()
    if not (low >= -1e-6 and high <= 1 + 1e-6):
        outside = ((values < -1e-6) | (values > 1 + 1e-6)).flatten(1).any(dim=1)
        if outside.any():  # otherwise it is NaN, and the check of the sums says so
            raise InputError(
                f"{name} must lie between 0 and 1, row {_first(outside)} does not: give the softmax of "
                "logits, the exp of logarithms, a hundredth of percentages"
            )
    _check_sums(name, _sums(values), "normalise them, or give more decimals")
    return values.clamp(0, 1).log_()


def _whole_numbers(labels: Tensor) -> Tensor:
    if labels.dtype == torch.bool or labels.is_complex():
        kind = "booleans" if labels.dtype == torch.bool else "complex numbers"
        raise InputError(f"labels must be whole numbers (class indices from 0), not {kind}")
    numbers = labels.double().flatten()
    odd = (numbers != numbers.round()) | ~(numbers.abs() < 2**53)  # NaN too
    if odd.any():
        row = _first(odd)
        value = "a number too large" if numbers[row].abs() >= 2**53 else f"{numbers[row]:g}"
        raise InputError(f"labels must be whole numbers (class indices from 0): row {row} has {value}")
    return labels.long()


def _column(name: str, values: Any) -> np.ndarray:
    """A group column as a NumPy array; pandas' objects become strings or booleans where all of them are."""
    if isinstance(values, Tensor):
        return as_numpy(values)
    try:
        column = np.asarray(values)
        if column.dtype.kind == "S":
            return np.char.decode(column, "utf-8")
        if isinstance(values, np.ndarray) and column.dtype != object:
            return column.astype(column.dtype.newbyteorder("="), copy=False)
        objects = np.asarray(values, dtype=object)
    except UnicodeDecodeError:
        raise InputError(f"group column {shown(name)} holds bytes that are not UTF-8: give strings") from None
    except (TypeError, ValueError):
        raise InputError(
            f"group column {shown(name)} must hold booleans, numbers or strings, one a row"
        ) from None
    kinds = {type(value) for value in objects.flat}
    if kinds == {str}:
        _check_text(name, "".join(objects.flat))  # NumPy drops a NUL at the end
    return np.array(objects.tolist()) if column.dtype == object and kinds in ({str}, {bool}) else column
