"""Another reading of a user's own table, by other means: names, rows and cells must be the same."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from attack.running import Wrong

NOTHING = {"", "?", "-", "na", "n/a", "nan", "null", "none", "missing", "#n/a", "#n/a n/a", "#na", "<na>"}
NOTHING |= {"-1.#ind", "-1.#qnan", "-nan", "1.#ind", "1.#qnan"}


def check_table(columns: dict[str, np.ndarray], path: Path) -> None:
    """Raise Wrong where the columns are not those of the file."""
    names, rows = _read(path)
    if list(columns) != names:
        raise Wrong(f"other columns than the file's: {list(columns)[:5]!a}, not {names[:5]!a}"[:300])
    for place, (name, column) in enumerate(columns.items()):
        if len(column) != len(rows):
            raise Wrong(f"other rows than the file's: {len(column)}, not {len(rows)}")
        dates = column.dtype.kind == "M"
        values = (column.astype("datetime64[D]").astype(str) if dates else column).tolist()
        for value, row in zip(values, rows, strict=True):
            if not _same(value, row[place], column.dtype.kind):
                raise Wrong(f"another value in {name!a}: {value!a}, not {row[place]!a}"[:300])


def _read(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Names and rows. A file that is malformed has no business here."""
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        names = [name.strip() for name in table.column_names]
        return names, list(map(list, zip(*map(_listed, table.columns), strict=True)))
    text = path.read_bytes().decode("utf-8-sig")
    if "\0" in text:
        raise Wrong("loaded though it holds a NUL")
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        keys = list(dict.fromkeys(key for line in lines for key in line))
        return [key.strip() for key in keys], [[line.get(key) for key in keys] for line in lines]
    separator = "\t" if path.suffix == ".tsv" else _separator(text)
    csv.field_size_limit(len(text))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header, *rows = (row for row in reader if row)
    if len(header) > 1:
        rows = [row for row in rows if len(row) > 1 or row[0].strip()]
    if any(len(row) != len(header) for row in rows):
        raise Wrong("loaded though its lines are ragged")
    names = [name.strip() for name in header]
    if len(names) > 1 and not names[0]:
        names, rows = names[1:], [row[1:] for row in rows]
    if len(set(names)) < len(names):
        raise Wrong("loaded though two columns have one name")
    return names, rows


def _listed(column: pa.ChunkedArray) -> list[Any]:
    """The cells; None, which is like any, where Python has no such date."""
    temporal = pa.types.is_temporal(column.type)
    return [None] * len(column) if temporal else column.to_pylist()


def _separator(text: str) -> str:
    first = next(line for line in text.splitlines() if line.strip())
    others = [sign for sign in first if sign in ";\t|"]
    return "," if "," in first or not others else others[0]


def _same(value: Any, cell: Any, kind: str) -> bool:
    """Whether a value of the column may be the file's cell; words among numbers may be missing."""
    if kind == "M":
        return value == "NaT" or not isinstance(cell, str) or cell.strip()[:10] == value
    if kind == "f":
        if math.isnan(value):
            return True
        if not isinstance(cell, str):
            return not isinstance(cell, int | float) or value == float(cell)
        return value == float(cell.strip().replace(",", "."))
    if value is None:
        return cell is None or str(cell).strip().lower() in NOTHING or cell != cell
    if isinstance(cell, str):
        return value == cell.strip() or value.lower() == cell.strip().lower() in ("true", "false")
    return not isinstance(cell, bool) or value == str(cell)
