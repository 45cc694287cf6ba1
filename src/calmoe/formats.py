"""Reading predictions that calmoe or other tools wrote, as named arrays and group columns.

- `.safetensors`, written by `Predictions.save`: tensors `log_probs` [N, C], `log_routing` [N, K],
  `expert_log_probs` [N, K, C], `labels` [N] (absent for unlabelled data) and `group.NAME` [N]; the header
  holds the names of categories and the metadata as JSON. Written by other tools: tensors as in npz.
- `.npz`: arrays `log_probs` or `probs`; optionally `log_routing` or `routing` with `expert_log_probs` or
  `expert_probs` (these two suffice); optionally `labels`; any other array is a group column.
- `.csv` and `.parquet`: columns `prob_0`, `prob_1`, … (or `log_prob_0`, …); optionally `routing_0`, … (or
  `log_routing_0`, …) with `expert_0_prob_0`, … (or `expert_0_log_prob_0`, …), the expert first, then the
  class; optionally `label`; any other column is a group column. In a csv file group columns are booleans
  (true, True, TRUE), integers, numbers or, failing these or with leading zeros, text.

`label` and `labels` mean the same. Messages count rows from 0, after the header.
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
COLUMNS = {
    "probs": r"prob_(\d+)",
    "log_probs": r"log_prob_(\d+)",
    "routing": r"routing_(\d+)",
    "log_routing": r"log_routing_(\d+)",
    "expert_probs": r"expert_(\d+)_prob_(\d+)",
    "expert_log_probs": r"expert_(\d+)_log_prob_(\d+)",
}


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
    if path.is_dir():
        raise InputError("this is a folder: give a file in it")
    if not path.exists():
        raise InputError("no such file")
    if path.suffix not in readers:
        raise InputError(f"unknown kind of file; expected one of {', '.join(readers)}")
    return readers[path.suffix](path)


def _read_safetensors(path: Path) -> Table:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise InputError(f"not a readable safetensors file ({error})") from None
    if "calmoe" not in header:
        if not set(ARRAYS[:-1]) & set(tensors):
            raise InputError(
                "not a predictions file: write it with Predictions.save, or give tensors `probs`, `labels`, …"
            )
        return _from_arrays({name: _numpy(tensor) for name, tensor in tensors.items()})
    groups = {k.removeprefix("group."): v.numpy() for k, v in tensors.items() if k.startswith("group.")}
    try:
        saved = json.loads(header.get("calmoe", "{}"))
        if saved.get("format") != FORMAT:
            raise InputError(
                f"not a predictions file of the format {FORMAT}: write it with Predictions.save, or give the "
                "same arrays as npz"
            )
        for name, values in saved["categories"].items():
            groups[name] = np.asarray(values)[groups[name]]
        metadata = saved["metadata"]
    except InputError:
        raise
    except (LookupError, AttributeError, TypeError, ValueError, RecursionError):
        raise InputError(
            "damaged header: its JSON is not what Predictions.save writes; write the file again"
        ) from None
    return Table({name: tensors[name] for name in ARRAYS if name in tensors}, groups, metadata)


def _read_npz(path: Path) -> Table:
    if not zipfile.is_zipfile(path):
        raise InputError("not a readable npz file: write named arrays with np.savez")
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
    except (
        Exception
    ) as error:  # damage may raise anything: zlib.error, BadZipFile, TokenError, MemoryError, …
        if "pickle" in str(error):
            raise InputError(
                "an array holds Python objects: save it .astype(str) or .astype(float)"
            ) from None
        raise InputError(
            f"not a readable npz file of plain arrays ({' '.join(str(error).split())})"
        ) from None
    return _from_arrays(columns)


def _from_arrays(columns: dict[str, np.ndarray]) -> Table:
    """Arrays by their names; the rest are groups."""
    _rename_label(columns)
    arrays = {name: as_tensor(_numbers(name, columns.pop(name))) for name in ARRAYS if name in columns}
    return Table(arrays, columns, {})


def _numpy(tensor: Tensor) -> np.ndarray:
    """NumPy has no bfloat16."""
    return (tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor).numpy()


def _read_csv(path: Path) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = [row for row in csv.reader(stream) if len(row) > 1 or "".join(row).strip()]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a readable UTF-8 csv file ({error})") from None
    header, *rows = lines or [[]]
    names = [name.strip() for name in header]
    _check_csv(names, rows)
    numeric = re.compile("|".join([*COLUMNS.values(), "labels?"]))
    return _from_columns(
        {
            name: _parse_numbers(name, values) if numeric.fullmatch(name) else _parse(values)
            for name, values in zip(names, zip(*rows, strict=True), strict=True)
        }
    )


def _check_csv(names: list[str], rows: list[list[str]]) -> None:
    if len(names) == 1 and (other := re.search(r"[;\t|]", names[0])):
        raise InputError(
            f"columns are separated by {other[0]!r}: separate them by commas, with decimal points"
        )
    if not rows:
        raise InputError("there are no rows")
    if "" in names:
        raise InputError("a column has no name: name it or leave it out (pandas: to_csv(..., index=False))")
    if len(set(names)) != len(names):
        raise InputError(f"the header must name {len(names)} different columns; it has: {', '.join(names)}")
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise InputError(f"row {i} has {len(row)} values, but the header names {len(names)} columns")


def _parse_numbers(name: str, values: tuple[str, ...]) -> np.ndarray:
    """Text as numbers only."""
    numbers = np.empty(len(values))
    for row, value in enumerate(values):
        try:
            numbers[row] = float(value)
        except ValueError:
            found = f'has "{value}"' if value.strip() else "is blank"
            raise InputError(f'column "{name}" must hold numbers only: row {row} {found}') from None
    return numbers


def _parse(values: tuple[str, ...]) -> np.ndarray:
    """Text as booleans, integers, numbers or, failing these, text; 007 and 1_000 are names, not numbers."""
    if {value.lower() for value in values} <= {"true", "false"}:
        return np.array([value.lower() == "true" for value in values])
    if any(re.match(r"\s*[+-]?0\d|.*_", value) for value in values):
        return np.array(values)
    for kind in (np.int64, np.float64):
        try:
            return np.array([kind(value) for value in values])
        except ValueError:
            continue
        except OverflowError:  # a float would lose digits
            break
    return np.array(values)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("reading parquet needs pyarrow: pip install 'calmoe[parquet]'") from None
    try:
        with path.open("rb") as stream:  # pyarrow takes no path that is not UTF-8
            table = pyarrow.parquet.read_table(stream)
        stored = dict(zip(table.column_names, table.columns, strict=True))
        columns = {name: _plain(name, column) for name, column in stored.items()}
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"not a readable parquet file ({' '.join(str(error).split())})") from None
    return _from_columns(columns)


def _plain(name: str, column: Any) -> np.ndarray:
    """A parquet column of booleans, numbers or text; categories of these are what they stand for."""
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if column.null_count:
        raise InputError(f'column "{name}" has {column.null_count} missing values')
    if types.is_decimal(kind):
        return column.cast("float64").to_numpy()
    if str(kind) in ("string", "large_string", "string_view"):
        return column.to_numpy().astype(str)
    if not (types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)):
        raise InputError(f'column "{name}" holds {kind}: give booleans, numbers or strings, or leave it out')
    return column.to_numpy()


def _from_columns(columns: dict[str, np.ndarray]) -> Table:
    """Wide columns (`prob_3`, `routing_0`, `expert_1_prob_3`, `label`) as arrays; the rest are groups."""
    arrays = {}
    for array, pattern in COLUMNS.items():
        found = {name: match for name in columns if (match := re.fullmatch(pattern, name))}
        if found:
            cells = {tuple(map(int, m.groups())): _numbers(n, columns.pop(n)) for n, m in found.items()}
            arrays[array] = _stack(array, cells)
    if not arrays:
        raise InputError("no probability columns: expected `prob_0`, `prob_1`, … (and `label`)")
    _rename_label(columns)
    if "labels" in columns:
        arrays["labels"] = _numbers("label", columns.pop("labels"))
    return Table({name: as_tensor(values) for name, values in arrays.items()}, columns, {})


def _rename_label(columns: dict[str, np.ndarray]) -> None:
    """`label` becomes `labels`."""
    if "label" in columns:
        if "labels" in columns:
            raise InputError("there are both `label` and `labels`: keep one")
        columns["labels"] = columns.pop("label")


def _stack(array: str, cells: dict[tuple[int, ...], np.ndarray]) -> np.ndarray:
    """Columns by number as one array [N, …]; every number from zero up must be there."""
    sizes = [1 + max(axis) for axis in zip(*cells, strict=True)]
    for index in np.ndindex(*sizes):
        if index not in cells:
            raise InputError(f"columns for {array} have a gap: number {'_'.join(map(str, index))} is missing")
    stacked = np.stack([cells[index] for index in np.ndindex(*sizes)], axis=1)
    return stacked.reshape(-1, *sizes)


def _numbers(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "fiu":
        classes = ": class indices from 0, in the order of the probabilities" if "label" in name else ""
        raise InputError(f"{name} must hold numbers only, not {values.dtype}{classes}")
    return values
