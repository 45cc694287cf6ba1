"""Cheaper: fewer sharp steps are compared with always sharp ones, seed by seed."""

import numpy as np
import pytest

from calmoe.errors import InputError
from studies.cheaper import SCORE, cheaper_table
from study_rows import student


def rows_of(*cells):
    rng = np.random.default_rng(0)
    return [
        {"method": method, "seed": seed, SCORE: float(rng.uniform())} | ({"value": every} if every else {})
        for method, every in cells
        for seed in (42, 43, 44)
    ]


def test_differences_are_within_seeds():
    rows = rows_of(("sharp", 1), ("sharp", 4), ("sharp_late", None), ("vanilla", None), ("robust", None))
    always, rarely, late, plain = (
        np.array([row[SCORE] for row in rows[at : at + 3]]) for at in range(0, 12, 3)
    )
    table = cheaper_table(rows).rows
    assert [row[0].values[0] for row in table] == ["vanilla", "sharp", "sharp", "sharp_late"]
    assert [row[3].values[0] for row in table] == pytest.approx(
        [part.mean() for part in (plain, always, rarely, late)]
    )
    for place, than, parts in ((4, plain, (always, rarely, late)), (6, always, (rarely, late))):
        shown = [(*row[place].values, *row[place + 1].values) for row in table[-len(parts) :]]
        np.testing.assert_allclose(shown, [student(part - than) for part in parts])
    assert [row[place].text for row in table[:2] for place in (4, 6)] == ["–", "–", table[1][4].text, "–"]


@pytest.mark.parametrize("there", [("sharp", 1), ("vanilla", None)])
def test_without_plain_and_always_sharp_steps_there_is_nothing_to_compare_with(there):
    with pytest.raises(InputError, match="train it first"):
        cheaper_table(rows_of(("sharp", 2), there))
