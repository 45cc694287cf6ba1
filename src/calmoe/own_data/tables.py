"""Tables of one's own: CSV, JSON lines and parquet as columns by name."""

import codecs
import csv
import io
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calmoe.errors import InputError, about, shown
from calmoe.files import is_utf8, legible
from calmoe.formats.naming import check_names
from calmoe.models.columns import Columns, dates_in, numbers_in, read_columns
from calmoe.validation import unique_keys

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
MISSING = frozenset(
    {
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
        *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?"),
    }
)  # what pandas takes for missing in a CSV file, and "?"
MOST_BYTES, MOST_CELL = 4 * 2**30, 2**24
FEW, MANY = 0.05, 20  # words among numbers: at most this share of rows, and more different numbers
SIGNATURES = {
    b"PK\x03\x04": "a workbook or a zip archive: save its table as CSV",
    b"\xd0\xcf\x11\xe0": "an old workbook: save its table as CSV",
    b"\x1f\x8b": "a compressed file: unpack it first",
    b"PAR1": "a parquet file: end its name in .parquet",
    codecs.BOM_UTF16_LE: "text in UTF-16: save it as UTF-8",
    codecs.BOM_UTF16_BE: "text in UTF-16: save it as UTF-8",
}
CONTROL, PROBE = re.compile(rb"[\x00-\x08\x0e-\x1f]"), 4096  # bytes of no text, sought in the first ones
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?")


class Table(NamedTuple):
    """Columns by name, the texts of one of them as they stand, and notes on how the file was read."""

    columns: Columns
    texts: list[str | None]
    notes: list[str]


def read_table(path: Path, text: str = "") -> Table:
    """The table in a file; the column `text` keeps every character."""
    if not path.is_file():
        raise InputError(f"there is no file {legible(path)}")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{legible(path)}: give a table that ends in {', '.join(SUFFIXES)}, or image folders"
        )
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{legible(path)} is longer than {MOST_BYTES:,} bytes: take a part of its rows")
    with about(legible(path)):
        notes: list[str] = []
        if suffix == ".parquet":
            cells: Any = _parquet(path)
            texts = _texts(cells.column(text)) if text in cells.column_names else []
        else:
            data = path.read_bytes()
            lines = suffix in (".jsonl", ".ndjson")
            cells, notes = (_json_lines(data), []) if lines else _csv(data, "\t" * (suffix == ".tsv"))
            texts = list(cells[text]) if text in cells else []
            if not lines:
                cells = {name: _cells(values) for name, values in cells.items()}
        texts = [None if value is None else str(value) for value in texts]
        columns = {name: _of_one_kind(name, v, notes) for name, v in read_columns(cells).items()}
        for name, values in columns.items():
            if values.dtype == object and any("\0" in value for value in {*values.tolist()} - {None}):
                raise InputError(f"column {shown(name)} holds a NUL character: take it out")
    if not len(next(iter(columns.values()))):
        raise InputError(f"{legible(path)}: there are no rows")
    return Table(columns, texts, notes)


def _of_one_kind(name: str, values: np.ndarray, notes: list[str]) -> np.ndarray:
    """Text that spells numbers or dates as such; where nearly all of it does, the rest counts as missing."""
    if values.dtype != object:
        return values
    for reading in (numbers_in, dates_in):
        if (read := reading(values)) is not None:
            return read
        distinct = [value for value in {*values.tolist()} if value is not None]
        strange = {value for value in distinct if reading([value]) is None}
        count = sum(value in strange for value in values)
        given = sum(value is not None for value in values)
        if 0 < count <= FEW * given and len(distinct) - len(strange) > MANY:
            kind = "numbers" if reading is numbers_in else "dates"
            example = shown(min(strange), most=40)
            notes.append(
                f"{name} holds {kind} but for {count:,} values such as {example}: they count as missing"
            )
            return reading([None if value in strange else value for value in values])  # type: ignore[return-value]
    return values


def _decoded(data: bytes) -> str:
    data = data.removeprefix(codecs.BOM_UTF8)
    _check_text(data)
    if (place := data.find(b"\0")) >= 0:
        line = data.count(b"\n", 0, place) + 1
        raise InputError(f"line {line} holds a NUL character: write the file as plain UTF-8 text")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"line {line} is not UTF-8: save the file in that encoding (older programs write Latin-1)"
        ) from None


def _check_text(data: bytes) -> None:
    """Refuse what is no text at all."""
    for beginning, what in SIGNATURES.items():
        if data.startswith(beginning):
            raise InputError(f"this is {what}")
    strange = len(CONTROL.findall(data[:PROBE]))
    if strange >= 8 and strange > 0.03 * len(data[:PROBE]):
        raise InputError("this is no text: give a table as plain UTF-8 text, or as a parquet file")


def _csv(data: bytes, separator: str = "") -> tuple[dict[str, list[str]], list[str]]:
    """The cells as they stand, by column."""
    text, notes = _decoded(data), []
    header = next((line for line in text.splitlines() if line.strip()), "")
    if not header:
        raise InputError("there are no rows")
    if not separator:
        other = re.search(r"[;\t|]", header)
        separator = other[0] if "," not in header and other else ","
        if separator != ",":
            notes.append(f"columns are separated by {separator!r}")
    before = csv.field_size_limit(MOST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip() and rows and len(rows[0]) > 1):
                continue
            rows.append(row)
            if len(row) != len(rows[0]):
                raise InputError(
                    f"line {reader.line_num} has {len(row)} values, but the header names {len(rows[0])}"
                )
    except csv.Error as error:
        raise InputError(
            f"line {reader.line_num} is not readable ({error}): close its quotes, and double those inside"
        ) from None
    finally:
        csv.field_size_limit(before)
    names = [name.strip() for name in rows[0]]
    if len(rows) < 2:
        raise InputError("there are no rows")
    pairs = list(zip(names, map(list, zip(*rows[1:], strict=True)), strict=True))
    if len(pairs) > 1 and not pairs[0][0]:
        notes.append("the first column has no name, as a row's number has none: it is left out")
        pairs = pairs[1:]
    check_names([name for name, _ in pairs])
    columns = dict(pairs)
    if separator == ";":
        for name, values in columns.items():
            if _has_decimal_commas(values):
                columns[name] = [value.replace(",", ".") for value in values]
                notes.append(f"{name} has decimal commas")
    return columns, notes


def _has_decimal_commas(values: list[str]) -> bool:
    """Whether all numbers of the column have a comma where others have a point.

    >>> _has_decimal_commas(["1,5", "", "2"]), _has_decimal_commas(["1,5", "red"]), _has_decimal_commas(["2"])
    (True, False, False)
    """
    given = {value.strip() for value in values} - MISSING
    return any("," in value for value in given) and all(map(DECIMAL_COMMA.fullmatch, given))


def _cells(values: list[str]) -> np.ndarray:
    """Cells without the missing ones; true and false as Python writes them, whatever their case."""
    known: dict[str, str | None] = {}
    for value in set(values):
        plain = value.strip()
        known[value] = None if plain in MISSING else plain
    if {value.lower() for value in known.values() if value is not None} <= {"true", "false"}:
        known = {key: value and value.capitalize() for key, value in known.items()}
    column = np.empty(len(values), dtype=object)
    column[:] = [known[value] for value in values]
    return column


def _json_lines(data: bytes) -> dict[str, np.ndarray]:
    """A JSON table a line; a key that a line lacks is missing there."""
    rows = []
    for number, line in enumerate(_decoded(data).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {number} is not readable JSON ({error})") from None
        if not isinstance(row, dict):
            raise InputError(f'line {number} is no JSON table, such as {{"text": "…", "label": "…"}}')
        for name, value in row.items():
            if isinstance(value, list | dict):
                raise InputError(f"line {number}: {shown(name)} holds a list or a table: give one value")
            if not (is_utf8(name) and (not isinstance(value, str) or is_utf8(value))):
                raise InputError(f"line {number}: {shown(name)} holds half a character, such as \\ud800")
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    check_names(names)
    columns = {}
    for name in names:
        columns[name.strip()] = np.empty(len(rows), dtype=object)
        columns[name.strip()][:] = [row.get(name) for row in rows]
    return columns


def _texts(column: Any) -> list[Any]:
    """The cells of a column of a parquet file."""
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):  # a date that Python does not have
        raise InputError("the column of texts holds no texts: give another --text COLUMN") from None


def _parquet(path: Path) -> Any:
    import pyarrow

    from calmoe.formats.parquet import opened

    try:
        with path.open("rb") as stream:
            file = opened(stream)
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            length = sum(max(0, group.total_byte_size) for group in groups)
            if max(length, 8 * file.metadata.num_rows * len(file.schema_arrow)) > MOST_BYTES:
                raise InputError(f"it unpacks to more than {MOST_BYTES:,} bytes: take a part of its rows")
            table = file.read(use_threads=False)
            table.validate(full=True)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"not a readable parquet file ({' '.join(str(error).split())})") from None
    check_names(table.column_names)
    return table.rename_columns([name.strip() for name in table.column_names])
