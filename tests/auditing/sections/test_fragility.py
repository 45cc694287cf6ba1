"""Reweightings within a KL radius: what they force is demonstrated, never more than is true."""

import numpy as np
import pytest

from calmoe import worlds
from calmoe.auditing import Configurations, fragility
from calmoe.auditing.statistics.adversaries import Past, Seen, best_signs, informed, regional
from calmoe.auditing.statistics.sequential import Lessons
from calmoe.worlds import WORLDS, cancellation
from oracle import oracle
from sizes import at_size, least, most, most_square
from strategies import divergence

RADII = (0.0, 0.02, 0.1, 0.3)


def known(world, rows=20_000):
    """A sample without chance: each configuration as often as its probability says, and its gap known."""
    counts = np.maximum((world.probability * rows).round().astype(int), 1)
    drawn = np.repeat(np.arange(len(counts)), counts)
    gap = world.gap[drawn]
    return Seen(gap, world.bins()[drawn], world.region[drawn], gap, gap, 0 * gap)


@pytest.mark.parametrize("name", ["cancelling", "calibrated experts", "miscalibrated"])
@pytest.mark.parametrize("seed", range(3))
def test_who_knows_the_truth_attains_the_true_curve(name, seed):
    world = WORLDS[name](seed)
    rows = known(world)
    for radius, true in zip(RADII, world.fragility(np.array(RADII)), strict=True):
        density, signs = informed(Past(rows, 15), rows, radius)
        assert density.mean() == pytest.approx(1)
        assert divergence(density) <= radius + 1e-9
        forced = (density * signs[rows.binned] * rows.residual).mean()
        assert forced == pytest.approx(true, rel=0.02, abs=1e-3)


@pytest.mark.parametrize("gap", [-0.5, 0.5])
def test_expected_errors_that_hardly_differ_from_row_to_row_overflow_nothing(gap):
    """As of a file of zeros and ones: each answer is off by a half, and a learned score moves little."""
    score = gap + np.linspace(-2e-6, 2e-6, 400)
    rows = Seen(score, np.full(400, 14), np.zeros(400, int), score, np.full(400, gap), np.zeros(400))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        density, signs = informed(Past(rows, 15), rows, 0.1)
    assert (density * signs[14] * gap).mean() == pytest.approx(0.5)
    assert divergence(density) == pytest.approx(0.1)


@pytest.mark.parametrize("seed", range(3))
def test_regions_are_reweighted_as_a_whole_and_attain_their_own_curve(seed):
    world = worlds.miscalibrated(seed, temperature=3.0)
    rows = known(world)
    for radius, true in zip(RADII, world.fragility(np.array(RADII), regions_only=True), strict=True):
        density, signs = regional(Past(rows, 15), rows, radius)
        for k in np.unique(rows.region):
            assert np.ptp(density[rows.region == k]) == 0
        assert divergence(density) <= radius + 1e-9
        forced = (density * signs[rows.binned] * rows.residual).mean()
        assert forced == pytest.approx(true, rel=0.02, abs=1e-3)


def test_of_several_sign_patterns_the_one_that_pushes_furthest():
    pushes = {(1.0, 1.0): [0.1, 0.1], (-1.0, -1.0): [-0.3, -0.3]}
    starts = np.array([[1.0, 1.0], [-1.0, -1.0]])
    best = best_signs(starts, lambda signs: np.array([pushes[tuple(each)] for each in signs]))
    assert best.tolist() == [-1, -1]


@pytest.mark.usefixtures("brief")
def test_the_curves_of_a_cancelling_world():
    world = worlds.cancelling(0, delta=0.15, rule="leading")
    configurations = Configurations.of(world.sample(8000, seed=0))
    found = fragility(configurations, radii=RADII)
    true = world.fragility(np.array(RADII))
    for curve in found.curves:
        assert curve.densities.shape == (len(RADII), len(found.rows))
        assert np.allclose(curve.densities.mean(axis=1), 1, atol=1e-5)
        assert curve.effective[0] == pytest.approx(len(found.rows))
        assert (np.diff(curve.effective) <= 1e-3 * len(found.rows)).all()
        assert all(point.low <= limit for point, limit in zip(curve.error, true, strict=True))
    errors = [point.value for point in found.configurations.error]
    assert errors[-1] > 0.7 * true[-1]
    assert found.doubled == pytest.approx(0.02, abs=0.01)
    assert 0 < found.doubling.low <= found.doubling.value <= found.doubling.high < 0.1
    assert found.configurations.reaches(0.5).value == np.inf


@pytest.mark.usefixtures("brief")
def test_hard_routing_is_flat_under_region_reweighting_but_not_under_others():
    world = worlds.hard_routed(1, delta=0.15)
    found = fragility(Configurations.of(world.sample(8000, seed=0)), radii=RADII)
    assert all(point.low <= 0 for point in found.regions.error)
    assert found.configurations.error[-1].low > 0.05


def test_intervals_hold_what_the_best_adversary_forces():
    """Who knows m − f reaches the true curve, from both sides alike."""
    times, held, errors = at_size(20, 200), 0, []
    for seed in range(times):
        world = worlds.cancelling(seed)
        sample = world.sample(5000, seed=1000 + seed)
        (error,) = fragility(
            Configurations.of(sample), [oracle(world, sample)], radii=(0.1,)
        ).configurations.error
        true = world.fragility(np.array([0.1]))[0]
        held += error.low <= true <= error.high
        errors.append((error.value - true) / error.standard_error)
    assert held >= least(times)
    assert np.mean(np.square(errors)) <= most_square(times)


@pytest.mark.usefixtures("brief")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cancelling", "calibrated"])
def test_rates_over_random_worlds(name):
    """Learning and all: a smaller `benchmarks/audit.py`."""
    times, shares, above = at_size(3, 100), [], 0
    for seed in range(times):
        world = WORLDS[name](seed)
        found = fragility(Configurations.of(world.sample(5000, seed=1000 + seed)), radii=RADII[:3])
        true = world.fragility(np.array(RADII[:3]))
        above += any(
            point.low > limit + 1e-12 for point, limit in zip(found.configurations.error, true, strict=True)
        )
        shares.append(found.configurations.error[-1].value / max(true[-1], 1e-12))
    assert above <= most(times)
    assert name == "calibrated" or np.mean(shares) >= 0.7


@pytest.mark.usefixtures("hasty")
def test_curves_are_the_middle_of_their_splits():
    seen = Configurations.of(worlds.cancelling(0).sample(1500, seed=0))
    lessons = Lessons(seen, seed=3, splits=5)
    found = fragility(seen, lessons, radii=RADII)
    alone = [fragility(seen, [lesson], radii=RADII) for lesson in lessons]
    assert found.splits == 5
    for curve in found.curves:
        each = np.array([[p.value for p in getattr(one, curve.name).error] for one in alone])
        assert np.allclose(curve.by_split, each)
        assert np.allclose([p.value for p in curve.error], np.median(each, axis=0))
        lows = np.array([[p.low for p in getattr(one, curve.name).error] for one in alone])
        assert (np.array([p.low for p in curve.error]) <= np.median(lows, axis=0) + 1e-12).all()
        low, high = curve.spread
        assert (low <= [p.value for p in curve.error]).all()
        assert (high >= [p.value for p in curve.error]).all()
    shown = [one for one in alone if np.array_equal(one.rows, found.rows)]  # the split that is drawn
    assert len(shown) == 1
    assert np.array_equal(shown[0].configurations.densities, found.configurations.densities)
    assert shown[0].configurations.error[2].value == found.configurations.error[2].value  # KL 0.1


def test_no_more_rows_are_attacked_than_need_be(monkeypatch):
    monkeypatch.setattr("calmoe.auditing.statistics.demonstration.MOST_ATTACKED", 500)
    world = worlds.cancelling(0)
    sample = world.sample(3000, seed=0)
    found = fragility(Configurations.of(sample), [oracle(world, sample)], radii=(0.1,))
    assert len(found.rows) == pytest.approx(500, abs=3)
    assert len(set(found.rows)) == len(found.rows)
    assert found.configurations.densities.shape == (1, len(found.rows))


def test_curves_without_anything_to_reweight_are_not_shown():
    world = cancellation.by_class(0, experts=1, classes=3)
    sample = world.sample(1000, seed=0)
    found = fragility(Configurations.of(sample), [oracle(world, sample)], radii=(0.0, 0.1))
    assert [curve.name for curve in found.moving] == ["configurations"]


@pytest.mark.parametrize("make", [worlds.cancelling, worlds.miscalibrated, worlds.calibrated])
def test_what_is_beyond_twice_the_ece_is_bounded(make):
    """Who knows m − f reaches F: then both ends hold, and no world is called what it is not."""
    times, below, above, wrong = at_size(12, 200), 0, 0, 0
    for seed in range(times):
        world = make(seed)
        sample = world.sample(3000, seed=1000 + seed)
        found = fragility(Configurations.of(sample), [oracle(world, sample)], radii=(0.1,))
        true = world.fragility(np.array([0.1]))[0] - 2 * max(world.ece(), 0.01)
        below += found.excess.low <= true
        above += true <= found.excess.high
        wrong += found.steadiness == ("steady" if true > 0 else "fragile")
    assert below >= least(times, 0.975)
    assert above >= least(times, 0.95)
    assert wrong <= most(times, 0.05)


def test_a_world_that_a_shift_breaks_is_fragile_and_a_calibrated_one_is_not():
    broken, sound = worlds.cancelling(0, delta=0.15), worlds.calibrated(0)
    for world, expected in ((broken, "fragile"), (sound, "steady")):
        sample = world.sample(40_000, seed=0)
        found = fragility(Configurations.of(sample), [oracle(world, sample)], radii=(0.1,))
        assert found.steadiness == expected
