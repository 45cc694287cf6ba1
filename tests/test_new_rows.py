"""Rows that taught the model are left out of every judgement, and are counted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calmoe
from calmoe import worlds
from calmoe.auditing.audit_report import TAUGHT_ROWS
from calmoe.auditing.repairs.repair import repair
from calmoe.calibration.calibrator import FLATTERED
from calmoe.errors import InputError
from calmoe.formats import Columns
from calmoe.formats.writing import TAUGHT
from calmoe.new_rows import FEWEST_CASES, marked_alike, new_rows, numbered_cases, one_of_each, with_cluster
from calmoe.predictions import Predictions
from haste import hastily


def marked(rows, marks):
    probs = np.linspace(0.1, 0.9, rows)
    groups = {"hard": np.arange(rows) % 2 == 0, TAUGHT: np.array(marks)}
    return Predictions.from_probs(np.stack([probs, 1 - probs], axis=1), groups=groups)


@given(marks=st.lists(st.booleans(), min_size=1, max_size=12))
def test_what_is_left_are_the_other_rows(marks):
    given, kept = marked(len(marks), marks), [i for i, mark in enumerate(marks) if not mark]
    if not kept:
        with pytest.raises(InputError, match="rows that neither has seen"):
            new_rows(given)
        return
    new = new_rows(given)
    assert new.numbers.tolist() == kept
    assert list(new.predictions.groups) == ["hard"]
    np.testing.assert_array_equal(new.predictions.output.probs, given.output.probs[kept])
    assert new.left_out == (f"{sum(marks)} of {len(marks)} rows" if any(marks) else "")
    assert new_rows(new.predictions).predictions is new.predictions


@pytest.mark.parametrize("column", [[0, 1, 0], ["yes", "no", "no"], [0.5, 1.0, 0.0]])
def test_the_column_holds_true_or_false(column):
    with pytest.raises(InputError, match="must hold true or false") as error:
        new_rows(marked(3, column))
    assert "\n" not in str(error.value)


def test_audit_and_repair_see_new_rows_only():
    """What they say of marked predictions is what they say of the rest; rows are counted among all."""
    sample = worlds.miscalibrated(0, temperature=2.5).sample(450, seed=0)
    marks = np.random.default_rng(0).random(450) < 0.25
    given, rest = replace(sample, groups={**sample.groups, TAUGHT: marks}), sample.take(~marks)
    with hastily():
        report, alone = calmoe.audit(given), calmoe.audit(rest)
        repaired = repair(given)
    ours, theirs = report.to_dict(), alone.to_dict()
    assert ours.pop("left_out") == {TAUGHT_ROWS: f"{marks.sum()} of 450 rows"} | theirs.pop("left_out")
    assert str(ours) == str(theirs)
    numbers = np.flatnonzero(~marks)
    np.testing.assert_array_equal(report.reweightings()["rows"], numbers[alone.reweightings()["rows"]])
    assert repaired.learned == len(rest)
    scaled = repaired.fits["temperature"]
    assert FLATTERED in scaled.transform(given).metadata  # of its rows, those that count are the same
    assert FLATTERED not in scaled.transform(sample).metadata
    assert FLATTERED not in repaired.fits["nothing"].transform(given).metadata  # it changes nothing


def of_cases(column):
    probs = np.linspace(0.1, 0.9, len(column))
    groups = {"case": np.asarray(column), "row number": np.arange(len(column))}
    return new_rows(Predictions.from_probs(np.stack([probs, 1 - probs], axis=1), groups=groups))


@given(
    names=st.lists(st.integers(0, 60), min_size=40, max_size=90),
    seed=st.integers(0, 9),
    as_words=st.booleans(),
)
def test_one_row_of_each_case(names, seed, as_words):
    column = np.array(names).astype(str) if as_words else np.array(names)
    if len(set(names)) < FEWEST_CASES:
        with pytest.raises(InputError, match="too few to judge"):
            one_of_each(of_cases(column), "case")
        return
    one = one_of_each(of_cases(column), "case", seed)
    assert sorted(column[one.numbers]) == sorted(set(column))
    np.testing.assert_array_equal(one.predictions.groups["row number"], one.numbers)
    assert "case" not in one.predictions.groups
    assert (one.cases, bool(one.judged)) == ("named", len(set(names)) < len(names))


@pytest.mark.parametrize(
    "column",
    [
        ["a", "a", "", " ", "b", "b", ""],
        ["a", "a", "NA", "null", "b", "b", "(missing)"],
        [1.0, 1.0, np.nan, np.nan, 2.0, 2.0, np.nan],
    ],
    ids=["blanks", "words", "numbers"],
)
def test_a_row_that_names_no_case_is_one_of_its_own(column):
    cases, unnamed = numbered_cases(np.array(column))
    assert unnamed == 3
    assert cases[0] == cases[1] != cases[4] == cases[5]
    assert sorted(set(cases)) == list(range(5))
    one = one_of_each(of_cases(column * 10), "case")
    assert len(one.predictions) == 2 + 30
    assert one.judged == "of each case one row is judged: 32 of 70 rows, with all 30 that name none"
    assert one.cases == "not said"  # of the rows that name none


def test_every_row_is_a_case():
    new = of_cases(list("ab") * 30)
    assert one_of_each(new, "row") == new._replace(cases="every row")
    assert one_of_each(new, None) is new
    with pytest.raises(InputError, match="no group column 'person'"):
        one_of_each(new, "person")


def test_the_column_of_cases_is_read_beside_groups_that_are_named():
    asked = Columns(groups=("site",))
    assert with_cluster(asked, "person").groups == ("site", "person")
    for cluster in (None, "row", "site"):
        assert with_cluster(asked, cluster) is asked
    assert with_cluster(Columns(), "person").groups is None  # all columns are


def test_files_of_the_same_rows_leave_the_same_rows_out():
    sample = worlds.calibrated(0).sample(40, seed=0)
    marks = np.arange(40) % 4
    files = [replace(sample, groups={TAUGHT: marks == i}) for i in (0, 1)] + [sample]
    for each in marked_alike(files):
        np.testing.assert_array_equal(new_rows(each).numbers, np.flatnonzero(marks > 1))
    assert marked_alike([sample, sample])[1] is sample


def test_a_target_is_judged_by_new_rows_too():
    sample = worlds.calibrated(0).sample(400, seed=0)
    marked = replace(worlds.calibrated(0).sample(300, seed=1), groups={TAUGHT: np.arange(300) < 150})
    with hastily():
        report = calmoe.audit(sample, target=marked, labelled_target=marked)
        alone = marked.take(np.arange(150, 300))
        rest = calmoe.audit(
            sample, target=replace(alone, groups={}), labelled_target=replace(alone, groups={})
        )
    assert str(report.to_dict()) == str(rest.to_dict())
