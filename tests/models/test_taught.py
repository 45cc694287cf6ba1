"""Which rows taught a model: a row has the same key in every file, chance marks nothing, damage is told."""

import csv
import json
import shutil
from datetime import date

import numpy as np
import pyarrow
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import calmoe
from calmoe.calibration import Calibrator, Temperature
from calmoe.errors import InputError
from calmoe.models.taught import BYTES, Taught, file_keys, table_keys, text_keys
from calmoe.own_data.tables import read_table
from command_line import calmoe as command
from saved_networks import IMAGES, network
from sizes import at_size
from strategies import seeds

WORDS = ["Łódź", "a b", "007", "1", "2.50", "-3", "2026-01-02", "None", "?", "true", "−"]
CELLS = {
    "whole": st.integers(-(10**15), 10**15),
    "part": st.floats(-1e6, 1e6) | st.floats(-1e6, 1e6, width=32),
    "word": st.sampled_from(WORDS),
    "day": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "yes": st.booleans(),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | each for name, each in CELLS.items()}), min_size=1)


def as_csv(path, rows, names):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows([["" if row[name] is None else row[name] for name in names] for row in rows])


def as_lines(path, rows, names):
    lines = [{name: row[name] for name in names if row[name] is not None} for row in rows]
    path.write_text("".join(json.dumps(line | {"more": 1}, default=str) + "\n" for line in lines))


def as_parquet(path, rows, names):
    parquet.write_table(pyarrow.table({name: [row[name] for row in rows] for name in names}), path)


def keys(path, wanted=tuple(CELLS)):
    columns = read_table(path).columns
    absent = np.full(len(next(iter(columns.values()))), None, dtype=object)
    return table_keys({name: columns.get(name, absent) for name in wanted})


@given(rows=ROWS, names=st.permutations(list(CELLS)))
def test_a_row_has_the_same_key_in_every_file(tmp_path_factory, rows, names):
    place = tmp_path_factory.mktemp("tables")
    for write, name, order in (
        (as_csv, "t.csv", names),
        (as_lines, "t.jsonl", names[::-1]),
        (as_parquet, "t.parquet", names[1:] + names[:1]),
    ):
        write(place / name, rows, order)
    expected = keys(place / "t.csv")
    assert len(expected) == len(rows)
    np.testing.assert_array_equal(keys(place / "t.jsonl"), expected)
    np.testing.assert_array_equal(keys(place / "t.parquet"), expected)


def test_one_reading_is_as_good_as_another():
    whole = table_keys({"x": np.array([1.0, 2.5, np.nan])})
    for other in (["1", "2.50", None], ["1.0", "+2.5", "?"], ["1", "2.5", "NA"]):
        np.testing.assert_array_equal(table_keys({"x": np.array(other, dtype=object)}), whole)
    days = np.array(["2026-01-02", "NaT"], dtype="datetime64[us]")
    words = np.array(["2026-01-02", None], dtype=object)
    np.testing.assert_array_equal(table_keys({"d": days}), table_keys({"d": words}))
    single = np.array([0.1, 1e-30, 123456.79], dtype=np.float32)
    decimals = np.array([0.1, 1e-30, 123456.79])
    np.testing.assert_array_equal(table_keys({"x": single.astype(float)}), table_keys({"x": decimals}))


@given(
    numbers=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    words=st.lists(st.sampled_from(["a", "b", None]), min_size=20, max_size=20),
)
def test_rows_have_equal_keys_if_and_only_if_they_are_equal(numbers, words):
    rows = list(zip(numbers, words[: len(numbers)], strict=True))
    made = table_keys({"n": np.array(numbers, float), "w": np.array([w for _, w in rows], dtype=object)})
    assert made.dtype.itemsize == BYTES
    for i, row in enumerate(rows):
        assert [other == row for other in rows] == (made == made[i]).tolist()


def test_cells_do_not_run_into_one_another():
    def key(**cells):
        return table_keys({name: np.array([cell], dtype=object) for name, cell in cells.items()})[0]

    assert len({key(a="x", b="y"), key(a="y", b="x"), key(a="xy", b=None), key(a=None, b="xy")}) == 4
    assert len({key(a=word) for word in ("7", "007", "seven", "Seven", None)}) == 5


def test_texts_and_files_are_known_by_their_content(tmp_path):
    assert len({*text_keys(["good", "good ", "bad"])}) == 2
    for name, data in (("a.png", b"1"), ("b.jpg", b"1"), ("c.png", b"2")):
        (tmp_path / name).write_bytes(data)
    one, two, three = file_keys(sorted(tmp_path.iterdir()))
    assert one == two != three


@given(seed=seeds)
def test_neither_the_order_of_rows_nor_their_number_is_kept(tmp_path_factory, seed):
    rng, place = np.random.default_rng(seed), tmp_path_factory.mktemp("keys")
    fitted = rng.integers(-(2**63), 2**63 - 1, 30)
    held_out = np.concatenate([fitted[:3], rng.integers(-(2**63), 2**63 - 1, 9)])
    Taught.of(fitted, held_out).save(place / "one")
    Taught.of(rng.permutation(np.repeat(fitted, 2)), rng.permutation(held_out)).save(place / "two")
    assert (place / "one").read_bytes() == (place / "two").read_bytes()
    again = Taught.load(place / "one")
    assert again.coincidence == 0.25
    assert again.recognises(fitted).all()


@pytest.mark.parametrize(("columns", "values"), [(2, 3), (4, 6), (4, 12), (12, 12)])
def test_chance_marks_nothing_and_training_rows_are_found(columns, values):
    """From every row seen before, by way of one in two and one in thirty, to none."""
    for seed in range(at_size(5, 50)):
        drawn = np.random.default_rng(seed).integers(0, values, (1500, columns)).astype(float)
        made = table_keys({f"x{i}": column for i, column in enumerate(drawn.T)})
        fitted, held_out, new = made[:800], made[800:1000], made[1000:]
        taught = Taught.of(fitted, held_out)
        assert not taught.recognises(new).any()
        assert not taught.recognises(held_out).any()
        if taught.coincidence < 0.2:
            mixed = np.concatenate([fitted, new])
            np.testing.assert_array_equal(taught.recognises(mixed), np.isin(mixed, fitted))


def test_one_row_of_training_is_marked_where_no_row_repeats():
    made = table_keys({"x": np.arange(100.0)})
    taught = Taught.of(made[:50], made[50:60])
    assert taught.recognises(made[49:]).tolist() == [True] + [False] * 50
    assert not taught.recognises(made[:0]).any()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "model"
    model = network(IMAGES)
    model.taught = Taught.of(np.arange(9), np.arange(5, 15))
    model.save(place)
    return place


def test_a_model_keeps_it_and_a_repaired_one_too(saved, tmp_path):
    again = calmoe.load(saved).taught
    assert again.keys.tolist() == [*range(9)]
    assert again.coincidence == 0.4
    fitted = Temperature().fit(torch.tensor([[0.9, 0.1]] * 3).log(), torch.tensor([0, 0, 1]))
    Calibrator(fitted).save(tmp_path / "c.json")
    assert command("apply", tmp_path / "c.json", saved, "--out", tmp_path / "new").exit_code == 0
    name = "taught.safetensors"
    assert (tmp_path / "new" / name).read_bytes() == (saved / name).read_bytes()


def test_older_folders_and_estimators_have_none(saved, tmp_path):
    copied = shutil.copytree(saved, tmp_path / "model")
    (copied / "taught.safetensors").unlink()
    assert calmoe.load(copied).taught is None
    made = calmoe.CalibratedMoEClassifier(max_epochs=1, random_state=0)
    made.fit({"x": np.arange(60.0)}, np.arange(60) % 2).save(tmp_path / "made")
    assert calmoe.load(tmp_path / "made").taught is None
    assert not (tmp_path / "made" / "taught.safetensors").exists()


def header(**changes):
    said = {"format": "calmoe.taught/1", "coincidence": 0.1} | changes
    return {"calmoe": json.dumps({name: value for name, value in said.items() if value is not None})}


DAMAGES = {
    "not a readable safetensors": b"x" * 99,
    "format is missing": safetensors.torch.save({"keys": torch.arange(3)}),
    "its format is not": safetensors.torch.save({"keys": torch.arange(3)}, header(format="calmoe.taught/2")),
    "coincidence must be": safetensors.torch.save({"keys": torch.arange(3)}, header(coincidence=2)),
    "secret is not known": safetensors.torch.save({"keys": torch.arange(3)}, header(secret=1)),
    "keys of rows": safetensors.torch.save({"keys": torch.arange(3.0)}, header()),
    "keys of rows: train again": safetensors.torch.save({"rows": torch.arange(3)}, header()),
    "not in order": safetensors.torch.save({"keys": torch.tensor([1, 1])}, header()),
}


@pytest.mark.parametrize("told", DAMAGES)
def test_a_damaged_file_is_refused_in_one_line(saved, tmp_path, told):
    copied = shutil.copytree(saved, tmp_path / "model")
    (copied / "taught.safetensors").write_bytes(DAMAGES[told])
    with pytest.raises(InputError, match=told) as error:
        calmoe.load(copied)
    assert str(copied / "taught.safetensors") in str(error.value)
    assert "\n" not in str(error.value)


def test_few_rows_that_repeat_by_chance_are_not_marked():
    random = np.random.default_rng(0)
    keys = table_keys({name: random.integers(0, 12, 3000).astype(float) for name in "abc"})
    taught, new = Taught.of(keys[:700], keys[700:1000]), keys[1000:]
    for size in (1, 3, 5, 10):
        marked = [taught.recognises(new[i : i + size]).any() for i in range(0, 1500, size)]
        assert np.mean(marked) < 0.03


@pytest.mark.parametrize("names", [np.array(["7", "b", "", "NA"]), np.array([7.0, 8.0, np.nan, np.nan])])
def test_cases_that_taught_are_known_again(tmp_path, names):
    rows = table_keys({"x": np.arange(8.0)})
    taught = Taught.of(rows[:4], rows[4:], names)
    taught.save(tmp_path / "taught.safetensors")
    again = Taught.load(tmp_path / "taught.safetensors")
    np.testing.assert_array_equal(again.cases, taught.cases)
    assert again.knows_cases(np.array([7, 9])).tolist() == [True, False]
    assert again.knows_cases(np.array(["7", " 7 ", "", "NA", "c"])).tolist() == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert not Taught.of(rows[:4], rows[4:]).knows_cases(names).any()
