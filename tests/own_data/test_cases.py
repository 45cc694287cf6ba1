"""`calmoe train --cluster`: a case is whole on one side of every split, and one row of it is scored."""

import csv
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import calmoe
from calmoe.errors import InputError
from calmoe.formats.writing import TAUGHT
from calmoe.models.columns import read_columns
from calmoe.own_data.describe import may_name_cases
from calmoe.own_data.parts import FEWEST_ROWS, divide
from calmoe.own_data.source import Source, rows_of
from calmoe.own_data.spec import TrainSpec, read_spec
from calmoe.own_data.tables import read_table
from image_folders import write_images
from own_commands import NETWORK, done, refused

pytestmark = pytest.mark.usefixtures("quick")


def written(path, columns):
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def visits(path, persons, seed=0, times=6, noise=0):
    """Labels are coins, a person one; measurements name the person, so nothing holds for other persons."""
    random = np.random.default_rng(seed)
    person = np.repeat(np.arange(persons), times)
    measured = random.normal(0, 5, (persons, 2))[person] + random.normal(0, 0.1, (len(person), 2))
    label = np.array(["no", "yes"])[random.integers(0, 2, persons)][person]
    measured += noise * np.random.default_rng(9).normal(0, 0.1, measured.shape)
    order = random.permutation(len(person))
    columns = {"person": np.char.add(f"P{seed}-", person.astype(str)), "a": measured[:, 0].round(2)}
    columns |= {"b": measured[:, 1].round(2), "sick": label}
    return written(path, {name: values[order] for name, values in columns.items()})


def source_of(cases, labels, **groups):
    columns = {"x": np.arange(len(cases), dtype=float)}
    groups = {name: np.asarray(values) for name, values in groups.items()}
    labels = np.array(labels, dtype=object)
    return Source(
        kind="tables", name="t", columns=columns, labels=labels, cases=np.array(cases), groups=groups
    )


SPEC = TrainSpec(data=Path("t.csv"), label="y", cluster="person")


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abb")), min_size=40, max_size=200), st.data())
def test_a_case_is_whole_and_judged_once(rows, data):
    cases, labels = map(list, zip(*rows, strict=True))
    spec = TrainSpec(**{**vars(SPEC), "seed": data.draw(st.integers(0, 5))})
    if len(set(cases)) < FEWEST_ROWS or len(set(labels)) < 2:
        with pytest.raises(InputError):
            divide(source_of(cases, labels), spec)
        return
    of_class = [{case for case, label in rows if label == name} for name in set(labels)]
    if min(map(len, of_class)) < 6:  # all of them may be held out, in company of a rarer class
        return
    split = divide(source_of(cases, labels), spec)
    cases, parts = np.array(cases), split.parts
    sides = [set(cases[rows]) for rows in (parts.train, parts.validation, parts.held_out)]
    assert set.union(*sides) == set(cases)
    assert sum(map(len, sides)) == len(set(cases)) == parts.cases
    assert len(parts.held_out) == len(sides[2])
    assert set(np.array(labels)[parts.train]) == set(labels)


def test_without_cases_every_row_counts():
    given_source = source_of(np.arange(100), ["a", "b"] * 50)
    alone = divide(given_source, SPEC).parts
    plain = divide(Source(**{**vars(given_source), "cases": None}), SPEC).parts
    for one, other in zip(alone, plain, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_shift_has_none_of_the_cases_that_teach():
    """Person 0 to 9 stand in both regions, 40 to 59 in the north alone."""
    cases = np.r_[np.arange(40), np.arange(10), np.repeat(np.arange(40, 60), 2)]
    region = np.r_[np.full(40, "south"), np.full(50, "north")]
    spec = TrainSpec(**{**vars(SPEC), "shift": ("region=north",)})
    split = divide(source_of(cases, ["a", "b"] * 45, region=region), spec)
    kept = split.source.cases
    assert set(kept[split.parts.shift]) == set(range(40, 60))
    assert len(split.parts.shift) == 20
    assert len(split.source) == 80
    assert any(note.startswith("10 rows of the shift are of cases") for note in split.notes)
    everywhere = source_of(
        np.tile(np.arange(40), 2), ["a", "b"] * 40, region=np.repeat(["south", "north"], 40)
    )
    with pytest.raises(InputError, match="every case of the shift"):
        divide(everywhere, spec)


def test_who_is_not_named_is_a_case_of_his_own(tmp_path):
    names = ["a", "a", "", "NA", "b", "b", " ", "b"]
    path = written(tmp_path / "t.csv", {"person": names, "x": range(8), "y": "abababab"})
    cases = rows_of(read_table(path), path, label="y", cluster="person").case_numbers
    assert cases[0] == cases[1] != cases[4] == cases[5] == cases[7]
    assert len(set(cases)) == 5


@pytest.mark.usefixtures("hasty", "unrendered")
@pytest.mark.parametrize(
    ("kind", "knows", "loss"), [((), 0.8, 0.8), (NETWORK, 0.0, 1.2)], ids=["mixture", "network"]
)
def test_persons_that_are_coins_cannot_be_predicted(tmp_path, monkeypatch, kind, knows, loss):
    """By rows a mixture looks nearly perfect, since it knows the persons; by cases it knows nothing."""
    monkeypatch.chdir(tmp_path)
    visits(tmp_path / "visits.csv", 100)
    visits(tmp_path / "new.csv", 60, seed=1)
    rows = done("train", "visits.csv", "--label", "sick", "--drop", "person", *kind, "--out", "rows")
    assert calmoe.load("rows").card.scores["held out"]["accuracy"] > knows
    assert "note: person may name cases" in rows  # though it was dropped
    told = done("train", "visits.csv", "--label", "sick", "--cluster", "person", *kind, "--out", "model")
    model = calmoe.load("model")
    assert "whole cases of person, one row of each scored: 480 to learn from, 20 to score on" in told
    assert model.card.scores["held out"]["accuracy"] < 0.8
    assert (model.card.settings["cluster"], "person" in model.card.columns) == ("person", False)
    assert model.card.scores["held out"]["log_loss"] < loss  # the mixture has 2.3 if folds cut persons apart
    assert "too few" in done("audit", "model", "--cluster", "person")
    assert "trained without --cluster person" in refused("audit", "rows", "--cluster", "person")
    assert "trained without --cluster person" in refused(
        "repair", "rows", "--cluster", "person", "--out", "c.json"
    )
    predicted = done("predict", "model", "new.csv", "--out", "predictions.csv")
    assert "next: calmoe audit predictions.csv --cluster person" in predicted
    assert "of each person one row is judged: 60 of 360 rows" in done(
        "audit", "predictions.csv", "--cluster", "person"
    ).replace("\n", " ")
    again = visits(tmp_path / "again.csv", 100, seed=0, noise=1)  # the same persons, measured again
    assert "480 of 600 rows, or others of their cases, taught the model" in done(
        "predict", "model", again, "--out", "again-p.csv"
    )
    assert calmoe.Predictions.load("again-p.csv").groups[TAUGHT].sum() == 480


@pytest.mark.usefixtures("hasty", "unrendered")
def test_a_target_of_a_model_is_judged_by_cases_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits(tmp_path / "visits.csv", 620, times=2)
    visits(tmp_path / "new.csv", 150, seed=1, times=4)
    done("train", "visits.csv", "--label", "sick", "--cluster", "person", *NETWORK, "--out", "model")
    done("predict", "model", "new.csv", "--out", "new-p.csv")
    told = done("audit", "model", "--target", "new-p.csv", "--cluster", "person")
    assert "new-p.csv: of each person one row is judged: 150 of 600 rows" in told
    assert "calmoe audit new-p.csv --cluster person judges it directly" in told
    assert "150 labelled rows from there" in told.replace("\n  ", " ")
    both = done("audit", "model", "new-p.csv", "--cluster", "person")
    assert "new-p.csv: of each person one row is judged" in both
    unlabelled = [line.rpartition(",")[0] for line in (tmp_path / "new.csv").read_text().splitlines()]
    (tmp_path / "unlabelled.csv").write_text("\n".join([*unlabelled, ""]))
    told = done("predict", "model", "unlabelled.csv", "--out", "unlabelled-p.csv")
    assert "calmoe audit model --target unlabelled-p.csv --cluster person" in told


def test_values_are_left_out_with_their_groups():
    random = np.random.default_rng(0)
    person = np.repeat(np.arange(80), 6)
    site, label = (person // 10).astype(float), COINS[person]
    X = {"site": np.char.add("s", site.astype(int).astype(str)).astype(object), "x": random.normal(size=480)}
    model = calmoe.MixtureOfModels(expect_shift="site", cv=2, etas=(0.0, 1.0), random_state=0)
    assert model.fit(X, label, groups=person).eta_ in (0.0, 1.0)
    X["site"] = random.permutation(X["site"])
    with pytest.raises(InputError, match="several values of 'site'"):
        model.fit(X, label, groups=person)


def test_cases_of_long_numbers_stay_apart(tmp_path):
    ids = [2**60 + 7 * i for i in range(60)]
    path = written(tmp_path / "t.csv", {"id": ids, "x": range(60), "y": "ab" * 30})
    assert len(set(rows_of(read_table(path), path, label="y", cluster="id").case_numbers)) == 60
    table = pyarrow.table({"id": pyarrow.array([*ids[:-1], None]), "x": range(60), "y": list("ab" * 30)})
    parquet.write_table(table, tmp_path / "t.parquet")
    path = tmp_path / "t.parquet"
    assert len(set(rows_of(read_table(path), path, label="y", cluster="id").case_numbers)) == 60
    for frame in (table.to_pandas(), {"id": ids}, {"id": np.array(ids)}):
        assert read_columns(frame)["id"][1] in (str(ids[1]), float(ids[1]))  # pandas had a float for a gap


def test_a_spec_keeps_the_cases_and_a_note_asks_for_them(tmp_path):
    path = visits(tmp_path / "visits.csv", 50)
    spec = tmp_path / "spec.toml"
    assert "note: person may name cases" in done("init", path, "--label", "sick", "--out", spec)
    for cluster in ("person", "row"):
        spec = tmp_path / f"{cluster}.toml"
        told = done("init", path, "--label", "sick", "--cluster", cluster, "--out", spec)
        assert "may name cases" not in told
        assert ("whole cases" in told) == (cluster == "person")
        assert read_spec(spec).cluster == cluster


def test_what_cannot_name_cases_is_refused(tmp_path):
    path = visits(tmp_path / "visits.csv", 50)
    few = written(tmp_path / "few.csv", {"person": [1, 2] * 30, "x": range(60), "y": "ab" * 30})
    write_images(tmp_path / "photos", {"cat": 12, "dog": 12})
    for words, why in (
        ((path, "--label", "sick", "--cluster", "nobody"), "nobody"),
        ((path, "--label", "sick", "--cluster", "sick"), "something else"),
        ((few, "--label", "y", "--cluster", "person"), "names 2 cases"),
        ((tmp_path / "photos", "--cluster", "person"), "images have none"),
    ):
        assert why in refused("train", *words, "--out", tmp_path / "model")
        assert not (tmp_path / "model").exists()


PERSONS = np.repeat(np.arange(100), 5)
COINS = np.random.default_rng(0).integers(0, 2, 100)


@pytest.mark.parametrize(
    ("name", "values", "codes", "may"),
    [
        ("patient_id", PERSONS.astype(float), np.arange(500) % 2, True),
        ("customerId", PERSONS.astype(str).astype(object), np.arange(500) % 2, True),
        ("house", PERSONS.astype(str).astype(object), COINS[PERSONS], True),
        ("house", PERSONS.astype(str).astype(object), np.arange(500) % 2, False),
        ("score", PERSONS.astype(float), PERSONS > 50, False),
        ("score", PERSONS + 0.5, COINS[PERSONS], False),
        ("row_id", np.arange(500.0), np.arange(500) % 2, False),
        ("patient_no", PERSONS.astype(float), np.arange(500) % 2, True),
        ("region_id", np.arange(500.0) % 30 // 2, np.arange(500) % 2, False),
        ("paid", PERSONS.astype(float), np.arange(500) % 2, False),
        ("day_id", np.repeat(np.datetime64("2020-01-01") + np.arange(100), 5), COINS[PERSONS], False),
    ],
)
def test_columns_that_may_name_cases(name, values, codes, may):
    assert may_name_cases(name, values, codes.astype(int)) == may
