"""Sums add up whatever the order, and say what rows say: every twin that takes sums beside its original."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import binned_gap, mean, spread
from calmoe.auditing.statistics.gaps import classwise, experts_gap
from calmoe.auditing.streaming.counting import classwise_cells, count, expert_cells, in_cells
from calmoe.auditing.streaming.from_sums import (
    WeightedGaps,
    binned_gap_from,
    celled_gap_from,
    mean_from,
    spread_from,
)
from calmoe.auditing.streaming.sums import GroupColumn
from strategies import seeds
from streaming_tables import part, random_predictions

BINS = 7


def same(one, other):
    """To the last digits: floating-point sums in another order."""
    assert one.totals.keys() == other.totals.keys()
    for name, values in one.totals.items():
        np.testing.assert_allclose(values, other.totals[name], rtol=1e-12, atol=1e-10)
    for name, values in one.peaks.items():
        np.testing.assert_array_equal(values, other.peaks[name])
    for name, column in one.groups.items():
        assert column.kind == other.groups[name].kind
        assert (column.values is None) == (other.groups[name].values is None)
        for value, tally in (column.values or {}).items():
            np.testing.assert_allclose(tally, other.groups[name].values[value], rtol=1e-12, atol=1e-10)


@given(seeds, st.lists(st.integers(1, 59), min_size=2, max_size=4, unique=True), st.randoms())
def test_any_split_merged_in_any_order_gives_the_sums_of_all_rows(seed, cuts, random):
    predictions = random_predictions(seed, 60)
    edges = [0, *sorted(cuts), 60]
    parts = [count(part(predictions, a, b), "top", BINS) for a, b in pairwise(edges)]
    random.shuffle(parts)
    from_left, from_right = parts[0], parts[-1]
    for each in parts[1:]:
        from_left = from_left.merge(each)
    for each in reversed(parts[:-1]):
        from_right = each.merge(from_right)
    same(from_left, from_right)
    same(from_left, count(predictions, "top", BINS))


def test_a_column_of_too_many_values_stays_unlisted():
    tally = np.zeros((5, BINS))
    some = GroupColumn("whole numbers", {str(i): tally for i in range(20)})
    more = GroupColumn("whole numbers", {str(i): tally for i in range(15, 40)})
    few = GroupColumn("whole numbers", {"1": tally})
    assert some.merge(more).values is None
    assert some.merge(more).merge(few).values is None
    assert few.merge(some.merge(more)).values is None
    assert len(some.merge(few).values) == 20


@given(seeds, st.sampled_from([1, 2, 50]))
def test_twins_of_means_agree(seed, rows):
    random = np.random.default_rng(seed)
    values, noise = random.normal(size=rows), random.random(rows) / 4
    total, squares = values.sum(), (values**2).sum()
    np.testing.assert_allclose(mean_from(total, squares, rows, 0.9), mean(values, 0.9), rtol=1e-9)
    assert spread_from(total, squares, noise.sum(), rows) == pytest.approx(spread(values, noise), rel=1e-9)


@given(seeds, st.sampled_from(["even", "uneven", "some without"]))
def test_twins_of_binned_gaps_agree(seed, kind):
    random = np.random.default_rng(seed)
    confidence, index = random.random(80), random.integers(0, BINS - 1, 80)
    residual, noise = (random.random(80) < confidence) - confidence, confidence * (1 - confidence)
    weights = {"even": np.ones(80), "uneven": random.random(80), "some without": (index > 2) * 1.0}[kind]
    heaviest = np.array([weights[index == b].max(initial=0) for b in range(BINS)])
    sums = WeightedGaps.of(residual, noise, index, BINS, weights)
    expected = binned_gap(residual, index, BINS, weights, 0.9, noise=noise)
    np.testing.assert_allclose(binned_gap_from(sums, heaviest, 0.9), expected, atol=1e-9)


@pytest.mark.parametrize("experts", [1, 2, 3])
def test_twins_of_celled_gaps_agree(experts):
    predictions = random_predictions(experts, 500, classes=4, experts=experts)
    seen = Configurations.of(predictions)
    for cells, size, unit, expected in (
        (classwise_cells(predictions, BINS), 4 * BINS, 1 / 4, classwise(predictions, bins=BINS)),
        (expert_cells(seen, BINS), experts * BINS, 1.0, experts_gap(seen, bins=BINS)),
    ):
        result = celled_gap_from(in_cells(cells, size), [cells], 500, 0.95, unit=unit)
        np.testing.assert_allclose(result, expected, atol=1e-9)
