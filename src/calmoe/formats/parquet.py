"""A parquet file as columns by name: its metadata is compared with the budget before anything is unpacked."""

from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
from pyarrow import parquet

from calmoe.errors import InputError
from calmoe.formats.arrow import is_text, plain, refuse_kind
from calmoe.formats.budget import CELL, COLUMN, Budget
from calmoe.formats.naming import Named, check_names

BATCH = 2**17  # rows


def read(path: Path, budget: Budget, lenient: bool = False) -> Named:
    """Columns by name; lenient: a column that cannot be read is refused only where it is used."""
    try:
        with path.open("rb") as stream:  # pyarrow takes no path that is not UTF-8
            file = opened(stream)
            odd = odd_columns(file)
            if odd and not lenient:
                raise next(iter(odd.values()))
            _check(file, budget)
            text = [field.name for field in file.schema_arrow if is_text(field.type)]
            # repeated text stays a dictionary: a small file can repeat a long one very often
            file = opened(stream, read_dictionary=text)
            wanted = [name for name in file.schema_arrow.names if name not in odd] if odd else None
            table = _unpacked(file, wanted, budget)
            table.validate(full=True)  # a damaged file points outside its dictionaries
            columns: Named = {}
            for name, column in zip(table.column_names, table.columns, strict=True):
                try:
                    columns[name] = plain(name, column, budget)
                except InputError as error:
                    if not lenient:
                        raise
                    columns[name] = error
            return columns | odd
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"not a readable parquet file ({reason})") from None


def opened(stream: BinaryIO, **options: Any) -> parquet.ParquetFile:
    """No thread reads ahead: one that outlives a refusal ends the process badly."""
    return parquet.ParquetFile(stream, pre_buffer=False, **options)


def odd_columns(file: parquet.ParquetFile) -> dict[str, InputError]:
    """Columns that are not plain, and what to say of each."""
    check_names(file.schema_arrow.names)
    refusals = {field.name: refuse_kind(field.name, field.type) for field in file.schema_arrow}
    return {name: error for name, error in refusals.items() if error is not None}


def _check(file: parquet.ParquetFile, budget: Budget) -> None:
    """Refuse a table that would be too large."""
    columns, groups = len(file.schema_arrow), _groups(file)
    pages = sum(max(0, group.total_byte_size) for group in groups)
    cells = rows_of(file) * columns * CELL
    budget.spend(max(pages, cells) + columns * (1 + len(groups)) * COLUMN)


def rows_of(file: parquet.ParquetFile) -> int:
    """How many rows the file says that it has; an error where its parts do not add up to them."""
    parts = [group.num_rows for group in _groups(file)]
    if min(parts, default=0) < 0 or file.metadata.num_rows != sum(parts):
        raise InputError("not a readable parquet file (its parts do not have the rows that it names)")
    return int(file.metadata.num_rows)


def _groups(file: parquet.ParquetFile) -> list[parquet.RowGroupMetaData]:
    return [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]


def _unpacked(file: parquet.ParquetFile, wanted: list[str] | None, budget: Budget) -> pyarrow.Table:
    """The table (these columns, if given) batch by batch: the budget holds even where the metadata lie."""
    batches, length = [], 0
    for batch in file.iter_batches(batch_size=BATCH, columns=wanted, use_threads=False):
        length += sum(getattr(column, "indices", column).nbytes for column in batch.columns)
        budget.check(length)
        batches.append(batch)
    return pyarrow.Table.from_batches(batches, batches[0].schema if batches else file.schema_arrow)
