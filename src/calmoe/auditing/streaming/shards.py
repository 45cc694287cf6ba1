"""A shard of an audit: its sums and its sample, in one file; and many of them merged into the whole.

The files of a table are cut, as one, into n ranges of rows of about equal length. Every shard knows the whole
table, so that merging refuses a shard that is missing, there twice, or of another table.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import torch

from calmoe.arrays import as_numpy
from calmoe.auditing.event import judged_class
from calmoe.auditing.streaming.counting import shapes
from calmoe.auditing.streaming.sample import Sample, smallest
from calmoe.auditing.streaming.source import Source
from calmoe.auditing.streaming.sums import GroupColumn, Sums
from calmoe.errors import InputError, about, some
from calmoe.files import legible, write_whole
from calmoe.metrics.checks import Of
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions
from calmoe.tensor_files import read_tensors
from calmoe.validation import parse_json

FORMAT = "calmoe-sums-1"
KIND = ".sums"
PARTS = MixtureOutput._fields


@dataclass(frozen=True, kw_only=True)
class Task:
    """What all shards of one audit share: the table, and what is asked about it.

    files: their names and rows. footers: SHA-256 of what the files say of their parts. most: rows of the
    sample. metadata: how the columns were read, and the names of the classes.
    """

    files: tuple[tuple[str, int], ...]
    footers: str
    of: Of
    bins: int
    seed: int
    most: int
    metadata: dict[str, Any]

    @classmethod
    def on(cls, source: Source, *, of: str, bins: int, seed: int, most: int) -> "Task":
        """The task of auditing this table."""
        head = source.head()
        with about(legible(source.paths[0])):
            judged = judged_class(head, of, "--of")
        return cls(
            files=tuple((legible(file.path.name), file.rows) for file in source.table.files),
            footers=source.table.digest,
            of=judged,
            bins=bins,
            seed=seed,
            most=most,
            metadata=head.metadata,
        )

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.files)


class Place(NamedTuple):
    """Which of how many shards, counted from 1."""

    number: int
    shards: int

    def bounds(self, rows: int) -> tuple[int, int]:
        """The first row of the shard, and the first one after it.

        >>> [Place(i, 3).bounds(10) for i in (1, 2, 3)]
        [(0, 3), (3, 6), (6, 10)]
        """
        if self.shards > rows:
            raise InputError(f"{self.shards} shards of {rows} rows: give fewer shards")
        return rows * (self.number - 1) // self.shards, rows * self.number // self.shards


WHOLE = Place(1, 1)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The sums of one range of rows, and those of its rows that the sample of the table holds, if any."""

    task: Task
    place: Place
    sums: Sums
    sample: Sample | None

    def save(self, path: Path) -> None:
        """One file, whole or not at all."""
        tensors = _tensors(self)
        header = {
            "format": FORMAT,
            "task": asdict(self.task),
            "place": list(self.place),
            "groups": {
                name: [column.kind, None if column.values is None else list(column.values)]
                for name, column in self.sums.groups.items()
            },
            "columns": [] if self.sample is None else list(self.sample.predictions.groups),
        }
        note = json.dumps(header | {"digest": _digest(header, tensors)})
        write_whole(path, safetensors.numpy.save(tensors, {"calmoe": note}))

    @classmethod
    def load(cls, path: Path) -> "Shard":
        """What `save` wrote; a file that anything has changed since is refused."""
        with about(legible(path)):
            if not path.is_file():
                raise InputError("no such file: `calmoe audit-shard` writes it")
            tensors, notes = read_tensors(path)
            arrays = {name: as_numpy(tensor) for name, tensor in tensors.items()}
            header = parse_json(notes.get("calmoe", "{}").encode())
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise InputError("not what this version of `calmoe audit-shard` writes: run it again")
            if header.pop("digest", None) != _digest(header, arrays):
                raise InputError("damaged: run `calmoe audit-shard` again")
            try:
                return _shard(header, arrays)
            except (KeyError, TypeError, IndexError, AttributeError, ValueError, ArithmeticError):
                raise InputError("not what `calmoe audit-shard` writes: run it again") from None


def merged(shards: Iterable[tuple[str, Shard]]) -> Shard:
    """All shards of a table as one; refused where one is missing, there twice, or of another audit.

    shards: each with what a message calls it.
    """
    ordered = sorted(shards, key=lambda named: named[1].place)
    leader, first = ordered[0]
    names: dict[int, str] = {}
    for name, shard in ordered:
        if shard.place.shards != first.place.shards or shard.task != first.task:
            why = _other(shard, first)
            raise InputError(f"{name} is no shard of the same audit as {leader}, {why}: count it again")
        number = shard.place.number
        if number in names:
            raise InputError(f"{names[number]} and {name} are both shard {number}: give each one once")
        names[number] = name
    absent = (number for number in range(1, first.place.shards + 1) if number not in names)
    missing = [*islice(absent, 7)]  # a file may say that there are a billion
    if missing:
        numbers = some(missing, 6)
        raise InputError(
            f"of {first.place.shards} shards {numbers} {'is' if len(missing) == 1 else 'are'} missing: run "
            f"`calmoe audit-shard … --shard {missing[0]}/{first.place.shards}`"
        )
    sums = first.sums
    for _, shard in ordered[1:]:
        sums = sums.merge(shard.sums)
    samples = [shard.sample for _, shard in ordered if shard.sample is not None]
    sample = smallest(samples, first.task.most, first.task.seed) if samples else None
    return Shard(task=first.task, place=WHOLE, sums=sums, sample=sample)


def _other(shard: Shard, first: Shard) -> str:
    """In words what differs."""
    if shard.place.shards != first.place.shards:
        return f"but one of {shard.place.shards}, not of {first.place.shards}"
    ours, theirs = asdict(shard.task), asdict(first.task)
    named = {
        "files": "but of other files",
        "footers": "the files have changed",
        "metadata": "but has other classes or columns",
    }
    key = next(key for key in ours if ours[key] != theirs[key])
    return named.get(key, f"--{'sample' if key == 'most' else key} is {ours[key]}, not {theirs[key]}")


# --- in a file ----------------------------------------------------------------------------------------------


def _tensors(shard: Shard) -> dict[str, np.ndarray]:
    sums = shard.sums
    tensors = {f"total.{name}": values for name, values in sums.totals.items()}
    tensors |= {f"peak.{name}": values for name, values in sums.peaks.items()}
    columns = enumerate(sums.groups.values())
    tensors |= {f"tally.{i}": np.stack([*c.values.values()]) for i, c in columns if c.values is not None}
    tensors |= {} if shard.sample is None else _sample_tensors(shard.sample)
    return {name: values.copy(order="C") for name, values in tensors.items()}


def _sample_tensors(sample: Sample) -> dict[str, np.ndarray]:
    """Words become numbers; what these stand for is UTF-8, with NUL, which no word holds, between them."""
    predictions = sample.predictions
    tensors = {f"sample.{name}": part.numpy() for name, part in predictions.output._asdict().items()}
    tensors |= {"sample.numbers": sample.numbers, "sample.labels": predictions.known_labels.numpy()}
    for i, column in enumerate(predictions.groups.values()):
        if column.dtype.kind == "U":
            words, column = np.unique(column, return_inverse=True)
            tensors[f"sample.words.{i}"] = np.frombuffer("\0".join(words).encode(), np.uint8)
        tensors[f"sample.group.{i}"] = column
    return tensors


def _digest(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of all that a file says."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()


def _shard(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Shard:
    """The shard in a file."""

    def under(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}

    groups = {
        name: GroupColumn(
            kind, None if names is None else dict(zip(names, arrays[f"tally.{i}"], strict=True))
        )
        for i, (name, (kind, names)) in enumerate(header["groups"].items())
    }
    task = Task(**{**header["task"], "files": tuple((name, rows) for name, rows in header["task"]["files"])})
    sums = Sums(totals=under("total."), peaks=under("peak."), groups=groups)
    sample = _sample(header["columns"], arrays, task.metadata) if "sample.numbers" in arrays else None
    classes, experts = sums.totals["classwise"].shape[1] // task.bins, len(sums.totals["shares"])
    expected = shapes(classes, experts, task.of, task.bins)
    if {name: values.shape for name, values in {**sums.totals, **sums.peaks}.items()} != expected:
        raise ValueError("other shapes")
    return Shard(task=task, place=_place(header["place"], task.rows, sums.rows), sums=sums, sample=sample)


def _place(given: list[int], rows: int, counted: int) -> Place:
    """The place of a shard that has counted so many of a table's rows."""
    place = Place(*given)
    if any(type(value) is not int for value in place) or not 1 <= place.number <= place.shards:
        raise ValueError("no place")
    first, last = place.bounds(rows)
    if counted != last - first:
        raise ValueError("other rows")
    return place


def _sample(columns: list[str], arrays: Mapping[str, np.ndarray], metadata: dict[str, Any]) -> Sample:
    def column(i: int) -> np.ndarray:
        values = arrays[f"sample.group.{i}"]
        if f"sample.words.{i}" not in arrays:
            return values
        words = arrays[f"sample.words.{i}"].tobytes().decode().split("\0")
        return np.array(words)[values]

    predictions = Predictions(
        output=MixtureOutput(*(torch.from_numpy(arrays[f"sample.{name}"]) for name in PARTS)),
        labels=torch.from_numpy(arrays["sample.labels"]),
        groups={name: column(i) for i, name in enumerate(columns)},
        metadata=metadata,
    )
    return Sample(arrays["sample.numbers"], predictions)
