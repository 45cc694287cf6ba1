"""A parquet file as columns by name: its metadata is compared with the budget before anything is unpacked."""

from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet, types

from calmoe.errors import InputError, shown
from calmoe.formats.budget import CELL, COLUMN, Budget
from calmoe.formats.naming import check_names
from calmoe.formats.text import distinct, repeat

BATCH = 2**17  # rows


def read(path: Path, budget: Budget) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as stream:  # pyarrow takes no path that is not UTF-8
            file = parquet.ParquetFile(stream)
            _check(file, budget)
            text = [field.name for field in file.schema_arrow if _is_text(field.type)]
            # repeated text stays a dictionary: a small file can repeat a long one very often
            table = _unpacked(parquet.ParquetFile(stream, read_dictionary=text), budget)
            table.validate(full=True)  # a damaged file points outside its dictionaries
            stored = dict(zip(table.column_names, table.columns, strict=True))
            return {name: _plain(name, column, budget) for name, column in stored.items()}
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"not a readable parquet file ({reason})") from None


def _check(file: parquet.ParquetFile, budget: Budget) -> None:
    """Refuse a table that would be too large, and columns that are not plain."""
    schema, metadata = file.schema_arrow, file.metadata
    check_names(schema.names)
    for field in schema:
        kind = _kind(field.type)
        numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        if not (numeric or types.is_boolean(kind) or _is_text(kind)):
            raise InputError(
                f"column {shown(field.name)} holds {kind}: give booleans, numbers or strings, or leave it out"
            )
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if min((group.num_rows for group in groups), default=0) < 0 or metadata.num_rows != _rows(metadata):
        raise InputError("not a readable parquet file (its parts do not have the rows that it names)")
    pages = sum(max(0, group.total_byte_size) for group in groups)
    cells = metadata.num_rows * len(schema) * CELL
    budget.spend(max(pages, cells) + len(schema) * (1 + len(groups)) * COLUMN)


def _rows(metadata: parquet.FileMetaData) -> int:
    return sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))


def _unpacked(file: parquet.ParquetFile, budget: Budget) -> pyarrow.Table:
    """The whole table, read batch by batch: the budget holds even where the metadata lie."""
    batches, length = [], 0
    for batch in file.iter_batches(batch_size=BATCH, use_threads=False):
        length += sum(getattr(column, "indices", column).nbytes for column in batch.columns)
        budget.check(length)
        batches.append(batch)
    return pyarrow.Table.from_batches(batches, batches[0].schema if batches else file.schema_arrow)


def _kind(stored: pyarrow.DataType) -> pyarrow.DataType:
    """The type of the values; for categories, of the values that they stand for."""
    return stored.value_type if types.is_dictionary(stored) else stored


def _is_text(stored: pyarrow.DataType) -> bool:
    return str(_kind(stored)) in ("string", "large_string", "string_view")


def _plain(name: str, column: pyarrow.ChunkedArray, budget: Budget) -> np.ndarray:
    """A column of booleans, numbers or text; categories become the values that they stand for."""
    if column.null_count:
        raise InputError(f"column {shown(name)} has {column.null_count} missing values")
    if types.is_decimal(_kind(column.type)):
        return column.cast("float64").to_numpy()
    if _is_text(column.type):
        return repeat(name, *distinct(column), budget)
    return column.to_numpy()
