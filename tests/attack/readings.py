"""Strict readings of prediction files, by other means than calmoe's: what one says, or that it is malformed.

They are slow and simple on purpose: Python's csv in strict mode, struct and json for safetensors, zipfile for
npz, pyarrow's own lists for parquet.
"""

import csv
import datetime
import io
import itertools
import json
import math
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attack.running import Wrong
from calmoe.predictions import Predictions

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)
ARRAYS = ("probs", "routing", "expert_probs")
ALL_ARRAYS = (*ARRAYS, "log_probs", "log_routing", "expert_log_probs")
COLUMN = re.compile(
    r"(?P<log>log_)?(?P<array>prob|routing)_(?P<first>\d+)|expert_(?P<expert>\d+)_(?P<logs>log_)?prob_(?P<last>\d+)",
    re.ASCII,
)
TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
}


class Malformed(Exception):
    """The file breaks its format's rules, or contradicts itself."""


@dataclass
class Reading:
    """Arrays by their names, groups by theirs; in a csv file groups are text, whatever it stands for."""

    arrays: dict[str, np.ndarray]
    labels: list[Any] | None
    groups: dict[str, list[Any]]
    metadata: Any
    text: bool = False


def check_predictions(predictions: Predictions, path: Path) -> None:
    """Raise Wrong unless the file says what was loaded from it."""
    try:
        reading = READERS[path.suffix](path.read_bytes())
    except Malformed as error:
        raise Wrong(f"loaded though malformed ({error})") from None
    _compare(predictions, reading)


def _compare(predictions: Predictions, reading: Reading) -> None:
    for name, expected in _whole(reading).items():
        loaded = getattr(predictions.output, name).double().numpy()
        if loaded.shape != expected.shape:
            raise Wrong(f"{name} has another shape: {loaded.shape}, not {expected.shape}")
        if not np.allclose(loaded, expected, rtol=0, atol=1e-6):
            raise Wrong(f"{name} has other values: off by {np.abs(loaded - expected).max():g}")
    labels = None if predictions.labels is None else predictions.labels.tolist()
    if (labels is None) != (reading.labels is None) or (
        labels and reading.labels and [float(value) for value in reading.labels] != labels
    ):
        raise Wrong(f"other labels: {labels}, not {reading.labels}")
    if predictions.groups.keys() != reading.groups.keys():
        raise Wrong(f"other groups: {list(predictions.groups)}, not {list(reading.groups)}")
    for name, column in predictions.groups.items():
        expected = reading.groups[name]
        if len(column) != len(expected) or not all(
            _same(value, given, reading.text) for value, given in zip(column.tolist(), expected, strict=True)
        ):
            raise Wrong(f"another group column: {name!a} is {column.tolist()[:6]!a}, not {expected[:6]!a}")
    if predictions.metadata != reading.metadata:
        raise Wrong(f"other metadata: {predictions.metadata!a}, not {reading.metadata!a}"[:300])


def _whole(reading: Reading) -> dict[str, np.ndarray]:
    """The three arrays of probabilities, what is missing filled up as documented."""
    found: dict[str, np.ndarray] = {}
    for name in ARRAYS:
        log = name.replace("prob", "log_prob").replace("routing", "log_routing")
        if log in reading.arrays:
            found[name] = np.exp(reading.arrays[log].astype(np.float64))
        elif name in reading.arrays:
            found[name] = reading.arrays[name].astype(np.float64).clip(0, 1)
    if "routing" not in found:
        found["routing"], found["expert_probs"] = np.ones((len(found["probs"]), 1)), found["probs"][:, None]
    if "probs" not in found:
        found["probs"] = np.einsum("nk,nkc->nc", found["routing"], found["expert_probs"])
    return found


def _same(value: Any, given: Any, text: bool) -> bool:
    """Whether a loaded value is the given one; where the file is text, what the text stands for.

    Among numbers a blank is NaN, among all else blank text. Dates become text.
    """
    if isinstance(given, datetime.date):
        return str(value).startswith(str(given))
    if given is None or (text and not given.strip()):
        return value != value or not str(value).strip()
    if not text or isinstance(value, str):
        return value == given or (value != value and given != given)
    if isinstance(value, bool):
        return given.lower() == str(value).lower()
    if not NUMBER.fullmatch(given.strip()):
        return False
    if isinstance(value, int):
        return re.fullmatch(r"[+-]?\d+", given.strip()) is not None and int(given) == value
    return float(given) == value or (math.isnan(value) and math.isnan(float(given)))


# --- csv and parquet: wide columns


def _read_csv(data: bytes) -> Reading:
    if b"\0" in data:
        raise Malformed("it holds a NUL")
    try:
        text = data.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise Malformed(str(error)) from None
    header, *rows = [row for row in rows if len(row) > 1 or "".join(row).strip()]
    for row in rows:
        if len(row) != len(header):
            raise Malformed(f"ragged: {len(row)} cells under {len(header)} names")
    names = [name.strip() for name in header]
    columns = _once(zip(names, zip(*rows, strict=True), strict=True))
    reading = _from_columns(columns, _csv_number)
    reading.text = True
    return reading


def _csv_number(text: str) -> float:
    if not NUMBER.fullmatch(text.strip()):
        raise Malformed(f"{text[:20]!a} is no number")
    return float(text)


def _read_parquet(data: bytes) -> Reading:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(io.BytesIO(data))
        columns = _once(
            zip(table.column_names, (column.to_pylist() for column in table.columns), strict=True)
        )
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None
    return _from_columns(columns, _plain_number)


def _plain_number(value: Any) -> float:
    if value is None or isinstance(value, bool | str | bytes):
        raise Malformed(f"{value!a} is no number")
    return float(value)


def _from_columns(columns: dict[str, Any], number: Callable[[Any], float]) -> Reading:
    cells: dict[str, dict[tuple[int, ...], list[float]]] = {}
    groups: dict[str, list[Any]] = {}
    for name, values in columns.items():
        match = COLUMN.fullmatch(name)
        if match is None:
            groups[name] = list(values)
            continue
        digits = [match[part] for part in ("expert", "last", "first") if match[part] is not None]
        if any(len(part) > 9 for part in digits):
            raise Malformed(f"{name[:40]} has too large a number")
        if match["expert"] is not None:
            array = f"expert_{match['logs'] or ''}probs"
        else:
            array = f"{match['log'] or ''}{match['array']}{'s' * (match['array'] == 'prob')}"
        index = tuple(map(int, digits))
        if index in cells.setdefault(array, {}):
            raise Malformed(f"{name[:40]} is a column that is there already")
        cells[array][index] = [number(value) for value in values]
    arrays = {name: _dense(name, found) for name, found in cells.items()}
    return Reading(arrays, _labels(groups, number), groups, {})


def _dense(name: str, cells: dict[tuple[int, ...], list[float]]) -> np.ndarray:
    sizes = [1 + max(axis) for axis in zip(*cells, strict=True)]
    if math.prod(sizes) != len(cells):
        raise Malformed(f"the columns of {name} have a gap")
    indices = itertools.product(*map(range, sizes))
    return np.stack([np.array(cells[index]) for index in indices], axis=1).reshape(-1, *sizes)


def _labels(groups: dict[str, list[Any]], number: Callable[[Any], float]) -> list[float] | None:
    names = [name for name in ("label", "labels") if name in groups]
    if len(names) > 1:
        raise Malformed("both label and labels")
    return [number(value) for value in groups.pop(names[0])] if names else None


def _once(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise Malformed(f"{name[:40]!a} twice")
        found[name] = value
    return found


# --- safetensors and npz: named arrays


def read_safetensors(data: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata, every rule of the format checked."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise Malformed("the header is longer than the file")
    try:
        header = json.loads(data[8 : 8 + length], object_pairs_hook=_once)
        metadata = header.pop("__metadata__", None) or {}
        entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        tensors, end, buffer = {}, 0, data[8 + length :]
        for name, entry in entries:
            start, stop = entry["data_offsets"]
            kind, shape = TYPES[entry["dtype"]], entry["shape"]
            if start != end or stop > len(buffer) or stop - start != math.prod(shape) * kind.itemsize:
                raise Malformed(f"{name[:40]!a} does not lie where it should")
            content = torch.frombuffer(bytearray(buffer[start:stop]), dtype=kind) if stop > start else None
            tensors[name] = (torch.empty(0, dtype=kind) if content is None else content).reshape(shape)
            end = stop
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"header: {type(error).__name__}") from None
    if end != len(buffer):
        raise Malformed("bytes after the last tensor")
    return tensors, metadata


def _read_safetensors(data: bytes) -> Reading:
    tensors, metadata = read_safetensors(data)
    if "calmoe" not in metadata:
        return _from_arrays({name: _array(tensor) for name, tensor in tensors.items()})
    try:
        note = json.loads(metadata["calmoe"])
        if note["format"] != "calmoe.predictions/1":
            raise Malformed("another format")
        groups = {}
        for name in [name for name in tensors if name.startswith("group.")]:
            groups[name.removeprefix("group.")] = tensors.pop(name).tolist()
        for name, values in note["categories"].items():
            if not all(isinstance(value, str) for value in values) or not isinstance(values, list):
                raise Malformed("categories that are no text")
            if any(isinstance(i, bool | float) or not 0 <= i < len(values) for i in groups[name]):
                raise Malformed("an index outside of the categories")
            groups[name] = [values[i] for i in groups[name]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"note: {type(error).__name__}") from None
    labels = tensors.pop("labels", None)
    if odd := set(tensors) - set(ALL_ARRAYS):
        raise Malformed(f"a tensor that the format does not have: {min(odd)[:40]!a}")
    if not isinstance(note.get("metadata"), dict):
        raise Malformed("metadata that are no table")
    arrays = {name: _array(tensor) for name, tensor in tensors.items()}
    return Reading(arrays, None if labels is None else labels.tolist(), groups, note["metadata"])


def _array(tensor: torch.Tensor) -> np.ndarray:
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def _read_npz(data: bytes) -> Reading:
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = _once((entry.filename.removesuffix(".npy"), entry) for entry in file.infolist())
            for name, entry in members.items():
                stream = io.BytesIO(file.read(entry))
                arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
                if stream.read(1):
                    raise Malformed(f"bytes after the array {name[:40]!a}")
    except Malformed:
        raise
    except Exception as error:  # zipfile and NumPy raise whatever damage leads them to
        raise Malformed(f"{type(error).__name__}: {error}"[:80]) from None
    return _from_arrays(arrays)


def _from_arrays(arrays: dict[str, np.ndarray]) -> Reading:
    known = {name: arrays.pop(name) for name in ALL_ARRAYS if name in arrays}
    for name in [*known, *(name for name in ("label", "labels") if name in arrays)]:
        if {**known, **arrays}[name].dtype.kind not in "fiu":
            raise Malformed(f"{name} holds no real numbers")
    groups = {name: values.tolist() if values.ndim else [] for name, values in arrays.items()}
    return Reading(known, _labels(groups, float), groups, {})


READERS: dict[str, Callable[[bytes], Reading]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
}
