"""Preparation: from a table as people have it to numbers as models want them, without a look at the labels.

Numbers are filled in with their median, centred and scaled; categories become indicators; dates become days,
months, weekdays and hours. A column in which something is missing gets an indicator that says where. Columns
that say nothing, constant ones and copies of others, are left out. The state is plain JSON.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from calmoe.errors import InputError, shown
from calmoe.models.columns import Columns, as_text, dates_in, numbers_in, read_columns
from calmoe.validation import items, number, one_of, table, text, whole

KINDS = ("number", "category", "date")
MOST_CATEGORIES = 64
LEAST_SHARE = 0.002  # of the rows: a rarer category counts as "other"
LARGEST = 1e150  # of numbers: their squares are finite
LINEAR = 3.0  # scaled numbers beyond ±3 grow like a logarithm: no row is far from all others
PARTS = ("month", "weekday", "hour")


@dataclass(frozen=True, kw_only=True)
class Column:
    """What was learned about one column. `dropped` says why it is left out, if it is."""

    name: str
    kind: str
    missing: int = 0  # rows, when fitted
    median: float = 0.0  # of numbers, or of days since 1970
    scale: float = 1.0
    levels: tuple[str, ...] = ()
    others: int = 0  # categories that are not levels of their own
    dropped: str = ""

    @property
    def features(self) -> list[str]:
        """The names of what `encode` gives."""
        absent = [f"{self.name} missing"]
        if self.kind == "category":
            return [*(f"{self.name}={level}" for level in self.levels), f"{self.name} other", *absent]
        parts = [f"{self.name} {part}" for part in PARTS] if self.kind == "date" else []
        return [self.name, *parts, *absent]

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The column as numbers, one column a feature. [N, features]"""
        if self.kind == "category":
            place = {level: i for i, level in enumerate(self.levels)} | {None: len(self.levels) + 1}
            codes = np.array([place.get(value, len(self.levels)) for value in values], dtype=np.intp)
            return np.eye(len(self.levels) + 2, dtype=np.float32)[codes]
        parts = []
        if self.kind == "date":
            absent, parts = np.isnat(values), _date_parts(values)
            values = np.where(absent, np.nan, values.astype(np.float64) / 86_400e6)
        absent = np.isnan(values)
        filled_in = np.where(absent, self.median, np.clip(values, -LARGEST, LARGEST))
        scaled = squash((filled_in - self.median) / self.scale)
        filled = [np.where(absent, 0.0, part) for part in parts]
        return np.stack([scaled, *filled, absent], axis=1).astype(np.float32)


@dataclass
class Preparation:
    """Learn how to prepare a table with `fit`; `transform` then gives float32 [N, features].

    Args:
        columns: What is known of each column; `fit` finds it.
        kept: Which of all columns' features are kept; `fit` finds it.

    Example:
        >>> table = {"age": [25, 40, None, 61], "town": ["Łódź", "Kraków", "Łódź", "Łódź"], "unit": ["m"] * 4}
        >>> preparation = Preparation().fit(table)
        >>> preparation.features
        ['age', 'age missing', 'town=Kraków', 'town=Łódź']
        >>> preparation.transform({"age": [33], "town": ["Gdańsk"]})
        array([[-0.2623..., 0. , 0. , 0. ]], dtype=float32)
        >>> print(preparation.describe())
        age: number, 1 missing
        town: category, 2 values
        unit: left out, it is constant
    """

    columns: list[Column] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)  # of all columns' features

    def fit(self, table: Any, weights: np.ndarray | None = None) -> Self:
        """Learn from a `table`; a row of weight 2 in `weights` [N] counts as two rows."""
        columns = read_columns(table)
        rows = len(next(iter(columns.values())))
        if rows == 0:
            raise InputError("the table has no rows: give at least one")
        weights = np.ones(rows) if weights is None else np.asarray(weights, dtype=np.float64)
        first: dict[tuple[str, bytes], str] = {}
        self.columns, encoded = [], []
        for name, given in columns.items():
            kind, values = _understood(given)
            column = _learn(name, kind, values, weights)
            matrix = column.encode(values)
            twin = first.setdefault((kind, _content(values)), name)
            if (matrix == matrix[0]).all():
                column = Column(name=name, kind=kind, dropped="it is constant")
            elif twin != name:
                column = Column(name=name, kind=kind, dropped=f"it repeats {shown(twin)}")
            else:
                encoded.append(matrix)
            self.columns.append(column)
        self.kept = _telling(np.concatenate(encoded, axis=1)) if encoded else []
        return self

    def transform(self, table: Any) -> np.ndarray:
        """The rows of `table`, prepared, float32 [N, features]; columns that are new are not looked at."""
        if not self.columns:
            raise InputError("this Preparation is not fitted: call fit(table) first")
        columns = read_columns(table)
        rows = len(next(iter(columns.values())))
        encoded = [column.encode(_as_fitted(column, columns)) for column in self._used]
        if not encoded:
            return np.zeros((rows, 0), dtype=np.float32)
        return np.ascontiguousarray(np.concatenate(encoded, axis=1)[:, self.kept])

    def unknown(self, table: Any) -> dict[str, int]:
        """By categorical column: in how many rows of `table` it has a value that was in no row of `fit`.

        Columns with so many values that some counted as "other" even then are left out.

        >>> preparation = Preparation().fit({"town": ["Łódź", "Kraków", "Łódź", "Łódź"]})
        >>> preparation.unknown({"town": ["Gdańsk", "Łódź", None]})
        {'town': 1}
        """
        columns, counts = read_columns(table), {}
        for column in self._used:
            if column.kind == "category" and not column.others:
                known = {*column.levels, None}
                counts[column.name] = sum(value not in known for value in _as_fitted(column, columns))
        return counts

    @property
    def features(self) -> list[str]:
        """The names of the prepared columns."""
        names = [name for column in self._used for name in column.features]
        return [names[i] for i in self.kept]

    def describe(self) -> str:
        """What was understood, a line a column."""
        return "\n".join(map(_described, self.columns))

    def as_dict(self) -> dict[str, Any]:
        """The state, as JSON holds it."""
        return {
            "columns": [asdict(column) | {"levels": list(column.levels)} for column in self.columns],
            "kept": self.kept,
        }

    @classmethod
    def from_dict(cls, saved: Any) -> "Preparation":
        """The preparation that `as_dict` gave as `saved`; an InputError where it cannot be one."""
        saved = table("preparation", saved, ("columns", "kept"))
        columns = [_read_column(each) for each in items("columns", saved["columns"], least=1)]
        preparation = cls(columns)
        width = sum(len(column.features) for column in preparation._used)
        kept = items("kept", saved["kept"], most=width)
        preparation.kept = [whole("kept", i, most=width - 1) for i in kept]
        return preparation

    @property
    def _used(self) -> list[Column]:
        return [column for column in self.columns if not column.dropped]


def squash(scaled: np.ndarray) -> np.ndarray:
    """z up to ±3, beyond it ±3 (1 + log |z| / 3): in order, and without corners.

    >>> squash(np.array([-1.0, 3.0, 3e6]))
    array([-1.        ,  3.        , 44.446531...])
    """
    size = np.maximum(np.abs(scaled), LINEAR)
    return np.where(np.abs(scaled) <= LINEAR, scaled, np.sign(scaled) * LINEAR * (1 + np.log(size / LINEAR)))


def weighted_quantiles(values: np.ndarray, weights: np.ndarray, shares: Iterable[float]) -> list[float]:
    """The smallest values with at least these shares of the weight at or below them."""
    order = np.argsort(values, kind="stable")
    heights = np.cumsum(weights[order])
    places = np.searchsorted(heights, [share * heights[-1] for share in shares])
    return [float(values[order[min(place, len(order) - 1)]]) for place in places]


def _understood(values: np.ndarray) -> tuple[str, np.ndarray]:
    """The kind of a column, and its values; text that spells numbers or dates counts as such."""
    if values.dtype.kind == "f":
        return "number", values
    if values.dtype.kind == "M":
        return "date", values
    for kind, reading in (("number", numbers_in(values)), ("date", dates_in(values))):
        if reading is not None:
            return kind, reading
    return "category", values


def _learn(name: str, kind: str, values: np.ndarray, weights: np.ndarray) -> Column:
    if kind == "category":
        names, codes = np.unique([value or "" for value in values], return_inverse=True)
        shares = np.bincount(codes, weights, minlength=len(names)) / weights.sum()
        present = [i for i, level in enumerate(names) if level]
        frequent = sorted((i for i in present if shares[i] >= LEAST_SHARE), key=lambda i: -shares[i])
        levels = tuple(sorted(str(names[i]) for i in frequent[:MOST_CATEGORIES]))
        missing = sum(value is None for value in values)
        return Column(name=name, kind=kind, missing=missing, levels=levels, others=len(present) - len(levels))
    numbers = values.astype(np.float64) / 86_400e6 if kind == "date" else values
    absent = np.isnat(values) if kind == "date" else np.isnan(values)
    if absent.all():
        return Column(name=name, kind=kind, missing=len(values))
    numbers, weights = np.clip(numbers[~absent], -LARGEST, LARGEST), weights[~absent]
    low, median, high = weighted_quantiles(numbers, weights, (0.25, 0.5, 0.75))
    scale = (high - low) / 1.349  # of a normal distribution: its standard deviation
    if scale <= 0:
        spread = np.average((numbers - median) ** 2, weights=weights) ** 0.5
        scale = float(spread) or 1.0
    if not np.isfinite([scale, 1 / scale]).all():
        scale = 1.0
    return Column(name=name, kind=kind, missing=int(absent.sum()), median=median, scale=scale)


def _date_parts(dates: np.ndarray) -> list[np.ndarray]:
    """Month, weekday and hour, each from −½ to ½."""
    months = dates.astype("datetime64[M]").astype(np.int64) % 12
    weekdays = (dates.astype("datetime64[D]").astype(np.int64) + 3) % 7
    hours = dates.astype("datetime64[h]").astype(np.int64) % 24
    return [months / 11 - 0.5, weekdays / 6 - 0.5, hours / 23 - 0.5]


def _as_fitted(column: Column, columns: Columns) -> np.ndarray:
    """The values of a column, in the kind in which it was fitted."""
    if column.name not in columns:
        raise InputError(f"the column {shown(column.name)} is missing: give the columns that fit saw")
    values = columns[column.name]
    if column.kind == "category":
        return values if values.dtype == object else np.array([as_text(value) for value in values], object)
    wanted = "f" if column.kind == "number" else "M"
    if values.dtype.kind == wanted:
        return values
    if values.dtype == object:
        if all(value is None for value in values):
            return np.full(len(values), np.nan if wanted == "f" else np.datetime64("NaT", "us"))
        reading = numbers_in(values) if wanted == "f" else dates_in(values)
        if reading is not None:
            return reading
    strange = next((shown(value) for value in values if _is_strange(value, wanted)), "something else")
    raise InputError(
        f"column {shown(column.name)} held {column.kind}s when the model was fitted, and holds {strange} now"
    )


def _is_strange(value: Any, wanted: str) -> bool:
    if not isinstance(value, str):
        return value is not None
    return (numbers_in([value]) if wanted == "f" else dates_in([value])) is None


def _content(values: np.ndarray) -> bytes:
    """What two columns share if one repeats the other."""
    return "\0".join(value or "" for value in values).encode() if values.dtype == object else values.tobytes()


def _telling(matrix: np.ndarray) -> list[int]:
    """The columns that are neither constant nor a copy of an earlier one."""
    first: dict[bytes, int] = {}
    for i in np.flatnonzero((matrix != matrix[0]).any(axis=0)):
        first.setdefault(matrix[:, i].tobytes(), int(i))
    return list(first.values())


def _described(column: Column) -> str:
    if column.dropped:
        return f"{column.name}: left out, {column.dropped}"
    parts = [column.kind]
    if column.kind == "category":
        parts.append(f"{len(column.levels) + column.others} values")
        if column.others:
            parts.append(f"{column.others} of them rare and taken together")
    if column.missing:
        parts.append(f"{column.missing} missing")
    return f"{column.name}: {', '.join(parts)}"


def _read_column(saved: Any) -> Column:
    saved = table("column", saved, Column.__dataclass_fields__)
    return Column(
        name=text("name", saved["name"]),
        kind=one_of("kind", saved["kind"], KINDS),
        missing=whole("missing", saved["missing"]),
        median=number("median", saved["median"]),
        scale=number("scale", saved["scale"], above=0),
        levels=tuple(text("levels", level) for level in items("levels", saved["levels"])),
        others=whole("others", saved["others"]),
        dropped=text("dropped", saved["dropped"]),
    )
