"""Differences within seeds and their table."""

import math

import numpy as np
import pytest

import study_rows
from calmoe.errors import InputError
from studies.rows import (
    by_key,
    differences_table,
    less,
    place_of,
    read_lines,
    span,
    values,
    write_lines,
)


def test_a_difference_is_student_s_over_the_seeds_that_both_have():
    a, b = {42: 0.3, 43: 0.5, 44: 0.1, 46: 9.0}, {42: 0.1, 43: 0.1, 44: math.nan, 45: 9.0, 46: 8.5}
    difference = less("robust", "ece", a, b).interval
    assert difference[:3] == pytest.approx(study_rows.student([0.2, 0.4, 0.5]))
    assert difference.samples == pytest.approx([0.2, 0.4, 0.5])


@pytest.mark.parametrize(
    ("by_seed", "side"), [((0.1, 0.2, 0.15), 1), ((-0.1, -0.2, -0.15), -1), ((0.1, -0.2), 0)]
)
def test_the_side_is_where_the_whole_interval_lies(by_seed, side):
    a = dict(enumerate(by_seed))
    assert less("robust", "ece", a, dict.fromkeys(a, 0.0)).side == side


def test_without_common_seeds_nothing_is_claimed():
    difference = less("robust", "ece", {42: 0.1}, {43: 0.1})
    assert difference.side == 0
    assert [entry.text for entry in differences_table("none", [difference]).rows[0][2:5]] == ["0", "–", "–"]


def test_one_seed_has_a_difference_and_no_interval():
    row = differences_table("one", [less("robust", "ece", {42: 0.3}, {42: 0.1})]).rows[0]
    assert [entry.text for entry in row] == ["Robust MoE", "ECE", "1", "+0.2000", "–", "+0.200"]


def test_intervals_that_leave_out_zero_are_bold():
    clear, unclear = (
        less(name, "ece", dict(enumerate(by_seed)), dict.fromkeys(range(3), 0.0))
        for name, by_seed in (("robust", (0.1, 0.11, 0.12)), ("fgr", (0.1, -0.1, 0.0)))
    )
    rows = differences_table("two", [clear, unclear]).rows
    assert [row[4].bold for row in rows] == [True, False]


def test_two_rows_of_a_seed_are_refused_and_the_same_row_twice_counts_once():
    rows = study_rows.made(seeds=(42, 42))
    with pytest.raises(InputError, match="two rows of one vanilla, seed 42, differ"):
        values(rows, "vanilla", "ece", "corrected")
    assert list(values([rows[0], rows[0]], "vanilla", "ece", "corrected")) == [42]
    assert len(by_key([{**rows[0], "target": target} for target in ("art", "photo")], place_of)) == 2


def test_values_are_of_one_method_and_protocol():
    rows = study_rows.made()
    expected = study_rows.column(rows, "ece", method="robust", protocol="published")
    assert list(values(rows, "robust", "ece", "published").values()) == list(expected)


def test_lines_come_back_and_bad_ones_are_named(tmp_path):
    rows = study_rows.made()
    write_lines(tmp_path / "rows.jsonl", rows)
    assert read_lines(tmp_path / "rows.jsonl") == rows
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(InputError, match=r"bad\.jsonl, line 2"):
        read_lines(tmp_path / "bad.jsonl")
    with pytest.raises(InputError, match="there is no"):
        read_lines(tmp_path / "none.jsonl")


def test_a_span_is_mean_smallest_and_largest():
    numbers = np.array([0.25, -0.5, 0.125])
    assert span(numbers).values == pytest.approx((numbers.mean(), -0.5, 0.25))
    assert span([]).text == "–"
