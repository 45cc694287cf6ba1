import numpy as np
import pytest

from calmoe.data.splits import last_rows_holdout, stratified_holdout


@pytest.mark.parametrize("fraction", [0.1, 0.37, 0.5])
def test_stratified_holdout_is_a_partition_with_every_stratum_on_both_sides(fraction):
    strata = np.repeat(["a", "b", "c"], [100, 31, 2])
    kept, held = stratified_holdout(strata, fraction, seed=3)
    assert sorted([*kept, *held]) == list(range(133))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(held) > 0).all()
    for stratum, size in (("a", 100), ("b", 31), ("c", 2)):
        assert (strata[held] == stratum).sum() == max(1, round(fraction * size))


def test_stratified_holdout_follows_its_seed():
    strata = np.arange(100) % 4
    assert (stratified_holdout(strata, 0.2, 1)[1] == stratified_holdout(strata, 0.2, 1)[1]).all()
    assert (stratified_holdout(strata, 0.2, 1)[1] != stratified_holdout(strata, 0.2, 2)[1]).any()


def test_a_lone_row_stays_in_training():
    kept, held = stratified_holdout(np.array([0, 1, 1]), 0.5, seed=0)
    assert 0 in kept
    assert len(held) == 1


def test_last_rows_are_held_out():
    kept, held = last_rows_holdout(50_000, 0.1)
    assert (kept[-1], held[0], held[-1]) == (44_999, 45_000, 49_999)
