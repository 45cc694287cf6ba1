"""Arrow's columns as plain arrays, and tables in memory: DataFrames, Arrow tables, dicts of arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute, types
from torch import Tensor

from calmoe.arrays import EXACT, as_numpy
from calmoe.errors import InputError, shown
from calmoe.formats.budget import Budget
from calmoe.formats.naming import LABELS, Named, check_names, is_numeric
from calmoe.formats.text import distinct, repeat


def refuse_kind(name: str, stored: pyarrow.DataType) -> InputError | None:
    """Why a column of this type is refused, if it is."""
    kind = kind_of(stored)
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if numeric or types.is_boolean(kind) or is_text(kind) or is_date(kind):
        return None
    return InputError(
        f"column {shown(name)} holds {kind}: give booleans, numbers, dates or strings, or name those columns "
        "that are groups with --groups"
    )


def kind_of(stored: pyarrow.DataType) -> pyarrow.DataType:
    """The type of the values; for categories, of the values that they stand for."""
    return stored.value_type if types.is_dictionary(stored) else stored


def is_text(stored: pyarrow.DataType) -> bool:
    return str(kind_of(stored)) in ("string", "large_string", "string_view")


def is_date(stored: pyarrow.DataType) -> bool:
    return types.is_timestamp(stored) or types.is_date(stored)


def plain(name: str, column: pyarrow.ChunkedArray, budget: Budget) -> np.ndarray:
    """A column of booleans, numbers or text; categories become the values that they stand for.

    Dates become text. A missing number is NaN, other missing values are blank text; none may be missing in
    probabilities and labels.
    """
    if column.null_count:
        if is_numeric(name) or name in LABELS:
            raise InputError(f"column {shown(name)} has {column.null_count} missing values")
        column = _filled(column)
    if is_date(column.type):
        column = column.cast("string")
    if types.is_decimal(kind_of(column.type)):
        return column.cast("float64").to_numpy()
    if is_text(column.type):
        return repeat(name, *distinct(column), budget)
    return column.to_numpy()


def _filled(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Without nulls: NaN among numbers, blanks among all else."""
    kind = kind_of(column.type)
    if types.is_dictionary(column.type):
        column = column.cast(kind)
    if types.is_integer(kind) and largest(column) >= EXACT:
        return column.cast("large_string").fill_null("")  # as numbers with gaps they would lose digits
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return column.cast("float64").fill_null(float("nan"))
    return column.cast("large_string").fill_null("")


def largest(column: pyarrow.ChunkedArray) -> int:
    """The largest size of whole numbers; 0 where there are none."""
    least, most = compute.min_max(column).as_py().values()
    return max(abs(least), abs(most)) if least is not None else 0


def columns_of(source: Any, limit: int | None = None, lenient: bool = False) -> Named:
    """The columns of a DataFrame, of anything that speaks Arrow, or of a dict of arrays.

    lenient: a column that cannot be read is refused only where it is used.

    >>> columns_of({"prob_1": [0.25, 0.75], "site": ["a", "b"]})["site"]
    array(['a', 'b'], dtype='<U1')
    """
    if isinstance(source, Mapping):
        return {_named(name): _array(name, values) for name, values in source.items()}
    table = _table(source)
    check_names(table.column_names)
    budget = Budget(table.nbytes, limit)
    columns: Named = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if str(column.type) == "string_view":
            column = column.cast("large_string")
        refused = refuse_kind(name, column.type)
        try:
            columns[name] = plain(name, column, budget) if refused is None else refused
        except InputError as error:
            columns[name] = refused = error
        if refused is not None and not lenient:
            raise refused
    return columns


def _table(source: Any) -> pyarrow.Table:
    try:
        if type(source).__module__.partition(".")[0] == "pandas":
            return pyarrow.Table.from_pandas(source, preserve_index=False)  # the index is no column
        return source if isinstance(source, pyarrow.Table) else pyarrow.table(source)
    except Exception as error:  # whatever pandas, polars and others raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"expected a path, a DataFrame, an Arrow table or a dict of arrays, got {type(source).__name__} "
            f"({reason})"
        ) from None


def _named(name: Any) -> str:
    if not isinstance(name, str):
        raise InputError(f"arrays must have names of text, not {shown(name)}")
    return name


def _array(name: str, values: Any) -> np.ndarray:
    array = as_numpy(values) if isinstance(values, Tensor) else _as_array(name, values)
    if array.dtype == object:
        kinds = {type(value) for value in array.flat}
        if kinds not in ({str}, {bool}):
            raise InputError(f"array {shown(name)} must hold booleans, numbers or strings, all of one kind")
        array = np.array(array.tolist())
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _as_array(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(f"array {shown(name)} is not rectangular: give one value a row") from None
