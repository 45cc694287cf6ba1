"""Any table as named columns of three kinds: numbers, dates and text.

A table is a pandas DataFrame, anything with Arrow inside (`__arrow_c_stream__`: polars, pyarrow, DuckDB), a
mapping of names to columns, or a rectangular array, whose columns are then named x0, x1, …
"""

import datetime
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from calmoe.arrays import EXACT
from calmoe.errors import InputError, shown
from calmoe.formats.arrow import largest
from calmoe.prediction_checks import NO_VALUE

Columns: TypeAlias = dict[str, np.ndarray]
"""float64 with NaN, datetime64[us] with NaT, or objects: a text or None."""

DAY = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?Z?")
WHOLE = re.compile(r"[+-]?\d{16,300}")  # a name rather than a number, where a float would lose digits
NUMBER = re.compile(r"[+-]?(0|[1-9]\d*|0?\.\d+|(0|[1-9]\d*)\.\d*)([eE][+-]?\d{1,3})?")


def is_table(values: Any) -> bool:
    """Whether the columns have names: no array and no list of rows."""
    mapping = isinstance(values, Mapping) and not hasattr(values, "toarray")  # SciPy's dok arrays are dicts
    return mapping or _is_series(values) or _is_pandas(values) or hasattr(values, "__arrow_c_stream__")


def read_columns(table: Any) -> Columns:
    """The columns by name, each of one kind.

    >>> columns = read_columns({"age": [31, None], "town": ["Łódź", ""], "paid": [True, False]})
    >>> columns["age"], columns["town"], columns["paid"]
    (array([31., nan]), array(['Łódź', None], dtype=object), array(['True', 'False'], dtype=object))
    """
    if _is_series(table):
        raise InputError(
            f"a {type(table).__name__} is one column: give a table, such as a DataFrame with all columns"
        )
    if isinstance(table, Mapping) and is_table(table):
        pairs = [(name, _listed(name, values)) for name, values in table.items()]
    elif _is_pandas(table):
        pairs = [(name, _series(table.iloc[:, i])) for i, name in enumerate(table.columns)]
    elif hasattr(table, "__arrow_c_stream__"):
        pairs = _arrow(table)
    else:
        array = np.asarray(table)
        if array.ndim != 2:
            raise InputError(f"a table has rows and columns: give an array [N, D], not {list(array.shape)}")
        pairs = [(f"x{i}", array[:, i]) for i in range(array.shape[1])]
    names = [str(name) for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two columns are named {shown(twice)}: rename one")
    if not pairs:
        raise InputError("the table has no columns: give at least one")
    columns = {name: canonical(name, values) for name, (_, values) in zip(names, pairs, strict=True)}
    if len({len(column) for column in columns.values()}) > 1:
        raise InputError("the columns differ in length: give one value a row to each")
    return columns


def canonical(name: str, values: np.ndarray) -> np.ndarray:
    """One column as numbers, dates or text."""
    kind = values.dtype.kind
    if values.ndim != 1:
        raise InputError(f"column {shown(name)} must hold one value a row")
    if kind in "iu" and len(values) and max(int(values.max()), -int(values.min())) >= EXACT:
        return _objects(name, values.astype(str).astype(object))
    if kind in "iuf":
        return _finite(name, values.astype(np.float64))
    if kind == "M":
        return values.astype("datetime64[us]")
    if kind == "m":
        seconds = values / np.timedelta64(1, "s")
        return _finite(name, seconds.astype(np.float64))
    if kind == "c":
        raise InputError(f"Complex data not supported: column {shown(name)} holds complex numbers")
    return _objects(name, values)


def as_text(value: Any) -> str | None:
    """A value as the name of a category; None where it is missing. 3 and 3.0 are the same category."""
    if _is_missing(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value.decode(errors="replace") if isinstance(value, bytes) else value).strip()


def numbers_in(texts: Iterable[str | None]) -> np.ndarray | None:
    """The numbers that the texts spell; None where one of them is a word, or a code such as 007.

    >>> numbers_in(["1.5", "?", None]), numbers_in(["1.5", "many"]), numbers_in(["007"])
    (array([1.5, nan, nan]), None, None)
    """
    known: dict[str | None, float] = {None: math.nan}
    texts = list(texts)
    for text in set(texts):
        if text is not None and text.casefold() in NO_VALUE:
            known[text] = math.nan
        elif text is not None:
            if not NUMBER.fullmatch(text) or (WHOLE.fullmatch(text) and abs(int(text)) >= EXACT):
                return None
            known[text] = float(text)
    numbers = np.array([known[text] for text in texts], dtype=np.float64)
    return None if np.isnan(numbers).all() or np.isinf(numbers).any() else numbers


def dates_in(texts: Iterable[str | None]) -> np.ndarray | None:
    """The days or times, written as 2026-11-16 or 2026-11-16T17:30; None where one of them is none.

    >>> dates_in(["2026-11-16", None])
    array(['2026-11-16T00:00:00.000000', 'NaT'], dtype='datetime64[us]')
    """
    texts = list(texts)
    known: dict[str | None, str] = {None: "NaT"}
    for text in set(texts):
        if text is not None and text.casefold() in NO_VALUE:
            known[text] = "NaT"
        elif text is not None:
            if not DAY.fullmatch(text):
                return None
            known[text] = text.rstrip("Z")
    try:
        dates = np.array([known[text] for text in texts], dtype="datetime64[us]")
    except ValueError:  # such as the 31st of June
        return None
    return None if np.isnat(dates).all() else dates


def _is_pandas(values: Any) -> bool:
    return hasattr(values, "iloc") and hasattr(values, "columns") and hasattr(values, "dtypes")


def _is_series(values: Any) -> bool:
    """Whether this is one column of pandas or polars."""
    return type(values).__name__ == "Series" and hasattr(values, "to_numpy")


def _series(series: Any) -> np.ndarray:
    """A pandas Series as an array; extension types without their wrapping."""
    kind = getattr(series.dtype, "kind", "O")
    if isinstance(series.dtype, np.dtype):
        return series.to_numpy()
    if kind in "iu" and int(series.abs().max() if series.notna().any() else 0) >= EXACT:
        return series.astype("string").astype(object).where(series.notna(), None).to_numpy()
    if kind in "iuf":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if kind == "M":
        series = series.dt.tz_convert("UTC").dt.tz_localize(None) if series.dt.tz is not None else series
        return series.to_numpy(dtype="datetime64[us]")
    return series.astype(object).to_numpy(dtype=object)


def _arrow(table: Any) -> list[tuple[str, np.ndarray]]:
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        table = pa.table(table)
    pairs = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) and largest(column) >= EXACT:
            values = _listed(name, column.cast(pa.string()).to_pylist())
        elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            values = column.cast(pa.float64(), safe=False).to_numpy()
        elif pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            values = column.cast(pa.timestamp("us"), safe=False).to_numpy()
        else:
            values = _listed(name, _plain(name, column))
        pairs.append((name, np.asarray(values)))
    return pairs


def _plain(name: Any, column: Any) -> list[Any]:
    """The values of an Arrow column, as Python has them."""
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):  # such as a time of more than 24 hours
        raise InputError(f"column {shown(name)} holds values of {column.type} that Python has not") from None


def _listed(name: Any, values: Any) -> np.ndarray:
    """A column that came as an array, a Series or a list."""
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "iloc"):
        return _series(values)
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"column {shown(name)} is one value, {shown(values, 60)}: give one a row, in a list")
    listed = list(values)
    column = np.empty(len(listed), dtype=object)
    column[:] = listed
    return column


def _objects(name: str, values: np.ndarray) -> np.ndarray:
    """Python objects: numbers or dates where all of them are, else text."""
    listed = values.tolist()
    kinds = {type(value) for value in listed if not _is_missing(value)}
    if kinds and all(issubclass(kind, Real | Decimal) and kind is not bool for kind in kinds):
        numbers = np.array([math.nan if _is_missing(value) else _as_float(value) for value in listed])
        names = any(isinstance(value, int) and abs(value) >= EXACT for value in listed)
        if not names or np.isinf(numbers).any():
            return _finite(name, numbers)
    if kinds and all(issubclass(kind, datetime.date) for kind in kinds):
        dates = ["NaT" if _is_missing(value) else _naive(value) for value in listed]
        return np.array(dates, dtype="datetime64[us]")
    column = np.empty(len(listed), dtype=object)
    column[:] = [as_text(value) for value in listed]
    return column


def _as_float(value: Any) -> float:
    """The nearest float; infinity for what is larger than any."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _naive(date: datetime.date) -> str:
    """A day, or a time in UTC, as ISO text."""
    if isinstance(date, datetime.datetime) and date.tzinfo is not None:
        date = date.astimezone(datetime.UTC).replace(tzinfo=None)
    return date.isoformat()


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT, pandas' NA and blank text."""
    if value is None:
        return True
    if isinstance(value, str | bytes):
        return not value.strip()
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # NA is neither; an array in a cell is a value
        return type(value).__name__ == "NAType"


def _finite(name: str, numbers: np.ndarray) -> np.ndarray:
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(infinite.argmax())
        raise InputError(
            f"column {shown(name)} contains infinity in row {row}: put a number there, or leave it empty"
        )
    return numbers
