"""Reading predictions that calmoe or other tools wrote, as named arrays and group columns.

- `.safetensors`, written by `Predictions.save`: tensors `log_probs` [N, C], `log_routing` [N, K],
  `expert_log_probs` [N, K, C], `labels` [N] (absent for unlabelled data) and `group.NAME` [N]; the header
  holds the names of categories and the metadata as JSON.
- `.npz`: arrays `log_probs` or `probs`; optionally `log_routing` or `routing` with `expert_log_probs` or
  `expert_probs`; optionally `labels`; any other array is a group column.
- `.csv` and `.parquet`: columns `prob_0`, `prob_1`, … (or `log_prob_0`, …); optionally `routing_0`, … (or
  `log_routing_0`, …) with `expert_0_prob_0`, … (or `expert_0_log_prob_0`, …), the expert first, then the
  class; optionally `label`; any other column is a group column.
"""

import csv
import json
import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
from torch import Tensor

from calmoe.arrays import as_tensor
from calmoe.errors import InputError

FORMAT = "calmoe.predictions/1"
ARRAYS = ("log_probs", "probs", "log_routing", "routing", "expert_log_probs", "expert_probs", "labels")


class Table(NamedTuple):
    """What a file holds: arrays under the names above, group columns, metadata."""

    arrays: dict[str, Tensor]
    groups: dict[str, np.ndarray]
    metadata: dict[str, Any]


def read_table(path: Path) -> Table:
    """The contents of a predictions file of any kind we read."""
    readers = {
        ".safetensors": _read_safetensors,
        ".npz": _read_npz,
        ".csv": _read_csv,
        ".parquet": _read_parquet,
    }
    if path.suffix not in readers:
        raise InputError(f"unknown kind of file; expected one of {', '.join(readers)}")
    if not path.is_file():
        raise InputError("no such file")
    return readers[path.suffix](path)


def _read_safetensors(path: Path) -> Table:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise InputError(f"not a readable safetensors file ({error})") from None
    groups = {k.removeprefix("group."): v.numpy() for k, v in tensors.items() if k.startswith("group.")}
    try:
        saved = json.loads(header.get("calmoe", "{}"))
        if saved.get("format") != FORMAT:
            raise InputError(f"not a predictions file of the format {FORMAT}")
        for name, values in saved["categories"].items():
            groups[name] = np.asarray(values)[groups[name]]
        metadata = saved["metadata"]
    except (KeyError, IndexError, AttributeError, json.JSONDecodeError) as error:
        raise InputError(f"damaged header ({error!r}); write the file again") from None
    return Table({name: tensors[name] for name in ARRAYS if name in tensors}, groups, metadata)


def _read_npz(path: Path) -> Table:
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"not a readable npz file of plain arrays ({error})") from None
    arrays = {name: _numbers(name, columns.pop(name)) for name in ARRAYS if name in columns}
    return Table(arrays, columns, {})


def _read_csv(path: Path) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = csv.reader(stream)
            names = next(rows, [])
            columns = list(zip(*rows, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a readable UTF-8 csv file ({error})") from None
    except ValueError:
        raise InputError("rows of different lengths: every row needs one value per column") from None
    if not columns:
        raise InputError("there are no rows")
    if len(columns) != len(names) or len(set(names)) != len(names):
        raise InputError(f"the header must name {len(columns)} different columns; it has: {', '.join(names)}")
    return _from_columns({name: _parse(values) for name, values in zip(names, columns, strict=True)})


def _parse(values: tuple[str, ...]) -> np.ndarray:
    """Text as booleans, numbers or, failing both, text."""
    if set(values) <= {"True", "False", "true", "false"}:
        return np.array([value in ("True", "true") for value in values])
    try:
        return np.array(values, dtype=np.float64)
    except ValueError:
        return np.array(values)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("reading parquet needs pyarrow: pip install 'calmoe[parquet]'") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"not a readable parquet file ({error})") from None
    columns = {}
    for name in table.column_names:
        if table[name].null_count:
            raise InputError(f'column "{name}" has {table[name].null_count} missing values')
        values = table[name].to_numpy()
        columns[name] = values.astype(str) if values.dtype == object else values
    return _from_columns(columns)


def _from_columns(columns: dict[str, np.ndarray]) -> Table:
    """Wide columns (`prob_3`, `routing_0`, `expert_1_prob_3`, `label`) as arrays; the rest are groups."""
    arrays = {}
    for array, pattern in (
        ("probs", r"prob_(\d+)"),
        ("log_probs", r"log_prob_(\d+)"),
        ("routing", r"routing_(\d+)"),
        ("log_routing", r"log_routing_(\d+)"),
        ("expert_probs", r"expert_(\d+)_prob_(\d+)"),
        ("expert_log_probs", r"expert_(\d+)_log_prob_(\d+)"),
    ):
        found = {name: match for name in columns if (match := re.fullmatch(pattern, name))}
        if found:
            cells = {tuple(map(int, match.groups())): columns.pop(name) for name, match in found.items()}
            arrays[array] = _stack(array, cells)
    if not arrays:
        raise InputError("no probability columns: expected `prob_0`, `prob_1`, … (and `label`)")
    if "label" in columns:
        arrays["labels"] = _numbers("label", columns.pop("label"))
    return Table(arrays, columns, {})


def _stack(array: str, cells: dict[tuple[int, ...], np.ndarray]) -> Tensor:
    """Columns by number as one array [N, …]; every number from zero up must be there."""
    sizes = [1 + max(axis) for axis in zip(*cells, strict=True)]
    for index in np.ndindex(*sizes):
        if index not in cells:
            raise InputError(f"columns for {array} have a gap: number {'_'.join(map(str, index))} is missing")
    stacked = np.stack([cells[index] for index in np.ndindex(*sizes)], axis=1)
    return _numbers(array, stacked.reshape(-1, *sizes))


def _numbers(name: str, values: np.ndarray) -> Tensor:
    if values.dtype.kind not in "fiu":
        raise InputError(f"{name} must hold numbers only, not {values.dtype}")
    return as_tensor(values)
