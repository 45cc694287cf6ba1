"""Truer: gains are paired within seeds, and their error is the larger of the seeds' and the reruns'."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from calmoe.errors import InputError
from studies.truer import (
    METRICS,
    alone_table,
    cell_of,
    cells_in_order,
    complete,
    gain,
    gains_table,
    means_table,
    parse_cell,
    rerun_moves,
)
from study_rows import made, write

CELLS = [("vanilla", "last", 1), ("vanilla", "last", 10), ("sharp", "last", 1)]


def rows_of(seeds=(42, 43, 44), targets=("",)):
    rng = np.random.default_rng(0)
    return [
        {
            "method": method, "weights": weights, "views": views, "seed": seed, "target": target,
            "routing_entropy": None, "witness": [0.0, 0.0], "validation_nll": 1.0,
            **{name: float(rng.uniform()) for name in METRICS},
        }
        for method, weights, views in CELLS for seed in seeds for target in targets
    ]  # fmt: skip


def test_a_gain_is_the_mean_over_seeds_of_differences_within_them():
    rows = rows_of(targets=("art", "photo"))
    sharp, plain = (
        [row["nll_ts"] for row in rows if (row["method"], row["views"]) == (method, 1)]
        for method in ("sharp", "vanilla")
    )
    by_seed = np.subtract(sharp, plain).reshape(3, 2).mean(axis=1)
    found = gain(rows, ("sharp", "last", 1), "nll_ts")
    assert found.pairs == 6
    assert found.estimate == pytest.approx(np.mean(by_seed))
    ((error, freedom),) = found.errors
    assert (error, freedom) == (pytest.approx(np.std(by_seed, ddof=1) / math.sqrt(3)), 2)
    half = error * student.ppf(1 - 0.05 / 2 / 10, 2)
    assert found.bounds(10) == pytest.approx((found.estimate - half, found.estimate + half))


def test_an_interval_is_the_wider_of_seeds_and_reruns():
    rows, sharp = rows_of(), CELLS[2]
    by_seeds = gain(rows, sharp, "accuracy")
    assert gain(rows, sharp, "accuracy", moves=[1e-9, -1e-9]).bounds(3) == by_seeds.bounds(3)
    low, high = gain(rows, sharp, "accuracy", moves=[8.0, -8.0, 8.0, 8.0]).bounds(3)
    assert (high - low) / 2 == pytest.approx(
        8 / math.sqrt(2) / math.sqrt(3) * student.ppf(1 - 0.05 / 2 / 3, 4)
    )


def test_reruns_do_not_move_two_readings_of_one_training_apart():
    rows, views = rows_of(), CELLS[1]
    assert gain(rows, views, "accuracy", moves=[8.0, -8.0]) == gain(rows, views, "accuracy")


def test_a_seed_counts_once_all_of_its_targets_are_there():
    whole, part = rows_of(targets=("art", "photo")), rows_of((45,), targets=("art",))
    assert complete(whole + part) == whole


def test_a_cell_alone_pays_for_no_other_comparison():
    rows, sharp = rows_of(), CELLS[2]
    table = alone_table(rows, {}, parse_cell("sharp,last,1", rows))
    shown = [row[2].values for row in table.rows]
    np.testing.assert_allclose(shown, [gain(rows, sharp, column).bounds(1) for column in METRICS])
    with pytest.raises(InputError):
        parse_cell("sharp,averaged,1", rows)


def test_moves_are_those_of_the_difference_from_vanilla(tmp_path):
    first, again = made(seeds=(42, 43)), made(seeds=(42, 43))
    for row in again:
        if row["protocol"] == "corrected":  # both methods move, Robust MoE by 0.025 more
            row["ece_ts"] += 0.05 if row["method"] == "robust" else 0.025
    write(tmp_path / "results.jsonl", first)
    write(tmp_path / "again.jsonl", again)
    assert rerun_moves(tmp_path, [])["ece_ts"] == pytest.approx([0.025, 0.025])


def test_without_a_second_run_the_study_itself_is_the_rerun(tmp_path):
    rows = rows_of((42, 43))
    first = [
        {**row, "protocol": "corrected", "ece_ts": row["ece_ts"] - 0.025 * (row["method"] == "robust")}
        for row in made(seeds=(42, 43))
        if row["protocol"] == "corrected"
    ]
    write(tmp_path / "results.jsonl", first)
    again = [{**row, "weights": "last", "views": 1, "target": ""} for row in made(seeds=(42, 43))]
    again = [row for row in again if row["protocol"] == "corrected"]
    assert rerun_moves(tmp_path, again)["ece_ts"] == pytest.approx([0.025, 0.025])
    with pytest.raises(InputError):
        rerun_moves(tmp_path, rows)  # it has no method of that run but Vanilla MoE


def test_tables_have_a_row_a_cell():
    rows = rows_of()
    assert cells_in_order(rows) == CELLS
    assert [row[4].values[0] for row in means_table(rows).rows] == pytest.approx(
        [np.mean([row["accuracy"] for row in rows if cell_of(row) == cell]) for cell in CELLS]
    )
    assert [len(section) for section in gains_table(rows, {}).sections] == [1, 1]
