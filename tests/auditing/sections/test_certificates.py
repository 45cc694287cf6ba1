"""Certificates: above every reweighting there is, on the sample always, for the population nearly always."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calmoe import worlds
from calmoe.auditing import Configurations, certificates, fragility
from calmoe.auditing.statistics.tilting import tilt
from calmoe.auditing.statistics.worst_case import bernstein, tail, worst, worst_signed
from calmoe.defaults import BINS
from calmoe.objectives import cvar, entropic_risk
from calmoe.predictions import Predictions
from calmoe.worlds import WORLDS
from sizes import at_size, most
from strategies import divergence, seeds

logsumexp = np.logaddexp.reduce  # for few numbers faster than scipy's
RADII = (0.0, 0.02, 0.1, 0.3)


def cross_entropy(predictions):
    return -predictions.output.log_probs.double().gather(1, predictions.labels[:, None]).squeeze(1).numpy()


@given(seeds, st.floats(0.001, 0.6))
def test_the_sample_value_is_the_least_of_the_dual_and_every_eta_bounds_it(seed, epsilon):
    losses = np.random.default_rng(seed).gamma(1.0, size=60)
    found = worst(losses, epsilon)
    tensor = torch.as_tensor(losses)
    duals = [float(entropic_risk(tensor, eta)) + epsilon / eta for eta in np.geomspace(1e-2, 1e2, 120)]
    assert min(duals) >= found.value - 1e-9
    assert min(duals) == pytest.approx(found.value, rel=5e-3)
    assert float(entropic_risk(tensor, found.eta)) + epsilon / found.eta == pytest.approx(
        found.value, rel=1e-6
    )


@given(seeds, st.floats(0.01, 1.0))
def test_no_reweighting_of_the_rows_exceeds_the_certificates(seed, sharpness):
    """Any density, its own KL as the radius."""
    random = np.random.default_rng(seed)
    configurations = Configurations.of(worlds.miscalibrated(seed % 7).sample(300, seed=seed % 1000))
    residual, index = configurations.residual, configurations.bins(BINS)
    density = np.exp(sharpness * (random.normal(size=300) + random.choice([-2, 2]) * residual))
    density /= density.mean()
    found = certificates(configurations, radii=(divergence(density),))
    ece = np.abs(np.bincount(index, density * residual)).sum() / 300
    assert ece <= found.signed.ece[0].value + 1e-9
    assert (density * residual**2).mean() <= found.squared.risk[0].value + 1e-9
    assert ece <= found.squared.ece[0].value + 1e-9
    assert (density * np.maximum(configurations.confidence, 1 - configurations.confidence)).mean() <= (
        found.label_free[0] + 1e-9
    )
    assert (density * residual**2).mean() <= float(cvar(torch.as_tensor(residual**2), density.max())) + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_the_signed_value_is_the_largest_over_all_sign_patterns(seed):
    """Six bins, so that all 64 patterns can be tried; the dual may lie above where signs and η chase."""
    random = np.random.default_rng(seed)
    index, residual = random.integers(0, 6, 200), random.uniform(-1, 1, 200)
    patterns = np.array(np.meshgrid(*[[-1.0, 1.0]] * 6)).reshape(6, -1).T
    by_bin = [residual[index == b] for b in range(6)]
    for epsilon in (0.0, 0.05, 0.4):
        scores = patterns[:, index] * residual
        best = (tilt(scores, epsilon) * scores).mean(axis=1).max()
        found = worst_signed(residual, index, 6, epsilon).value
        assert best - 1e-9 <= found <= best + 0.02
        if epsilon:
            dual = min(
                (
                    logsumexp([max(logsumexp(s * eta * within) for s in (1, -1)) for within in by_bin])
                    - np.log(200)
                    + epsilon
                )
                / eta
                for eta in np.geomspace(0.05, 20, 300)
            )
            assert found <= dual + 1e-9


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("seed", range(at_size(1, 2)))
def test_the_sandwich_demonstrated_true_certified(name, seed):
    """The fragility curve ≤ the truth for configurations ≤ the truth for rows ≤ the certificates."""
    world = WORLDS[name](seed)
    predictions = world.sample(4000, seed=100 + seed)
    configurations = Configurations.of(predictions)
    found = certificates(configurations, cross_entropy(predictions), radii=RADII)
    shown = fragility(configurations, radii=RADII).configurations
    true, rows, square = (f(np.array(RADII)) for f in (world.fragility, world.worst_ece, world.worst_square))
    assert (true <= rows + 1e-9).all()
    assert (rows <= np.sqrt(square) + 1e-9).all()  # √E[D²] is the looser way, for the population exactly
    for i in range(len(RADII)):
        assert shown.error[i].low <= true[i] + 1e-9
        assert rows[i] <= found.signed.ece[i].high
        assert square[i] <= found.squared.risk[i].high
        assert found.signed.ece[i].value <= found.squared.ece[i].value + 1e-9
        assert found.squared.risk[i].value <= found.cross_entropy.risk[i].value  # D² ≤ −log f_y
        assert found.tail[i].value <= found.squared.risk[i].value + 1e-9  # the bridge, Γ = e^ε
        assert found.tail[i].high >= found.tail[i].value
    assert found.signed.ece[0].value == pytest.approx(
        np.abs(np.bincount(configurations.bins(BINS), configurations.residual)).sum() / 4000
    )
    for part in (found.signed, found.squared):
        assert (np.diff([point.high for point in part.ece]) >= 0).all()


def test_a_calibrated_mixture_is_not_certified_for_zero_and_the_floor_says_so():
    configurations = Configurations.of(worlds.calibrated(0).sample(50_000, seed=0))
    found = certificates(configurations, radii=RADII)
    assert found.calibrated[0] == pytest.approx(0, abs=1e-12)
    for floor, point in list(zip(found.calibrated, found.signed.ece, strict=True))[1:]:
        assert floor > 0.05
        assert point.value == pytest.approx(floor, abs=0.02)
    outright = certificates(Configurations.of(worlds.miscalibrated(0).sample(50_000, seed=0)), radii=RADII)
    assert (np.array([point.value for point in outright.signed.ece]) > outright.calibrated + 0.05).all()


def test_few_rows_are_certified_for_nothing_and_it_is_said():
    predictions = worlds.calibrated(0).sample(20, seed=0)
    found = certificates(Configurations.of(predictions), cross_entropy(predictions))
    assert found.signed.vacuous.all()
    assert found.cross_entropy.vacuous.all()
    assert found.cross_entropy.handful.all()
    many = certificates(Configurations.of(worlds.calibrated(0).sample(5000, seed=0)))
    assert not many.signed.vacuous.any()
    assert many.cross_entropy is None


def test_an_impossible_label_makes_the_cross_entropy_infinite():
    predictions = worlds.calibrated(0).sample(500, seed=0)
    losses = cross_entropy(predictions)
    losses[3] = np.inf
    found = certificates(Configurations.of(predictions), losses).cross_entropy
    assert all(np.isinf(point.value) for point in found.risk)
    assert found.handful.all()
    assert (found.effective == 1).all()


def test_certain_and_equal_rows():
    confidence, index = np.full(400, 0.25), np.zeros(400, int)
    assert worst(confidence, 0.3).value == pytest.approx(0.25)
    assert worst_signed(-confidence, index, 1, 0.3).value == pytest.approx(0.25)
    assert 0.25 < bernstein([confidence], index, 1, 7.0) < 0.3
    assert tail(confidence, 2.0, 0.95).value == pytest.approx(0.25)
    assert worst(np.array([0.0, 1.0]), 5.0).value == pytest.approx(1.0)


def test_predictions_that_are_certain_and_right():
    """f = 1 and no error: nothing on these rows, though the population may be off by a few rows in n."""
    seen = Configurations.of(Predictions.from_probs(np.tile([0.0, 1.0], (500, 1)), np.ones(500, int)))
    found = certificates(seen, np.zeros(500), radii=RADII)
    assert found.signed.ece[2].value == found.squared.ece[2].value == found.calibrated[2] == 0
    assert 0 < found.signed.ece[0].high < 0.1
    assert found.cross_entropy.ece[2].value == 0


@given(seeds)
def test_choosing_bin_by_bin_bounds_every_pattern_of_choices(seed):
    random = np.random.default_rng(seed)
    index, n = random.integers(0, 4, 50), 50
    choices = [random.beta(0.5, 2, 50), random.beta(2, 0.5, 50)]
    bound = bernstein(choices, index, 4, 5.0)
    for pattern in np.ndindex(2, 2, 2, 2):
        values = np.choose(np.array(pattern)[index], choices)
        assert (
            values.mean() + (2 * values.var(ddof=1) * 5.0 / n) ** 0.5 + 7 * 5.0 / (3 * (n - 1))
            <= bound + 1e-12
        )


@pytest.mark.slow
@pytest.mark.parametrize("rows", [200, 3000])
def test_upper_bounds_hold_over_random_worlds_all_radii_together(rows):
    """A smaller `benchmarks/audit.py`."""
    missed, times = {"signed": 0, "squared": 0, "tail": 0}, at_size(8, 100)
    for name in ("cancelling", "miscalibrated"):
        for seed in range(times):
            world = WORLDS[name](seed)
            found = certificates(Configurations.of(world.sample(rows, seed=500 + seed)), radii=RADII)
            ece, square = world.worst_ece(np.array(RADII)), world.worst_square(np.array(RADII))
            missed["signed"] += any(p.high < t for p, t in zip(found.signed.ece, ece, strict=True))
            missed["squared"] += any(p.high < t for p, t in zip(found.squared.risk, square, strict=True))
            atoms = np.repeat(
                world.residual.ravel() ** 2, (world.chance.ravel() * 200_000).round().astype(int)
            )
            true = [float(cvar(torch.as_tensor(atoms), float(np.exp(radius)))) for radius in RADII]
            missed["tail"] += any(p.high < t - 1e-3 for p, t in zip(found.tail, true, strict=True))
    assert max(missed.values()) <= most(2 * times)
