"""Reruns beside the table, against plain loops over stored rows and against noise of known size."""

import numpy as np
import pytest

import study_rows
from calmoe.errors import InputError
from studies.reruns import both_intervals, moves
from study_rows import RESULTS, student

SEEDS, TARGETS = (42, 43, 44), ("photo", "art_painting", "cartoon", "sketch")
COLUMNS = ("accuracy", "ece", "ece_ts", "nll_ts")


def trainings(draw, key, names, noise, seed_effect=0.0):
    """A model for each name, target and seed: what its seed gives it, and its own noise."""
    return [
        {key: name, "target": target, "seed": seed}
        | {c: seed_effect * (seed - 43) + float(draw.normal(0, noise)) for c in COLUMNS}
        for name in names
        for target in TARGETS
        for seed in SEEDS
    ]


def texts(grid):
    return {tuple(e.text for e in row[:2]): [e.values for e in row] for row in grid.rows}


def test_the_noise_of_a_training_is_found_whatever_the_seeds_do():
    draw, found, errors = np.random.default_rng(0), [], []
    for _ in range(50):
        table = trainings(draw, "method", ("robust", "vanilla"), 0.02, seed_effect=1.0)
        again = trainings(draw, "arm", ("as it is", "ERM"), 0.02, seed_effect=1.0)
        found += [row[3].values[0] ** 2 for row in moves(table, again).rows]
        errors += [row[4].values[0] ** 2 for row in both_intervals(table, again).rows]
    assert np.sqrt(np.mean(found)) == pytest.approx(0.02, rel=0.05)
    assert np.sqrt(np.mean(errors)) == pytest.approx(0.02 * np.sqrt(2 / 12), rel=0.1)


def test_the_interval_over_seeds_is_students_of_the_means_over_targets():
    rows = study_rows.read(RESULTS / "pacs/results.jsonl")
    again = study_rows.read(RESULTS / "pacs/switch.jsonl")
    robust, vanilla = (
        np.array([[r[m] for r in rows if (r["method"], r["seed"]) == (name, s)] for s in SEEDS])
        for name, m in (("robust", "ece_ts"), ("vanilla", "ece_ts"))
    )
    (row,) = [row for row in both_intervals(rows, again).rows if row[0].values == ("ece_ts",)]
    estimate, low, high = student((robust - vanilla).mean(1))
    assert row[1].values == pytest.approx((estimate,))
    assert row[3].values == pytest.approx((low, high))
    assert row[4].values[0] > 2 * row[2].values[0]  # what the pages say of it
    largest = {k: v[4][0] for k, v in texts(moves(rows, again)).items()}
    assert round(largest["Robust MoE", "Accuracy"], 3) == 0.061


def test_without_reruns_there_is_nothing_to_compare():
    draw = np.random.default_rng(1)
    table = trainings(draw, "method", ("robust", "vanilla"), 0.1)
    with pytest.raises(InputError, match="no rerun of Vanilla MoE: train 'ERM' first"):
        moves(table, trainings(draw, "arm", ("as it is",), 0.1))
