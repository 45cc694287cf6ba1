"""Worlds of five classes: exact identities, and what the audit says of them."""

import numpy as np
import pytest

from calmoe.auditing import Configurations, aggregate, fragility, hidden
from calmoe.auditing.sections import calibration
from calmoe.auditing.statistics.estimates import NONE
from calmoe.auditing.statistics.sequential import learn
from calmoe.metrics import brier_score, ece, nll
from calmoe.worlds import cancellation, multiclass
from oracle import oracle, spare_learning
from sizes import at_size, least, most
from strategies import divergence

SEEDS = range(5)


@pytest.mark.parametrize("name", multiclass.WORLDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_world_is_a_world(name, seed):
    world = multiclass.WORLDS[name](seed)
    assert world.probability.sum() == pytest.approx(1)
    for values in (world.routing, world.truth, world.mixture, world.experts):
        assert np.allclose(values.sum(axis=-1), 1)
        assert values.min() >= 0
    assert world.ece() <= world.level_set_error + 1e-12
    assert world.level_set_error <= world.hidden + 1e-12
    assert abs(world.balance) <= world.ece() + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_each_is_the_case_it_is_named_after(seed):
    assert multiclass.calibrated(seed).hidden == pytest.approx(0, abs=1e-12)
    assert multiclass.calibrated(seed).classwise_ece() == pytest.approx(0, abs=1e-12)
    cancelling = multiclass.cancelling(seed, delta=0.07)
    assert cancelling.hidden == pytest.approx(0.07)
    assert cancelling.level_set_error == pytest.approx(0, abs=1e-12)
    outright = multiclass.miscalibrated(seed)
    assert outright.level_set_error == pytest.approx(outright.hidden)
    assert outright.hidden > 0.03


def test_samples_follow_the_world_and_the_event_is_the_top_label():
    world = multiclass.miscalibrated(1)
    given = world.sample(100_000, seed=0)
    drawn, seen = given.groups["configuration"], Configurations.of(given)
    found = np.bincount(drawn, seen.outcome) / np.bincount(drawn)
    assert np.abs(found - world.correct).max() < 0.1
    assert np.allclose(seen.confidence, world.confidence[drawn])
    assert ece(given.output.probs, given.labels) == pytest.approx(world.ece(), abs=0.01)


def test_scores_are_those_of_the_rows():
    world = multiclass.miscalibrated(1)
    given = world.sample(200_000, seed=0)
    assert nll(given.output.log_probs, given.labels) == pytest.approx(world.nll, abs=0.02)
    assert brier_score(given.output.probs, given.labels) == pytest.approx(world.brier, abs=0.01)


def test_a_shifted_world_keeps_its_truth_has_the_radius_and_other_classes():
    world = cancellation.by_class(3, experts=1, classes=3)
    target = multiclass.shifted(world, 3, 0.25)
    density = target.probability / world.probability
    assert divergence(density, world.probability) == pytest.approx(0.25, abs=1e-6)
    assert (target.truth == world.truth).all()
    predicted = world.mixture.argmax(axis=1)
    before, after = (np.bincount(predicted, each.probability) for each in (world, target))
    assert np.abs(after - before).max() > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", multiclass.WORLDS)
def test_intervals_cover_over_random_worlds(name, monkeypatch):
    """ECE, experts, and what a witness and an adversary show who know the world."""
    monkeypatch.setattr(calibration, "smooth", lambda *_, **__: NONE)  # has its own test, and takes most time
    spare_learning(monkeypatch)
    times, covered = at_size(10, 200), {"ece": 0, "views": 0, "witness": 0, "curve": 0}
    for seed in range(times):
        world = multiclass.WORLDS[name](seed)
        sample = world.sample(5000, seed=1000 + seed)
        seen, learned = Configurations.of(sample), oracle(world, sample)
        told, found = aggregate(seen), hidden(seen, [learned])
        covered["ece"] += told.ece.low <= world.ece() + 1e-12 and world.ece() <= told.ece.high
        covered["views"] += all(
            e.view.low <= world.expert_ece(k) + 1e-12 and world.expert_ece(k) <= e.view.high
            for k, e in enumerate(told.experts)
            if not np.isnan(e.view.value)
        )
        covered["witness"] += (
            found.witness.low <= world.hidden and found.cancelled.low <= world.cancellation()
        )
        (forced,) = fragility(seen, [learned], radii=(0.1,)).configurations.error
        covered["curve"] += forced.low <= world.fragility(np.array([0.1]))[0] + 1e-12
    assert min(covered.values()) >= least(times)


@pytest.mark.slow
@pytest.mark.parametrize("name", multiclass.WORLDS)
def test_rates_over_random_worlds(name):
    """Learning and all, as `benchmarks/audit.py` has it at full size."""
    times, honest, rejected, above, shares = at_size(3, 100), 0, 0, 0, []
    for seed in range(times):
        world = multiclass.WORLDS[name](seed)
        seen = Configurations.of(world.sample(5000, seed=1000 + seed))
        learned = learn(seen)
        found = hidden(seen, [learned])
        honest += found.witness.low <= world.hidden and found.cancelled.low <= world.cancellation()
        rejected += found.p_hidden < 0.05
        (forced,) = fragility(seen, [learned], radii=(0.1,)).configurations.error
        true = world.fragility(np.array([0.1]))[0]
        above += forced.low > true + 1e-12
        shares.append(forced.value / max(true, 1e-12))
    assert honest >= least(times)
    assert above <= most(times)
    assert rejected >= least(times, 0.9) if name.startswith("cancelling") else rejected <= most(times)
    assert name.startswith("calibrated") or np.mean(shares) >= 0.7
