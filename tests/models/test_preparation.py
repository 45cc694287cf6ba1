"""Preparation: any table becomes numbers, without gaps, in the same way every time."""

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calmoe.errors import InputError
from calmoe.models import Preparation
from calmoe.models.columns import read_columns
from calmoe.models.preparation import squash, weighted_quantiles
from models.made_tables import mixed

cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_infinity=False),
    st.text(max_size=5),
)


@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=12))
def test_any_cells_become_finite_numbers_and_come_back_from_json(rows):
    table = {name: list(column) for name, column in zip("abc", zip(*rows, strict=True), strict=True)}
    fitted = Preparation().fit(table)
    numbers = fitted.transform(table)
    assert numbers.shape == (len(rows), len(fitted.features))
    assert numbers.dtype == np.float32
    assert np.isfinite(numbers).all()
    saved = json.loads(json.dumps(fitted.as_dict()))
    np.testing.assert_array_equal(Preparation.from_dict(saved).transform(table), numbers)


def test_pandas_arrow_and_mapping_give_the_same_numbers():
    table, _ = mixed()
    fitted = Preparation().fit(table)
    numbers = fitted.transform(table)
    for other in (pa.Table.from_pandas(table), {name: table[name] for name in table}):
        np.testing.assert_array_equal(fitted.transform(other), numbers)
        np.testing.assert_array_equal(Preparation().fit(other).transform(other), numbers)


def test_polars_gives_the_same_numbers():
    polars = pytest.importorskip("polars")
    days = polars.Series(["2026-01-02", None, "2026-03-04"]).str.to_date()
    frame = polars.DataFrame(
        {"x": [1.5, None, 2.0], "c": ["a", None, "ż"], "b": [True, False, None], "d": days}
    )
    plain = {name: frame[name].to_list() for name in frame.columns}
    np.testing.assert_array_equal(
        Preparation().fit(frame).transform(frame), Preparation().fit(plain).transform(plain)
    )


def test_an_array_is_a_table_without_names():
    X = np.random.default_rng(0).normal(size=(20, 2))
    assert Preparation().fit(X).features == ["x0", "x1"]


def test_kinds_gaps_and_what_is_left_out_are_described():
    described = Preparation().fit(mixed()[0]).describe()
    assert "wiek: number, " in described
    assert "missing" in described
    assert "miasto: category, 3 values" in described
    assert "dzień: date" in described
    assert "stała: left out, it is constant" in described


def test_copies_of_columns_are_left_out():
    fitted = Preparation().fit({"a": [1, 2, 3], "b": [1, 2, 3], "c": ["1", "2", "3"]})
    assert [column.dropped for column in fitted.columns] == ["", "it repeats 'a'", "it repeats 'a'"]


def test_unseen_and_rare_categories_are_others():
    common = ["north"] * 600 + ["south"] * 600
    fitted = Preparation().fit({"place": [*common, "east"]})
    assert fitted.features == ["place=north", "place=south", "place other"]
    np.testing.assert_array_equal(fitted.transform({"place": ["west", "east"]}), [[0, 0, 1]] * 2)


def test_many_categories_are_capped():
    values = [f"v{i % 200}" for i in range(2000)]
    assert len(Preparation().fit({"code": values}).features) == 65


def test_a_missing_value_counts_as_the_median_and_is_marked():
    fitted = Preparation().fit({"a": [1.0, 2.0, 3.0, None]})
    np.testing.assert_array_equal(fitted.transform({"a": [None, 2.0]}), [[0, 1], [0, 0]])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1.5", "2", "?"], "number"),
        (["007", "008", "009"], "category"),
        (["2026-11-16", "2025-01-02", ""], "date"),
        ([datetime.date(2026, 1, 1), datetime.date(2025, 1, 1), None], "date"),
        ([True, False, None], "category"),
        ([1, "one", 2.0], "category"),
    ],
)
def test_kinds(values, kind):
    assert Preparation().fit({"a": values}).columns[0].kind == kind


def test_weights_are_repetitions():
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=30), "b": rng.choice(list("xyz"), 30)}
    weights = rng.integers(1, 4, 30)
    repeated = {name: np.repeat(values, weights) for name, values in table.items()}
    weighted, plain = Preparation().fit(table, weights), Preparation().fit(repeated)
    np.testing.assert_array_equal(weighted.transform(table), plain.transform(table))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_squash_keeps_order(values):
    ordered = np.sort(values)
    assert (np.diff(squash(ordered)) >= 0).all()


def test_quantiles():
    assert weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.ones(3), (0.25, 0.5, 0.75)) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"a": [1.0, float("inf")]}, "column 'a' contains infinity in row 1"),
        ({}, "no columns"),
        ({"a": []}, "no rows"),
        ({"a": [1], "b": [1, 2]}, "differ in length"),
        (np.zeros(3), "rows and columns"),
        (np.zeros((2, 2), dtype=complex), "Complex data not supported"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are named 'a'"),
    ],
)
def test_bad_tables_are_refused_in_one_line(table, said):
    with pytest.raises(InputError, match=said) as caught:
        Preparation().fit(table)
    assert "\n" not in str(caught.value)


def test_a_column_of_another_kind_or_none_is_refused_later():
    fitted = Preparation().fit({"a": [1, 2, 3]})
    with pytest.raises(InputError, match="held numbers when the model was fitted, and holds 'many' now"):
        fitted.transform({"a": ["1", "many"]})
    with pytest.raises(InputError, match="'a' is missing"):
        fitted.transform({"b": [1]})
    with pytest.raises(InputError, match="not fitted"):
        Preparation().transform({"a": [1]})


@pytest.mark.parametrize("damage", [{"kept": [99]}, {"columns": [{"name": "a"}]}, {"columns": 3}])
def test_damaged_states_are_refused(damage):
    saved = Preparation().fit({"a": [1, 2, 3]}).as_dict() | damage
    with pytest.raises(InputError):
        Preparation.from_dict(saved)


def test_times_with_zones_and_nullable_columns():
    table = pd.DataFrame(
        {
            "t": pd.to_datetime(["2026-01-01T12:00+02:00", None], utc=True),
            "i": pd.array([1, None], dtype="Int64"),
            "b": pd.array([True, None], dtype="boolean"),
            "s": pd.array(["x", None], dtype="string"),
        }
    )
    columns = read_columns(table)
    assert str(columns["t"][0]) == "2026-01-01T10:00:00.000000"
    assert np.isnan(columns["i"][1])
    assert list(columns["b"]) == ["True", None]
    assert list(columns["s"]) == ["x", None]
