"""Two trainings of the same methods and seeds."""

from itertools import product

import numpy as np
import pytest

import study_rows
from studies.again import both_runs
from studies.claims import COLUMNS
from study_rows import RESULTS, column, student


@pytest.mark.parametrize(("folder", "baseline"), [("cifar10h", "vanilla"), ("hatexplain", "single")])
def test_stored_runs(folder, baseline):
    first, second = (study_rows.read(RESULTS / folder / f"{name}.jsonl") for name in ("results", "again"))
    moves, sides, *published = both_runs(first, second, baseline)
    methods = sorted({row["method"] for row in first})

    def own(rows, method, name):
        return column(rows, name, method=method, protocol="corrected")

    for row in moves.rows:
        name = row[0].values[0]
        changes = np.array([own(second, method, name) - own(first, method, name) for method in methods])
        of_means, of_models = np.abs(changes.mean(1)).max(), np.abs(changes).max()
        assert [entry.values[0] for entry in row[1:]] == pytest.approx([of_means, of_models])
    shown = {(row[0].values[0], row[1].values[0]): row[2:] for row in sides.rows}
    assert len(COLUMNS) * (len(methods) - 1) == 64
    for method, name in product(methods, COLUMNS):
        if method == baseline:
            continue
        runs = [student(own(rows, method, name) - own(rows, baseline, name)) for rows in (first, second)]
        side = [(low > 0) - (high < 0) for _, low, high in runs]
        assert ((method, name) in shown) == (name == "hard_ece_ts" or side[0] != side[1])
        if (method, name) in shown:
            *entries, changes = shown[method, name]
            assert [entry.values for entry in entries] == [pytest.approx(run) for run in runs]
            assert changes.text == ("yes" if side[0] != side[1] else "")
    assert [grid.caption.count("published protocol") for grid in published] == [1, 1]


def test_the_same_run_twice_moves_nothing():
    rows = study_rows.made(("vanilla", "robust"), protocols=("corrected",))
    moves, sides = both_runs(rows, rows)
    assert all(entry.values == (0.0,) for row in moves.rows for entry in row[1:])
    assert [row[4].text for row in sides.rows] == [""]
