"""Truer: gains are paired within seeds, and their error is the larger of the seeds' and the reruns'."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from studies.truer import METRICS, cell_of, cells_in_order, gain, gains_table, means_table, rerun_moves
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
    assert found.error == pytest.approx(np.std(by_seed, ddof=1) / math.sqrt(3))
    half = found.error * student.ppf(1 - 0.05 / 2 / 10, 2)
    assert found.bounds(10) == pytest.approx((found.estimate - half, found.estimate + half))


def test_reruns_that_move_more_than_the_seeds_scatter_make_the_error():
    rows = rows_of()
    by_seeds = gain(rows, CELLS[1], "accuracy", moves=[1e-9, -1e-9])
    assert by_seeds == gain(rows, CELLS[1], "accuracy")
    by_reruns = gain(rows, CELLS[1], "accuracy", moves=[8.0, -8.0, 8.0, 8.0])
    assert by_reruns.error == pytest.approx(8 / math.sqrt(2) / math.sqrt(3))
    assert by_reruns.freedom == 4


def test_moves_are_those_of_the_difference_from_vanilla(tmp_path):
    first, again = made(seeds=(42, 43)), made(seeds=(42, 43))
    for row in again:
        if row["protocol"] == "corrected":  # both methods move, Robust MoE by 0.025 more
            row["ece_ts"] += 0.05 if row["method"] == "robust" else 0.025
    write(tmp_path / "results.jsonl", first)
    write(tmp_path / "again.jsonl", again)
    assert rerun_moves(tmp_path)["ece_ts"] == pytest.approx([0.025, 0.025])


def test_tables_have_a_row_a_cell():
    rows = rows_of()
    assert cells_in_order(rows) == CELLS
    assert [row[4].values[0] for row in means_table(rows).rows] == pytest.approx(
        [np.mean([row["accuracy"] for row in rows if cell_of(row) == cell]) for cell in CELLS]
    )
    assert [len(section) for section in gains_table(rows, {}).sections] == [1, 1]
