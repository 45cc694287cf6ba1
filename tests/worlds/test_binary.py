"""What the worlds promise, as exact identities."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from calmoe import worlds
from calmoe.auditing.statistics.tilting import tilt
from calmoe.metrics.routing import expert_variance
from calmoe.worlds import WORLDS
from calmoe.worlds.binary import World
from strategies import divergence

SEEDS = range(5)


def by_value(values, weights):
    """Sums of weights at equal values."""
    return np.bincount(np.unique(values.round(10), return_inverse=True)[1], weights)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_world_is_a_world(name, seed):
    world = WORLDS[name](seed)
    assert world.probability.sum() == pytest.approx(1)
    assert np.allclose(world.routing.sum(axis=1), 1)
    for values in (world.probability, world.routing, world.experts, world.truth):
        assert values.min() >= 0
        assert values.max() <= 1
    assert world.confidence.min() >= 0.5
    # binning can only hide, conditioning on less can only cancel (Jensen)
    assert world.ece() <= world.level_set_error + 1e-12
    assert world.level_set_error <= world.hidden + 1e-12
    assert abs(world.balance) <= world.ece() + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_each_world_is_the_case_it_is_named_after(seed):
    assert worlds.calibrated(seed).hidden == pytest.approx(0, abs=1e-12)
    for rule in ("leading", "disagreement"):
        cancelling = worlds.cancelling(seed, delta=0.07, rule=rule)
        assert cancelling.hidden == pytest.approx(0.07)
        assert cancelling.level_set_error == pytest.approx(0, abs=1e-12)
    outright = worlds.miscalibrated(seed)
    assert outright.level_set_error == pytest.approx(outright.hidden)
    assert outright.hidden > 0.03
    assert (outright.gap <= 1e-12).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_calibrated_experts_are_calibrated_on_their_views_and_their_aggregate_is_not(seed):
    world = worlds.calibrated_experts(seed)
    for k in range(2):
        own = world.experts[:, k]
        weighted = world.probability * world.routing[:, k] * (world.truth - own)
        assert np.abs(by_value(own, weighted)).max() < 1e-12  # E[r_k (Y − f_k) | f_k] = 0
        assert world.expert_ece(k) == pytest.approx(0, abs=1e-12)
    assert (world.probability * (world.truth - world.mixture)).sum() == pytest.approx(0, abs=1e-12)
    assert world.level_set_error > 0.03
    disagreement = world.probability @ expert_variance(world.routing, world.experts)
    moment = world.probability @ (world.mixture * (world.truth - world.mixture))
    assert moment == pytest.approx(disagreement, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_hard_routing_is_calibrated_slice_by_slice_and_flat_under_region_reweighting(seed):
    world = worlds.hard_routed(seed)
    for k in range(3):
        inside = world.region == k
        slices = by_value(world.confidence[inside], (world.probability * world.gap)[inside])
        assert np.abs(slices).max() < 1e-12
    radii = np.array([0.0, 0.1, 0.5])
    assert np.abs(world.fragility(radii, regions_only=True)).max() < 1e-9
    assert world.fragility(radii)[1] > 0.02


def test_samples_follow_the_world():
    world = worlds.cancelling(3)
    predictions = world.sample(200_000, seed=0)
    drawn = predictions.groups["configuration"]
    assert np.allclose(np.bincount(drawn) / len(drawn), world.probability, atol=0.004)
    found = np.bincount(drawn, predictions.labels.numpy()) / np.bincount(drawn)
    assert np.abs(found - world.truth).max() < 0.05
    assert np.allclose(predictions.output.probs.numpy()[:, 1], world.mixture[drawn])


def tiny(seed):
    random = np.random.default_rng(seed)
    routing = random.dirichlet([1, 1], size=6)
    experts = np.concatenate([random.uniform(0.55, 0.6, (3, 2)), random.uniform(0.75, 0.79, (3, 2))])
    return World(
        probability=random.dirichlet(np.ones(6)),
        routing=routing,
        experts=experts,
        truth=random.uniform(0.4, 0.9, 6),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_true_fragility_is_the_optimum_that_a_general_solver_finds(seed):
    world, radius = tiny(seed), 0.1
    used, index = np.unique(world.bins(), return_inverse=True)
    best = 0.0
    for signs in product([-1, 1], repeat=len(used)):
        slope = np.array(signs)[index] * world.gap
        found = minimize(
            lambda q, slope=slope: -q @ slope,
            world.probability,
            jac=lambda q, slope=slope: -slope,
            bounds=[(1e-9, 1)] * 6,
            constraints=[
                {"type": "eq", "fun": lambda q: q.sum() - 1},
                {"type": "ineq", "fun": lambda q: radius - (q * np.log(q / world.probability)).sum()},
            ],
            options={"ftol": 1e-12, "maxiter": 500},
        )
        best = max(best, world.ece(weights=found.x / world.probability))
    assert world.fragility(np.array([radius]))[0] == pytest.approx(best, rel=1e-4)
    assert world.fragility(np.array([0.0]))[0] == pytest.approx(world.ece())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_curve_of_a_world_rises_and_ends_at_its_worst_configuration(seed):
    world = worlds.cancelling(seed)
    curve = world.fragility(np.array([0.0, 0.01, 0.1, 1.0, 50.0]))
    assert (np.diff(curve) >= -1e-12).all()
    assert curve[-1] == pytest.approx(np.abs(world.gap).max())


def test_a_two_point_world_has_the_curve_of_a_biased_coin():
    """±δ with equal mass: the tilt gives q to +δ with KL = log 2 − H(q), so ECE = δ (2q − 1)."""
    world = World(
        probability=np.array([0.5, 0.5]),
        routing=np.array([[0.9, 0.1], [0.1, 0.9]]),
        experts=np.full((2, 2), 0.7),
        truth=np.array([0.8, 0.6]),
    )
    q = np.array([0.6, 0.75, 0.99])
    radii = np.log(2) + q * np.log(q) + (1 - q) * np.log(1 - q)
    assert np.allclose(world.fragility(radii), 0.1 * (2 * q - 1))


def test_the_tilt_meets_its_radius_and_nothing_within_the_radius_does_better():
    random = np.random.default_rng(0)
    for _ in range(20):
        scores, mass = random.normal(size=30), random.dirichlet(np.ones(30))
        radius = float(random.uniform(0.01, 1.0))
        density = tilt(scores, radius, mass)
        assert mass @ density == pytest.approx(1)
        assert divergence(density, mass) == pytest.approx(radius, abs=1e-6)
        rate = np.polyfit(scores, np.log(density), 1)[0]
        dual = (radius + np.log(mass @ np.exp(rate * scores))) / rate
        assert mass @ (density * scores) == pytest.approx(dual, abs=1e-6)  # no gap: the optimum


def test_a_constant_score_is_not_tilted_and_a_large_radius_takes_the_top():
    assert (tilt(np.full(4, 0.3), 0.5) == 1).all()
    assert tilt(np.array([1.0, 2.0, 2.0, 0.0]), 5.0) == pytest.approx(np.array([0, 2, 2, 0]))
    assert (tilt(np.array([1.0, 2.0]), 0.0) == 1).all()
