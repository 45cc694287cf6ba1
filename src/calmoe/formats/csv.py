"""A csv file as columns by name, strictly: a line is a row, and no cell is read as what it is not.

A quote opens or closes a cell or is doubled inside one. Text that goes over the end of a line is refused:
a quote that somebody forgot to close looks the same, and would swallow rows.
"""

import codecs
import csv
import io
import re
from collections.abc import Callable, Container, Iterator
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import compute
from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

from calmoe.arrays import EXACT
from calmoe.errors import InputError, shown
from calmoe.formats.budget import Budget
from calmoe.formats.naming import LABELS, check_names
from calmoe.formats.text import distinct, repeat
from calmoe.validation import parse_number

BLOCK = 2**20
LINE_END = re.compile(rb"[\r\n]")
BLANKS = re.compile(rb"(?<=[\r\n])[ \t\v\f]+(?=[\r\n]|\Z)")
"""What stands on a line that is otherwise empty."""
NOT_PLAIN = r"^(\+|-?0[0-9xX]|-?[0-9]{16,}$)"
"""Cells that Arrow takes for numbers, and `_typed` perhaps for text."""


def read(
    path: Path, budget: Budget, is_number: Callable[[str], bool], labels: Container[str] = LABELS
) -> dict[str, np.ndarray]:
    """Columns by name. Where `is_number` holds they must be numbers; the others are what they look like.

    Columns named as in `labels` are numbers if any cell of theirs is one.
    """
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    _check_characters(data)
    _check_separator(data)
    _check_quotes(data)
    names, end = _header(data)
    lines = _line(data, len(data))
    budget.spend_cells(min(lines * len(names), len(data)), columns=len(names))  # no cell without a separator
    table = _parsed(data, end, {name: "float64" if is_number(name) else "string" for name in names})
    _check_count(len(table), lines, data)
    cells = dict(zip(names, table.columns, strict=True))
    del table
    columns = {}
    for name in names:
        column = cells.pop(name)  # frees its text as soon as it is read
        if is_number(name) or (name in labels and _holds_numbers(column)):
            columns[name] = _numbers(name, column, data)
        else:
            columns[name] = _column(name, column, budget)
    return columns


def _check_characters(data: bytes) -> None:
    if (place := data.find(b"\0")) >= 0:
        raise InputError(
            f"line {_line(data, place)} holds a NUL character: write the file as plain UTF-8 text"
        )


def _check_separator(data: bytes) -> None:
    """Refuse a header without commas that has another separator."""
    header = re.compile(rb"\S[^\r\n]*").search(data)
    if header and b"," not in header[0] and (other := re.search(rb"[;\t|]", header[0])):
        raise InputError(
            f"columns are separated by {other[0].decode()!r}: separate them by commas, with decimal points"
        )


def _check_quotes(data: bytes) -> None:
    """Refuse quotes that neither begin nor end a cell; piece by piece, each of whole lines."""
    if b'"' not in data:
        return
    start = 0
    while start < len(data):
        end = LINE_END.search(data, min(start + BLOCK, len(data)))
        stop = end.end() if end else len(data)
        if (fault := _misplaced(np.frombuffer(data, np.uint8, stop - start, start))) is not None:
            place = start + fault
            before = data[max(data.rfind(b"\n", 0, place), data.rfind(b"\r", 0, place)) + 1 : place]
            column = 1 + re.sub(rb'"[^"]*"', b"", before).count(b",")
            rest = LINE_END.split(data[place + 1 :], maxsplit=1)[0]
            reason = (
                "a quote is not closed on its line: close it, and take line breaks out of cells"
                if b'"' not in rest
                else "a quote stands inside a cell: put the whole cell in quotes, and double those inside it"
            )
            raise InputError(f"line {_line(data, place)}, column {column}: {reason}")
        start = stop


def _misplaced(piece: np.ndarray) -> int | None:
    """The place of the first quote in whole lines that does not belong there."""
    quotes = np.flatnonzero(piece == ord('"'))
    opening, closing = quotes[::2], quotes[1::2]
    edge = np.isin(np.arange(256), np.frombuffer(b',\r\n"', np.uint8))
    before = edge[piece[opening - 1]] | (opening == 0)
    after = edge[piece[(closing + 1) % len(piece)]] | (closing == len(piece) - 1)
    ends = np.flatnonzero(piece == ord("\n"))
    if (returns := piece == ord("\r")).any():
        ends = np.union1d(ends, np.flatnonzero(returns))
    inside = np.searchsorted(quotes, ends)
    faults = [
        opening[~before],
        closing[~after],
        quotes[inside[inside % 2 == 1] - 1],
        opening[len(closing) :],
    ]
    return min((int(places.min()) for places in faults if len(places)), default=None)


def _header(data: bytes) -> tuple[list[str], int]:
    """The names of the columns, and where their line ends."""
    line = re.compile(rb"\S[^\r\n]*").search(data)
    if line is None:
        raise InputError("there are no rows")
    _check_utf8(data[: line.end()])
    try:
        names = [name.strip() for name in next(csv.reader([line[0].decode()], strict=True))]
    except csv.Error as error:
        raise InputError(f"the header is not readable ({error})") from None
    if not re.compile(rb"\S").search(data, line.end()):
        raise InputError("there are no rows")
    check_names(names)
    return names, line.end()


def _parsed(data: bytes, end: int, kinds: dict[str, str]) -> pyarrow.Table:
    """The cells below the header; all of them as text where some number is not plain."""
    body, quotes = memoryview(data)[end:], b'"' in data
    if len(kinds) == 1:
        body = memoryview(BLANKS.sub(b"", body))  # in other files such a line is too short
    try:
        return _parse(body, kinds, quotes, BLOCK)
    except pyarrow.ArrowInvalid:
        _check_lines(data, len(kinds))
        body = memoryview(BLANKS.sub(b"", body))
        try:
            return _parse(body, dict.fromkeys(kinds, "string"), quotes, len(body))  # a line may be long
        except pyarrow.ArrowException as error:
            raise InputError(f"not a readable csv file ({' '.join(str(error).split())})") from None


def _parse(body: memoryview, kinds: dict[str, str], quotes: bool, block: int) -> pyarrow.Table:
    return read_csv(
        pyarrow.BufferReader(pyarrow.py_buffer(body)),
        ReadOptions(  # its threads may outlive a refusal, and end the process badly
            use_threads=False, column_names=list(kinds), block_size=min(block, 2**31 - 1)
        ),
        ParseOptions(quote_char='"' if quotes else False, newlines_in_values=False),
        ConvertOptions(column_types=kinds, null_values=[], strings_can_be_null=False),
    )


def _check_count(rows: int, lines: int, data: bytes) -> None:
    """Refuse a table with more or fewer rows than the file has lines."""
    if rows != lines - 1 - data.endswith((b"\n", b"\r")):
        filled = sum(1 for _ in _lines(data)) - 1  # without the blank ones
        if rows != filled:
            raise InputError(
                f"{filled} lines below the header were read as {rows} rows: write the file again"
            )


def _check_lines(data: bytes, columns: int) -> None:
    """Refuse the first line with more or fewer cells than the header, or one that is not UTF-8."""
    for number, line in _lines(data):
        cells = 1 + (re.sub('"[^"]*"', "", line) if '"' in line else line).count(",")
        if cells != columns:
            raise InputError(f"line {number} has {cells} values, but the header names {columns} columns")
    _check_utf8(data)


def _check_utf8(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = _line(data, error.start)
        raise InputError(f"line {line} is not UTF-8: write the file in that encoding") from None


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number; a byte is a character."""
    for number, line in enumerate(io.TextIOWrapper(io.BytesIO(data), "latin-1"), 1):
        if line.strip():
            yield number, line


def _line(data: bytes, place: int) -> int:
    """The number of the line that this byte stands in, from 1."""
    pieces = (np.frombuffer(data, np.uint8, min(BLOCK, place - at), at) for at in range(0, place, BLOCK))
    ends = sum(int(np.count_nonzero(piece == ord("\n"))) for piece in pieces)
    returns = data.count(b"\r", 0, place) - data.count(b"\r\n", 0, place) if b"\r" in data else 0
    return 1 + ends + returns


def _numbers(name: str, cells: pyarrow.ChunkedArray, data: bytes) -> np.ndarray:
    """The column as numbers; an InputError names the line of a cell that is no number."""
    if pyarrow.types.is_floating(cells.type):
        return cells.to_numpy()
    try:
        return compute.utf8_trim_whitespace(cells).cast("float64").to_numpy()
    except pyarrow.ArrowInvalid:
        pass
    numbers = np.empty(len(cells))
    for row, value in enumerate(cells.to_pylist()):
        try:
            numbers[row] = parse_number(value)
        except ValueError:
            line = [number for number, _ in _lines(data)][row + 1]
            wrong = f"has {shown(value)}" if value.strip() else "is blank"
            raise InputError(f"column {shown(name)} must hold numbers only: line {line} {wrong}") from None
    return numbers


def _holds_numbers(cells: pyarrow.ChunkedArray) -> bool:
    """Whether some cell is a number, or blank where one should be."""
    try:
        compute.utf8_trim_whitespace(cells).cast("float64")
    except pyarrow.ArrowInvalid:
        return any(_is_number(value) or not value.strip() for value in distinct(cells)[1])
    return True


def _is_number(value: str) -> bool:
    try:
        parse_number(value)
    except ValueError:
        return False
    return True


def _column(name: str, cells: pyarrow.ChunkedArray, budget: Budget) -> np.ndarray:
    """The column as `_with_gaps` reads it; through Arrow, which is faster, where the result is the same."""
    for kind in ("int64", "float64"):
        try:
            numbers = cells.cast(kind).to_numpy()
        except pyarrow.ArrowInvalid:
            continue
        if (
            not compute.any(compute.match_substring_regex(cells, NOT_PLAIN)).as_py()
            and not np.isnan(numbers).any()
        ):
            return numbers
        break
    codes, values = distinct(cells)
    typed = _with_gaps(values)
    return repeat(name, codes, values, budget) if typed is None else typed[codes]


def _with_gaps(values: list[str]) -> np.ndarray | None:
    """As `_typed`; a blank among numbers is NaN.

    >>> _with_gaps(["1", "", "2.5"]), _with_gaps(["", " "])
    (array([1. , nan, 2.5]), None)
    """
    there = [value for value in values if value.strip()]
    typed = _typed(there)
    if len(there) == len(values) or typed is None or typed.dtype == bool or not there:
        return typed if len(there) == len(values) else None
    if typed.dtype.kind == "i" and np.abs(typed).max() >= EXACT:
        return None  # as numbers with gaps they would lose digits
    numbers = iter(typed.astype(np.float64).tolist())
    return np.array([next(numbers) if value.strip() else np.nan for value in values])


def _typed(values: list[str]) -> np.ndarray | None:
    """Text as booleans, integers or numbers; None for other text: 007 and 1_000 are names, not numbers.

    >>> _typed(["1", "2"]), _typed(["1", "0.5"]), _typed(["true", "False"]), _typed(["007", "1"])
    (array([1, 2]), array([1. , 0.5]), array([ True, False]), None)
    """
    if {value.lower() for value in values} <= {"true", "false"}:
        return np.array([value.lower() == "true" for value in values])
    if any(re.match(r"\s*[+-]?0\d", value) for value in values):
        return None
    try:
        return np.array([_integer(value) for value in values])
    except (ValueError, OverflowError):
        pass
    if any(re.fullmatch(r"\s*[+-]?\d{16,}\s*", value) for value in values):
        return None  # a float would lose digits
    try:
        return np.array([parse_number(value) for value in values])
    except ValueError:
        return None


def _integer(value: str) -> np.int64:
    if "_" in value or not value.isascii():
        raise ValueError(value)
    return np.int64(value)
