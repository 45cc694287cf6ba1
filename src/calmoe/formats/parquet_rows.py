"""Parquet files read as one table, some rows at a time: whatever their size, little of them is in memory."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow
from pyarrow import compute

from calmoe.errors import InputError, about, shown
from calmoe.files import legible
from calmoe.formats.arrow import is_text, kind_of, plain
from calmoe.formats.budget import CELL, Budget
from calmoe.formats.classes import MOST_CLASSES
from calmoe.formats.columns import listed
from calmoe.formats.naming import Named
from calmoe.formats.parquet import odd_columns, opened, rows_of

CELLS = 2**22  # of a batch: 32 MiB as numbers
MOST_ROWS = 2**16  # of a batch
BUFFER = 2**20  # bytes of a column that are read ahead; without it pyarrow holds whole row groups
PER_BATCH = 2**25  # bytes: a batch may unpack to 32 times that, as a file of this length may


class _File(NamedTuple):
    path: Path
    rows: int
    kinds: dict[str, str]  # of columns, by name
    ends: list[int]  # of row groups, counted in rows
    footer: bytes


class ParquetRows:
    """Files with the same columns, as one table in the order in which they are given.

    lenient: a column that cannot be read is refused only where it is used.
    """

    def __init__(self, paths: Sequence[Path], lenient: bool = False) -> None:
        self.lenient = lenient
        seen: set[Path] = set()
        for path in paths:
            if path.resolve() in seen:
                raise InputError(f"{legible(path)} is given twice: its rows would count twice")
            seen.add(path.resolve())
        self.files = [_opened(path, lenient) for path in paths]
        if not len(self):
            raise InputError(f"{legible(paths[0])}: there are no rows")
        first = self.files[0]
        for file in self.files[1:]:
            if list(file.kinds.items()) != list(first.kinds.items()):
                raise InputError(
                    f"{legible(file.path)}: {_difference(file.kinds, first.kinds)}, unlike "
                    f"{legible(first.path)}: give parts of one table"
                )

    def __len__(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def names(self) -> list[str]:
        return list(self.files[0].kinds)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the files' footers, which know every part of a file by its place, length and range."""
        together = hashlib.sha256()
        for file in self.files:
            together.update(hashlib.sha256(file.footer).digest())
        return together.hexdigest()

    def distinct(self, column: str) -> np.ndarray:
        """The different values of a column of labels, sorted; more than there can be classes are refused."""
        seen: set[object] = set()
        for file in self.files:
            with about(legible(file.path)), _reading(file.path) as stream:
                reader = opened(stream, buffer_size=BUFFER)
                for batch in reader.iter_batches(MOST_ROWS, columns=[column], use_threads=False):
                    values = compute.unique(batch.column(0))
                    seen |= set(plain(column, pyarrow.chunked_array([values]), Budget(PER_BATCH)).tolist())
                    if len(seen) > MOST_CLASSES:
                        raise InputError(
                            f"labels {shown(column)} have more than {MOST_CLASSES:,} different values: name "
                            "another column"
                        )
        return np.unique(np.array(list(seen)))

    def batches(self, first: int, last: int, most: int = MOST_ROWS) -> Iterator[tuple[int, Named]]:
        """Rows first to last, without the last, some at a time: the number of the first of them, columns."""
        rows = max(1, min(most, CELLS // max(len(self.names), 1)))
        begin = 0
        for file in self.files:
            low, high = max(first - begin, 0), min(last - begin, file.rows)
            if low < high:
                with about(legible(file.path)), _reading(file.path) as stream:
                    for start, columns in self._part(file, stream, low, high, rows):
                        yield begin + start, columns
            begin += file.rows

    def _part(
        self, file: _File, stream: BinaryIO, low: int, high: int, rows: int
    ) -> Iterator[tuple[int, Named]]:
        """Rows low to high of one file; row groups before and after them are not read."""
        starts = [0, *file.ends[:-1]]
        groups = [i for i, (a, b) in enumerate(zip(starts, file.ends, strict=True)) if a < high and b > low]
        schema = opened(stream).schema_arrow
        text = [field.name for field in schema if is_text(field.type)]
        reader = opened(stream, read_dictionary=text, buffer_size=BUFFER)
        odd = odd_columns(reader)
        wanted = [name for name in file.kinds if name not in odd]
        at = starts[groups[0]]
        for batch in reader.iter_batches(rows, row_groups=groups, columns=wanted, use_threads=False):
            begin, end = max(low - at, 0), min(high - at, len(batch))
            at += len(batch)
            if begin < end:
                part = batch.slice(begin, end - begin)
                part.validate(full=True)  # a damaged file points outside its dictionaries
                yield at - len(batch) + begin, {**self._columns(part), **odd}
        if at < high:
            raise InputError("not a readable parquet file (it has fewer rows than it says)")

    def _columns(self, batch: pyarrow.RecordBatch) -> Named:
        budget = Budget(PER_BATCH)
        columns: Named = {}
        budget.spend(batch.num_rows * batch.num_columns * CELL)
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            try:
                columns[name] = plain(name, pyarrow.chunked_array([values]), budget)
            except InputError as error:
                if not self.lenient:
                    raise
                columns[name] = error
        return columns


def _opened(path: Path, lenient: bool) -> _File:
    """What the footer of a file says, checked."""
    with about(legible(path)):
        if path.suffix != ".parquet":
            raise InputError("only parquet files are read in parts: write the table as parquet")
        if not path.is_file():
            raise InputError("not a file: give a parquet file" if path.exists() else "no such file")
        with _reading(path) as stream:
            file = opened(stream)
            if (odd := odd_columns(file)) and not lenient:
                raise next(iter(odd.values()))
            rows = rows_of(file)
            ends = np.cumsum(
                [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            )
            kinds = {field.name: str(kind_of(field.type)) for field in file.schema_arrow}
            stream.seek(-8, 2)
            length = int.from_bytes(stream.read(4), "little")
            stream.seek(-8 - length, 2)
            return _File(path, rows, kinds, [int(end) for end in ends], stream.read(length))


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as stream:  # pyarrow takes no path that is not UTF-8
            yield stream
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"not a readable parquet file ({reason})") from None


def _difference(kinds: dict[str, str], others: dict[str, str]) -> str:
    """In words what the columns of one file have that those of another have not.

    >>> _difference({"a": "float", "b": "int64"}, {"a": "float"})
    'it has columns that are new (b)'
    """
    if more := [name for name in kinds if name not in others]:
        return f"it has columns that are new ({listed(more)})"
    if fewer := [name for name in others if name not in kinds]:
        return f"it lacks columns ({listed(fewer)})"
    if odd := [name for name in kinds if kinds[name] != others[name]]:
        return f"it holds {kinds[odd[0]]} and not {others[odd[0]]} in column {listed(odd[:1])}"
    return "its columns stand in another order"
