"""Cheaper: fewer sharp steps are compared with always sharp ones, seed by seed."""

import numpy as np
import pytest

from calmoe.errors import InputError
from studies.cheaper import SCORE, cheaper_table


def rows_of(*cells):
    rng = np.random.default_rng(0)
    return [
        {"method": method, "seed": seed, SCORE: float(rng.uniform())} | ({"value": every} if every else {})
        for method, every in cells
        for seed in (42, 43, 44)
    ]


def test_differences_are_within_seeds():
    rows = rows_of(("sharp", 1), ("sharp", 4), ("sharp_late", None), ("vanilla", None))
    always, rarely, late = (np.array([row[SCORE] for row in rows[at : at + 3]]) for at in (0, 3, 6))
    table = cheaper_table(rows).rows
    assert [row[0].values[0] for row in table] == ["sharp", "sharp", "sharp_late"]
    assert [row[3].values[0] for row in table] == pytest.approx(
        [part.mean() for part in (always, rarely, late)]
    )
    assert [row[4].values[0] for row in table[1:]] == pytest.approx(
        [(part - always).mean() for part in (rarely, late)]
    )


def test_without_the_always_sharp_there_is_nothing_to_compare_with():
    with pytest.raises(InputError, match="sharp_every 1"):
        cheaper_table(rows_of(("sharp", 2)))
