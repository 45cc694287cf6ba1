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
from calmoe.files import write_whole
from calmoe.formats import FORMAT, NOTE, Table, read_table
from calmoe.formats.writing import KINDS as TABLES
from calmoe.formats.writing import Answers, write_table
from calmoe.mixture import MixtureOutput, combine
from calmoe.prediction_checks import (
    check_group,
    check_labels,
    check_log_probs,
    check_mappings,
    check_parts,
    check_probs,
    group_column,
    whole_numbers,
)
from calmoe.validation import unique_keys

__all__ = ["Predictions"]

LOGS = {"probs": "log_probs", "routing": "log_routing", "expert_probs": "expert_log_probs"}
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
        check_mappings(self.groups, self.metadata)
        columns = {name: group_column(name, values) for name, values in self.groups.items()}
        object.__setattr__(self, "groups", columns)
        if self.labels is not None:
            object.__setattr__(self, "labels", whole_numbers(as_tensor(self.labels)))
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
            others = f"; the other columns are named {named}" if named else ""
            raise InputError(
                "these predictions carry no labels, and only labels say how true they are: add what came "
                f"true as `label` (`labels` in arrays), or name its column with --label{others}"
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
            output=self.output.take(index),
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
        if not isinstance(self.output, MixtureOutput):
            raise InputError(
                f"output must be a MixtureOutput, not {type(self.output).__name__}: of probabilities make "
                "predictions with Predictions.from_probs"
            )
        check_parts(self.output._asdict())
        n, classes = self.output.log_probs.shape
        if n == 0:
            raise InputError("there are no rows")
        for name, logs in self.output._asdict().items():
            check_log_probs(name, logs)
        if self.labels is not None:
            check_labels(self.labels, n, classes)
        for name, column in self.groups.items():
            check_group(name, column, n)


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
        check_parts(parts)
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
    check_probs(name, values)
    return values.clamp(0, 1).log_()
