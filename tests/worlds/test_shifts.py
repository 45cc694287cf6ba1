"""Section 3 beyond regions, and appendix C under a shift, exact on finite worlds.

Appendix C: under a density w of configurations and outcomes, an auditor 0 ≤ g ≤ 1 has the moment E[w g D],
the mass E[w g] and the normalised residual, their ratio. By Cauchy and Schwarz |E[w g D]| ≤ √(E[w g] E[w D²])
since g² ≤ g: the normalised residual is at most √(J / mass), J = E[w D²]. (The paper's bound of the moment,
√J, would give √J / mass, which is no smaller.)
"""

import numpy as np
import pytest
from hypothesis import given

from calmoe import worlds
from calmoe.worlds.binary import World
from calmoe.worlds.shifts import least_mass, slice_keeping, slices
from strategies import seeds

INSIDE = 6  # configurations in each slice


def hard_world(seed, experts=3, levels=5):
    """One-hot routing; in each slice (k, p) several configurations, calibrated together and none alone."""
    random = np.random.default_rng(seed)
    chosen = np.repeat(np.arange(experts), levels * INSIDE)
    level = np.tile(np.repeat(random.uniform(0.55, 0.95, levels), INSIDE), experts)
    answers = random.uniform(0.05, 0.95, size=(len(chosen), experts))
    answers[np.arange(len(chosen)), chosen] = level
    mass = random.dirichlet(np.full(len(chosen), 2.0))
    off = random.normal(size=len(chosen))
    for start in range(0, len(chosen), INSIDE):
        at = slice(start, start + INSIDE)
        off[at] -= mass[at] @ off[at] / mass[at].sum()
    truth = level + off * ((1 - level) / np.abs(off).max()) * 0.9
    return World(probability=mass, routing=np.eye(experts)[chosen], experts=answers, truth=truth)


def slice_gaps(world):
    """E[Y − f | S_hard] of each slice: where all are zero, a hard-routed mixture is calibrated. [slices]"""
    index = slices(world)
    return np.bincount(index, world.probability * world.gap) / np.bincount(index, world.probability)


@given(seeds)
def test_any_shift_that_keeps_the_slices_keeps_a_hard_routed_mixture_calibrated(seed):
    world = hard_world(seed)
    assert len(np.unique(slices(world))) == 15
    density = slice_keeping(world, seed)
    assert density.min() >= 0
    shifted = world.reweighted(density)
    assert np.allclose(slice_gaps(world), 0, atol=1e-12)
    assert np.allclose(slice_gaps(shifted), 0, atol=1e-12)
    assert shifted.level_set_error < 1e-12
    # it is no shift of regions: inside a region levels change, and inside a slice configurations do
    assert world.hidden > 1e-3
    for index in (world.region, slices(world)):
        assert max(np.ptp(density[index == each]) for each in np.unique(index)) > 0.05


@given(seeds)
def test_labels_may_move_inside_a_slice_too(seed):
    """Another m(S) with the same mean in every slice: P(Y | S_hard) is kept, P(Y | S) is not."""
    world = hard_world(seed)
    random, index = np.random.default_rng(seed), slices(world)
    other = random.uniform(size=len(index))
    for each in np.unique(index):
        at = index == each
        other[at] -= world.probability[at] @ other[at] / world.probability[at].sum()
    room = np.minimum(world.truth, 1 - world.truth).min() / np.abs(other).max()
    moved = World(
        probability=world.probability,
        routing=world.routing,
        experts=world.experts,
        truth=world.truth + room * other,
    )
    assert np.abs(moved.truth - world.truth).max() > 1e-4
    assert moved.level_set_error < 1e-12


@given(seeds)
def test_a_shift_that_moves_one_slice_breaks_calibration_by_just_that(seed):
    world = hard_world(seed)
    density = slice_keeping(world, seed)
    at = slices(world) == 0
    density[at] *= np.exp(3 * np.sign(world.gap[at]))
    shifted = world.reweighted(density)
    gaps = slice_gaps(shifted)
    assert np.allclose(gaps[1:], 0, atol=1e-12)
    assert gaps[0] > 1e-4
    mass = shifted.probability[at].sum()
    assert shifted.level_set_error == pytest.approx(mass * gaps[0], abs=1e-9)


def test_soft_routing_has_no_such_refuge():
    """The slices of a soft mixture are calibrated before, and not after, a shift that keeps (k, f)."""
    world = worlds.cancelling(0, rule="disagreement")
    region, level = world.region, world.confidence.round(9)
    same = [np.flatnonzero((region == region[i]) & (level == level[i])) for i in range(0, len(level), 2)]
    assert any(len(pair) == 2 for pair in same)  # the leading expert does not tell the pair apart
    density = np.where(world.gap > 0, 1.8, 0.2)
    assert world.level_set_error < 1e-12
    assert world.reweighted(density).level_set_error > 0.05


def auditors(world, bins=5):
    """r_k φ_b(f), φ the indicators of bins. [M, K bins]"""
    inside = np.eye(bins)[np.minimum((world.confidence * bins).astype(int), bins - 1)]
    return (world.routing[:, :, None] * inside[:, None]).reshape(len(world.routing), -1)


def auditor_moments(world, weights, auditors):
    """E[w g D] for a density w [M, 2] of configurations and outcomes and auditors g [M, G]. [G]"""
    return (world.chance * weights * world.residual).sum(axis=1) @ auditors


def auditor_masses(world, weights, auditors):
    """E[w g]. [G]"""
    return (world.chance * weights).sum(axis=1) @ auditors


def squared_residual(world, weights):
    """J = E[w D²]."""
    return float((world.chance * weights * world.residual**2).sum())


def normalised_bound(square, mass):
    """√(J / mass): no auditor's normalised residual exceeds it."""
    return np.sqrt(square / np.maximum(mass, 1e-300))


@given(seeds)
def test_appendix_c_under_a_shift(seed):
    """|E[w g D]| ≤ √(mass J) ≤ √J, and the normalised residual ≤ √(J / mass) ≤ √J / mass, for any w(X, Y)."""
    world = worlds.miscalibrated(seed % 1000)
    random = np.random.default_rng(seed)
    weights = random.gamma(0.5, size=world.chance.shape)
    weights /= (world.chance * weights).sum()
    g = auditors(world)
    moments, masses = auditor_moments(world, weights, g), auditor_masses(world, weights, g)
    square = squared_residual(world, weights)
    assert masses.sum() == pytest.approx(1)
    assert (np.abs(moments) <= np.sqrt(masses * square) + 1e-12).all()
    used = masses > 1e-9
    normalised = np.abs(moments[used]) / masses[used]
    assert (normalised <= normalised_bound(square, masses[used]) + 1e-9).all()
    assert (normalised_bound(square, masses[used]) <= np.sqrt(square) / masses[used] + 1e-9).all()


@given(seeds)
def test_within_a_kl_ball_the_least_mass_and_the_worst_square_bound_every_normalised_residual(seed):
    world, epsilon = worlds.miscalibrated(seed % 1000), 0.1
    random = np.random.default_rng(seed)
    g = auditors(world)
    k = int(random.integers(g.shape[1]))
    auditor = g[:, k]
    if world.probability @ auditor < 1e-3:
        return
    least = least_mass(world, auditor, epsilon)
    worst = float(world.worst_square(np.array([epsilon]))[0])
    direction = random.normal(size=world.chance.shape)
    for rate in np.linspace(0, 3, 16):  # tilts of configurations and outcomes, as far as the ball goes
        weights = np.exp(rate * direction)
        weights /= (world.chance * weights).sum()
        if (world.chance * weights * np.log(weights)).sum() > epsilon:
            break
        mass = auditor_masses(world, weights, auditor)
        assert mass >= least - 1e-12
        assert squared_residual(world, weights) <= worst + 1e-12
        normalised = abs(auditor_moments(world, weights, auditor)) / mass
        assert normalised <= normalised_bound(worst, np.array(least)) + 1e-12


def test_an_indicator_recovers_the_conditional_residual():
    world = worlds.miscalibrated(0)
    weights = np.ones_like(world.chance)
    inside = (world.bins() == world.bins()[0]).astype(float)
    residual = auditor_moments(world, weights, inside) / auditor_masses(world, weights, inside)
    at = inside > 0
    assert residual == pytest.approx(world.probability[at] @ world.gap[at] / world.probability[at].sum())
