"""The aggregate beside its experts, against exact sums."""

import numpy as np
import pytest

from calmoe import worlds
from calmoe.auditing import Configurations, aggregate
from calmoe.auditing.sections import calibration
from calmoe.auditing.statistics.estimates import NONE
from calmoe.metrics import adaptive_ece, ece
from calmoe.worlds import WORLDS
from sizes import at_size, least, most_square


def test_the_plain_numbers_are_those_of_the_metrics():
    given = worlds.miscalibrated(0).sample(3000, seed=0)
    result = aggregate(Configurations.of(given))
    assert result.plain_ece.value == pytest.approx(ece(given.output.probs, given.labels))
    plain = adaptive_ece(given.output.probs, given.labels)
    assert result.adaptive_ece.low <= plain <= result.adaptive_ece.high


def test_the_experts_balances_add_up_to_the_mixtures():
    for make in WORLDS.values():
        result = aggregate(Configurations.of(make(1).sample(2000, seed=0)))
        total = sum(expert.balance.value for expert in result.experts)
        assert total == pytest.approx(result.balance.value, abs=1e-6)
        assert sum(expert.share.value for expert in result.experts) == pytest.approx(1, abs=1e-6)
        assert sum(expert.leads.value for expert in result.experts) == pytest.approx(1)


def test_calibrated_experts_and_a_broken_aggregate_are_told():
    result = aggregate(Configurations.of(worlds.calibrated_experts(0).sample(20_000, seed=0)))
    assert result.worse_than_experts
    assert not result.calibrated_unlike_experts
    assert all(expert.view.low == 0 for expert in result.experts)
    assert result.experts_ece.low == 0


def test_the_comparison_is_of_the_same_rows():
    """Copies of one expert: the mixture's ECE is each view's, row by row, and no noise is left."""
    world = worlds.miscalibrated(0)
    same = np.repeat(world.mixture[:, None], 3, axis=1)
    twin = worlds.World(
        probability=world.probability, routing=np.full((80, 3), 1 / 3), experts=same, truth=world.truth
    )
    result = aggregate(Configurations.of(twin.sample(4000, seed=0)))
    assert not result.worse_than_experts
    for expert in result.experts:
        assert expert.excess.standard_error < 1e-6
        assert -0.05 < expert.excess.low <= expert.excess.value == pytest.approx(0, abs=0.003)


def test_a_calibrated_mixture_of_experts_that_are_not_is_told():
    world = worlds.calibrated(0)
    assert min(world.expert_ece(k) for k in range(3)) > 0.05
    result = aggregate(Configurations.of(world.sample(5000, seed=0)))
    assert result.calibrated_unlike_experts
    assert not result.worse_than_experts


def test_an_expert_that_is_never_asked_is_not_judged():
    world = worlds.hard_routed(0)
    routing = np.pad(world.routing, ((0, 0), (0, 1)))
    experts = np.pad(world.experts, ((0, 0), (0, 1)), constant_values=0.6)
    wider = worlds.World(probability=world.probability, routing=routing, experts=experts, truth=world.truth)
    result = aggregate(Configurations.of(wider.sample(1000, seed=0)))
    assert np.isnan(result.experts[3].view.value)
    assert np.isnan(result.experts[3].region.value)
    assert result.experts[3].share.value == 0
    assert not np.isnan(result.experts_ece.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_intervals_cover_over_random_worlds(name, monkeypatch):
    monkeypatch.setattr(calibration, "smooth", lambda *_, **__: NONE)  # has its own test, and takes most time

    def holds(found, true):
        return np.isnan(found.value) or (found.low <= true + 1e-12 and true <= found.high + 1e-12)

    covered, times, errors = {"ece": 0, "balance": 0, "views": 0, "regions": 0}, at_size(14, 200), []
    for seed in range(times):
        world = WORLDS[name](seed)
        result = aggregate(Configurations.of(world.sample(5000, seed=1000 + seed)))
        told = list(enumerate(result.experts))
        covered["ece"] += holds(result.ece, world.ece())
        covered["balance"] += holds(result.balance, world.balance)
        errors.append((result.balance.value - world.balance) / result.balance.standard_error)
        covered["views"] += all(holds(e.view, world.expert_ece(k)) for k, e in told)
        covered["regions"] += all(
            holds(e.region, world.expert_ece(k, region=True)) for k, e in told if e.leads.value > 0
        )
    assert min(covered.values()) >= least(times)
    assert np.mean(np.square(errors)) <= most_square(times)
