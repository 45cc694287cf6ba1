"""The ECE family: the plain numbers inside, and intervals that cover."""

import numpy as np
import pytest

from calmoe import worlds
from calmoe.auditing import Configurations
from calmoe.auditing.statistics.estimates import binned_gap
from calmoe.auditing.statistics.gaps import GRID, celled_gap, classwise, experts_gap, smooth, smoothing
from calmoe.metrics import classwise_ece, smooth_ece
from calmoe.worlds import WORLDS, multiclass
from sizes import at_size, least


def test_cells_that_do_not_overlap_are_bins():
    seen = Configurations.of(worlds.miscalibrated(0).sample(4000, seed=0))
    index = seen.bins(15)
    cells = celled_gap([(index[:, None], seen.residual[:, None], seen.noise[:, None])], 15, 4000)
    assert cells == pytest.approx(binned_gap(seen.residual, index, 15, noise=seen.noise), rel=0.03)


def test_chunks_add_up():
    random = np.random.default_rng(0)
    cells, values = random.integers(0, 6, (1000, 2)) + np.array([0, 6]), random.normal(size=(1000, 2)) * 0.3
    whole = celled_gap([(cells, values, 0 * values)], 12, 1000)
    halves = [(cells[part], values[part], 0 * values[part]) for part in (slice(0, 300), slice(300, None))]
    assert celled_gap(halves, 12, 1000) == pytest.approx(whole)


def test_far_from_calibrated_they_are_the_plain_numbers():
    given = multiclass.miscalibrated(0, temperature=8.0).sample(20_000, seed=0)
    plain = classwise_ece(given.output.probs, given.labels)
    assert classwise(given).value == pytest.approx(plain, rel=0.1)
    seen = Configurations.of(given)
    assert smooth(seen).value == pytest.approx(smooth_ece(given.output.probs, given.labels), rel=0.1)


def test_the_kernel_keeps_mass_and_spreads_it():
    kernel = smoothing(0.1)
    point = np.zeros(GRID + 1)
    point[GRID // 2] = 1
    spread = kernel @ point
    assert spread.sum() == pytest.approx(1)
    grid = np.arange(GRID + 1) / GRID
    assert np.sqrt(spread @ (grid - 0.5) ** 2) == pytest.approx(0.1, rel=0.01)  # σ, away from the ends


def test_the_experts_average_is_the_sum_over_their_views():
    world = worlds.calibrated(0)
    seen = Configurations.of(world.sample(50_000, seed=0))
    shares = world.probability @ world.routing
    true = sum(share * world.expert_ece(k) for k, share in enumerate(shares))
    found = experts_gap(seen)
    assert found.low <= true <= found.high
    assert found.value == pytest.approx(true, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", multiclass.WORLDS)
def test_intervals_cover_over_worlds_of_five_classes(name):
    covered, times = {"classwise": 0, "experts": 0}, at_size(20, 200)
    for seed in range(times):
        world = multiclass.WORLDS[name](seed)
        given = world.sample(3000, seed=1000 + seed)
        shares = world.probability @ world.routing
        true = sum(share * world.expert_ece(k) for k, share in enumerate(shares))
        for key, found, truth in (
            ("classwise", classwise(given), world.classwise_ece()),
            ("experts", experts_gap(Configurations.of(given)), true),
        ):
            covered[key] += found.low <= truth + 1e-12 and truth <= found.high + 1e-12
    assert min(covered.values()) >= least(times)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_the_smooth_interval_covers_at_a_bandwidth(name):
    covered, times = 0, at_size(8, 200)
    for seed in range(times):
        world = WORLDS[name](seed)
        position = world.confidence * GRID
        left = np.minimum(position.astype(int), GRID - 1)
        mass = world.probability * world.gap
        right = mass * (position - left)
        line = np.bincount(left, mass - right, minlength=GRID + 1)
        line += np.bincount(left + 1, right, minlength=GRID + 1)
        true = np.abs(smoothing(0.03) @ line).sum()
        found = smooth(Configurations.of(world.sample(3000, seed=1000 + seed)), bandwidth=0.03)
        covered += found.low <= true + 1e-9 and true <= found.high + 1e-9
    assert covered >= least(times)
