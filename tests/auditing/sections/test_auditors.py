"""The auditors' moments against exact sums, and intervals that hold together."""

import numpy as np
import pytest

from calmoe import worlds
from calmoe.auditing import Configurations, auditors
from calmoe.auditing.sections.auditors import levels
from calmoe.defaults import BINS
from calmoe.metrics.binned import width_bins
from calmoe.worlds import WORLDS
from sizes import at_size, least


@pytest.mark.parametrize("kind", ["indicator", "hat"])
def test_the_moments_are_the_means_they_are_defined_as(kind):
    found = Configurations.of(worlds.cancelling(0).sample(3000, seed=0))
    result = auditors(found, kind=kind, bins=10)
    for k in range(3):
        for j, node in enumerate(result.nodes):
            if kind == "indicator":
                phi = (found.bins(10) == j).astype(float)
            else:
                phi = np.maximum(1 - 10 * np.abs(found.confidence - node), 0)
            g = found.routing[:, k] * phi
            assert result.moments[k, j] == pytest.approx((g * found.residual).mean(), abs=1e-9)
            assert result.mass[k, j] == pytest.approx(g.mean(), abs=1e-9)
            if result.effective[k, j] >= 100:
                ratio = (g * found.residual).sum() / g.sum()
                assert result.normalised[k, j] == pytest.approx(ratio)
                assert result.normalised_low[k, j] < ratio < result.normalised_high[k, j]
            else:
                assert np.isnan(result.normalised[k, j])
    assert result.moments.sum() == pytest.approx(found.residual.mean())  # both kinds add up to one


@pytest.mark.parametrize("kind", ["indicator", "hat"])
def test_levels_add_up_to_one_and_indicators_are_the_bins(kind):
    confidence = np.concatenate([np.random.default_rng(0).random(200), [0.0, 0.2, 1.0]])
    phi = levels(confidence, 15, kind)
    assert np.allclose(phi.sum(axis=1), 1)
    if kind == "indicator":
        import torch

        assert (phi.argmax(axis=1) == width_bins(torch.as_tensor(confidence), 15).numpy()).all()


def test_no_moment_exceeds_the_bound():
    for make in WORLDS.values():
        result = auditors(Configurations.of(make(0).sample(2000, seed=0)))
        assert (np.abs(result.moments) <= result.sharper + 1e-12).all()
        assert (result.sharper <= result.bound.value + 1e-12).all()
        assert result.bound.low < result.bound.value < result.bound.high


def test_one_expert_is_the_reliability_diagram():
    world = worlds.miscalibrated(0, experts=1)
    found = Configurations.of(world.sample(4000, seed=0))
    result = auditors(found)
    sums = np.bincount(found.bins(BINS), found.residual, minlength=BINS) / 4000
    assert np.allclose(result.moments[0], sums)
    assert result.found.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_intervals_hold_together_over_random_worlds(name):
    covered, times = 0, at_size(40, 400)
    for seed in range(times):
        world = WORLDS[name](seed)
        result = auditors(Configurations.of(world.sample(5000, seed=1000 + seed)))
        true = world.moments(world.routing[:, :, None] * levels(world.confidence, BINS)[:, None, :])
        told = ~np.isnan(result.low)
        covered += ((result.low <= true) & (true <= result.high))[told].all()
    assert covered >= least(times)
