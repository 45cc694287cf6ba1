"""Intervals that cover: means, sums of absolute gaps, and the ECE at fixed bins."""

import numpy as np
import pytest

from calmoe import worlds
from calmoe.auditing import Configurations, aggregate, hidden
from calmoe.auditing.sections import calibration
from calmoe.auditing.statistics import estimates
from calmoe.auditing.statistics.estimates import NONE, binned_gap, total_gap
from oracle import spare_learning, taught
from sizes import at_size, least

PATTERNS = {
    "calibrated": np.zeros(8),
    "one bin off": np.array([8.0, 0, 0, 0, 0, 0, 0, 0]),
    "half the bins off": np.array([4.0, 4, 4, 4, 0, 0, 0, 0]),
    "all a little off": np.full(8, 0.5),
    "all off": np.full(8, 6.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_interval_of_a_sum_of_absolute_values_covers(pattern):
    random, covered, times = np.random.default_rng(0), 0, at_size(200, 1000)
    for _ in range(times):
        errors = np.exp(0.4 * random.normal(size=8))
        truth = PATTERNS[pattern] * errors
        found = total_gap(truth + errors * random.normal(size=8), np.diag(errors**2), draws=400)
        covered += found.low <= truth.sum() <= found.high
        assert found.low <= found.value <= found.high
    assert covered >= least(times)


def test_far_from_zero_the_interval_is_the_normal_one():
    errors = np.array([0.01, 0.02, 0.02])
    found = total_gap(np.array([0.5, -0.6, 0.7]), np.diag(errors**2), draws=20_000)
    half = 1.96 * np.sqrt((errors**2).sum())
    assert found.value == pytest.approx(1.8, abs=0.001)
    assert (found.low, found.high) == pytest.approx((1.8 - half, 1.8 + half), abs=0.002)


def test_bins_without_noise_count_as_they_are():
    assert total_gap(np.array([0.1, -0.2]), np.zeros((2, 2))) == pytest.approx((0.3, 0.3, 0.3, 0.0))
    assert total_gap(np.array([0.0, 0.0]), np.zeros((2, 2))).high == 0


def test_a_weight_of_zero_is_a_row_that_is_not_there():
    random = np.random.default_rng(1)
    residual, index = random.normal(size=400) * 0.3, random.integers(0, 5, size=400)
    weights = np.repeat([1.0, 0.0], 200)
    whole, part = binned_gap(residual, index, 5, weights), binned_gap(residual[:200], index[:200], 5)
    assert whole == pytest.approx(part)


def test_the_plain_ece_lies_in_the_interval_of_gaps_that_are_far_from_zero():
    random = np.random.default_rng(2)
    index = random.integers(0, 3, size=5000)
    residual = (random.random(5000) < 0.9) - 0.6
    found = binned_gap(residual, index, 3)
    assert found.value == pytest.approx(np.abs(np.bincount(index, residual)).sum() / 5000, abs=1e-3)
    assert found.standard_error == pytest.approx(residual.std() / 5000**0.5, rel=0.1)


def test_means_and_bounds():
    assert estimates.mean(np.arange(5.0)).value == 2
    bound = estimates.at_least(0.3, 0.1)
    assert bound.low == pytest.approx(0.3 - 0.1645, abs=1e-4)
    assert bound.high == float("inf")


def test_a_share_has_wilsons_interval():
    assert estimates.proportion(0.0, 10).low == 0
    assert estimates.proportion(0.0, 10).high == pytest.approx(0.2775, abs=1e-4)
    assert estimates.proportion(0.5, 10_000)[1:3] == pytest.approx((0.4902, 0.5098), abs=1e-4)


def test_a_lucky_sample_has_no_narrow_interval():
    """Gaps that happen to be tiny do not promise that the truth is."""
    lucky, usual = (total_gap(np.full(8, gap), 0.01**2 * np.eye(8)) for gap in (0.0001, 0.008))
    assert lucky.high > 0.5 * usual.high


def test_no_error_seen_is_not_no_error():
    f = np.full(500, 0.998)  # one error is expected; in e^-1 of samples there is none
    residual, noise = 1 - f, f * (1 - f)
    assert estimates.spread(residual, noise) * 500 > 0.9
    assert binned_gap(residual, np.zeros(500, int), 1, noise=noise).low == 0


@pytest.mark.slow
@pytest.mark.parametrize("rows", [300, 1000, 5000])
def test_intervals_cover_where_errors_are_rare(rows, monkeypatch):
    monkeypatch.setattr(calibration, "smooth", lambda *_, **__: NONE)  # has its own test, and takes most time
    spare_learning(monkeypatch)
    covered, times = {"ece": 0, "balance": 0, "witness": 0, "accuracy": 0}, at_size(20, 400)
    for seed in range(times):
        world = worlds.confident(seed)
        sample = world.sample(rows, seed=1000 + seed)
        seen, judge = Configurations.of(sample), np.random.default_rng(seed).normal(size=rows)
        told, found = aggregate(seen), hidden(seen, [taught(judge)])
        covered["ece"] += told.ece.low <= world.ece() + 1e-12
        covered["balance"] += told.balance.low <= 0 <= told.balance.high
        covered["witness"] += found.witness.low <= world.hidden + 1e-12
        covered["accuracy"] += told.accuracy.low <= world.probability @ world.correct <= told.accuracy.high
    assert min(covered.values()) >= least(times)


@pytest.mark.parametrize("tail", [1e-3, 1e-4])
def test_levels_that_draws_cannot_resolve_hold(tail):
    """The smallest gaps that a level near 1 takes for more than zero: true zeros give as much hardly ever."""
    random, errors = np.random.default_rng(0), np.array([0.5, 1.0, 1.0, 2.0, 0.7, 1.5])
    low, high = 0.0, 50.0
    for _ in range(25):
        size = (low + high) / 2
        shown = total_gap(size * errors, np.diag(errors**2), level=1 - 2 * tail).low > 0
        low, high = (low, size) if shown else (size, high)
    sums = np.abs(random.normal(size=(400_000, 6)) * errors).sum(axis=1)
    assert (sums > high * errors.sum()).mean() <= tail
    assert (sums > high * errors.sum() / 1.6).mean() > tail  # and no wider than it need be, by much
