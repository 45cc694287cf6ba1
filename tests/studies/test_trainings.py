"""The error that trainings of one seed make, against numpy and noise of known size."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from calmoe.errors import InputError
from studies.rows import less
from studies.trainings import (
    Error,
    deviation,
    of_a_difference,
    over_seeds,
    rerun_moves,
    same_training,
)
from study_rows import COLUMNS, made, write

SCORES = {"accuracy": 0.8, "nll_ts": 0.6, "brier_ts": 0.3, "ece_ts": 0.05}


def test_noise_of_known_size_is_found_whatever_the_places_are():
    draw = np.random.default_rng(0)
    groups = [place + draw.normal(0, 0.02, size) for place in range(2000) for size in (1, 2, 3)]
    error = deviation(groups)
    assert error == (pytest.approx(0.02, rel=0.03), 2000 * 3)  # a place with one training says nothing


def test_an_error_reaches_as_far_as_student_says():
    samples = [0.1, 0.3, 0.2, 0.6]
    difference = less("robust", "ece", dict(enumerate(samples)), dict.fromkeys(range(4), 0.0)).interval
    assert difference.estimate + over_seeds(difference).half() == pytest.approx(difference.high)
    assert Error(0.6, 7.0).of_a_mean(9).half(0.9) == pytest.approx(0.2 * student.ppf(0.95, 7))


def test_errors_of_two_add_in_squares():
    difference = of_a_difference(Error(3.0, 8), Error(4.0, 8))
    assert difference == (pytest.approx(5.0), pytest.approx(8 * 25**2 / (9**2 + 16**2)))
    assert of_a_difference(Error(3.0, 8), Error(0.0, 1)) == pytest.approx((3.0, 8))


def test_the_same_training_agrees_to_the_last_digit_in_every_score():
    assert same_training(SCORES, {name: value + 4e-7 for name, value in SCORES.items()})
    assert not any(same_training(SCORES, {**SCORES, name: SCORES[name] + 1e-5}) for name in SCORES)


def later(rows, **by_method):
    """The corrected rows again, each with its method's move of the ECE after a temperature."""
    return [
        {**row, "ece_ts": row["ece_ts"] + by_method.get(row["method"], 0.0)}
        for row in rows
        if row["protocol"] == "corrected"
    ]


def test_moves_are_those_of_the_difference_from_vanilla(tmp_path):
    first = made(seeds=(42, 43))
    write(tmp_path / "results.jsonl", first)
    write(tmp_path / "again.jsonl", later(first, robust=0.05, vanilla=0.025))  # 0.025 apart
    assert rerun_moves(tmp_path, [], COLUMNS)["ece_ts"] == (pytest.approx(0.025 / math.sqrt(2)), 2)


def test_mocae_is_no_rerun_for_it_has_vanilla_s_training(tmp_path):
    first = made(("vanilla", "robust", "mocae"), seeds=(42, 43))
    write(tmp_path / "results.jsonl", first)
    write(tmp_path / "again.jsonl", later(first, robust=0.05, vanilla=0.025, mocae=0.09))
    assert rerun_moves(tmp_path, [], COLUMNS)["ece_ts"].size == pytest.approx(0.025 / math.sqrt(2))


def test_a_training_that_comes_out_the_same_is_no_rerun(tmp_path):
    first = made(seeds=(42, 43))
    write(tmp_path / "results.jsonl", first)
    again = later(first, robust=0.05, vanilla=0.025)
    for row in again:
        if row["seed"] == 43 and row["method"] == "vanilla":
            row["ece_ts"] -= 0.025
    write(tmp_path / "again.jsonl", again)
    assert rerun_moves(tmp_path, [], COLUMNS)["ece_ts"] == (pytest.approx(0.025 / math.sqrt(2)), 1)
    write(tmp_path / "again.jsonl", later(first))
    with pytest.raises(InputError):
        rerun_moves(tmp_path, [], COLUMNS)


def test_without_a_second_run_the_study_itself_is_the_rerun(tmp_path):
    first = made(seeds=(42, 43))
    write(tmp_path / "results.jsonl", first)
    again = later(first, robust=0.05, vanilla=0.025)
    again = [{**row, "weights": "last", "views": 1, "target": ""} for row in again]
    assert rerun_moves(tmp_path, again, COLUMNS)["ece_ts"].size == pytest.approx(0.025 / math.sqrt(2))
    with pytest.raises(InputError):
        rerun_moves(tmp_path, [row for row in again if row["method"] == "vanilla"], COLUMNS)
