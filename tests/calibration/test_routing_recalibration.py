"""The repair: it keeps the temperature where there is nothing to gain, and mends what routing can see."""

import json
import warnings

import numpy as np
import pytest
import torch

from calmoe import worlds
from calmoe.calibration import CalibrationWarning, RoutingRecalibration, Temperature
from calmoe.calibration.routing_recalibration import _Event
from calmoe.errors import InputError
from calmoe.mixture import MixtureOutput, combine
from calmoe.worlds import WORLDS
from calmoe.worlds.binary import World
from sizes import at_size, least
from strategies import generator, random_output


def fitted(world, rows=4000, seed=0, **options):
    sample = world.sample(rows, seed=seed)
    return RoutingRecalibration(**options).fit(sample.output, sample.labels)


def tempered(world, repair):
    return world.recalibrated(lambda o: o._replace(log_probs=repair.temperature_.transform(o.log_probs)))


# --- known worlds


@pytest.mark.parametrize("rule", ["leading", "disagreement"])
def test_what_routing_can_see_is_mended_for_the_whole_population(rule):
    """Exact sums over the world's configurations, before and after a fit on a sample."""
    world = worlds.cancelling(0, delta=0.15, rule=rule)
    repair = fitted(world)
    assert repair.status_ == "repaired"
    assert repair.rounds_ > 0
    before, after = tempered(world, repair), world.recalibrated(repair.transform)
    assert before.hidden > 0.14
    assert after.hidden < 0.6 * before.hidden
    assert after.nll < before.nll - 0.02
    radius = np.array([0.1])
    assert after.fragility(radius) < 0.9 * before.fragility(radius)
    assert repair.gain_ == pytest.approx(before.nll - after.nll, abs=4 * repair.gain_error_)


@pytest.mark.parametrize("name", ["calibrated", "miscalibrated", "hard-routed"])
def test_the_temperature_is_returned_where_no_auditor_finds_anything(name):
    """Hard-routed worlds are off by ±0.1, but no routing-weighted auditor can see it."""
    world = WORLDS[name](1)
    repair = fitted(world)
    assert (repair.status_, repair.repaired, repair.rounds_) == ("no gain", False, 0)
    assert "temperature alone is kept" in repair.message_
    sample = world.sample(500, seed=9).output
    log_probs = repair.transform(sample).log_probs
    assert torch.equal(log_probs, repair.temperature_.transform(sample.log_probs))


def test_a_pure_sign_of_the_leading_expert_is_removed_almost_wholly():
    """Hard routing, ±δ by expert: r_k φ_j(f) spans the truth, and enough rows find it."""
    level = np.repeat(np.linspace(0.55, 0.85, 12), 2)
    world = World(
        probability=np.full(24, 1 / 24),
        routing=np.tile(np.eye(2), (12, 1)),
        experts=np.stack([level, level], axis=1),
        truth=level + np.tile([0.1, -0.1], 12),
    )
    repair = fitted(world, rows=at_size(20_000, 40_000))
    after = world.recalibrated(repair.transform)
    assert after.hidden < 0.02
    routed = np.array([1.0, -1.0])
    u = repair.coefficients_[0] + repair.coefficients_[1]
    assert (np.sign(u[:, 7]) == routed).all()  # expert 0's rows are raised, expert 1's lowered


def test_one_expert_gives_a_calibration_curve():
    """m = 1 − 0.8 (1 − f) at f near ½ only: no temperature does that."""
    source = np.random.default_rng(0)
    f = source.uniform(0.5, 1.0, 20_000)
    right = source.random(20_000) < np.where(f < 0.75, f + 0.2, f - 0.15)
    output = combine(torch.zeros(20_000, 1), torch.as_tensor(np.stack([f, 1 - f], axis=1)).log()[:, None])
    repair = RoutingRecalibration().fit(output, torch.as_tensor(1 - right.astype(int)))
    assert repair.status_ == "repaired"
    probs = repair.transform(output).probs[:, 0].numpy()
    low, high = (f > 0.55) & (f < 0.7), f > 0.8
    assert probs[low].mean() == pytest.approx((f + 0.2)[low].mean(), abs=0.02)
    assert probs[high].mean() == pytest.approx((f - 0.15)[high].mean(), abs=0.02)


@pytest.mark.slow
def test_rates_over_random_worlds():
    """Clean worlds keep the temperature nearly always, cancelling ones are mended always."""
    times, first = at_size(8, 200), 300
    seeds = range(first, first + times)
    kept = sum(not fitted(worlds.calibrated(seed), rows=2000, seed=seed).repaired for seed in seeds)
    assert kept >= least(times, 0.98)
    for seed in seeds[: times // 4]:
        world = worlds.cancelling(seed)
        repair = fitted(world, rows=5000, seed=seed)
        before, after = tempered(world, repair), world.recalibrated(repair.transform)
        assert after.nll < before.nll
        assert after.hidden < 0.8 * before.hidden


# --- what must not matter


def problem(seed=0, n=1500, classes=4, experts=3):
    """Many classes, and an expert that is trusted too much wherever it leads."""
    output = random_output(seed, n=n, classes=classes, experts=experts)
    shift = torch.where(output.routing.argmax(1, keepdim=True) == 0, 0.4, 1.6)
    labels = torch.multinomial((output.log_probs * shift).softmax(1), 1, generator=generator(seed + 1))
    return output, labels.squeeze(1)


def permuted(output, experts):
    return MixtureOutput(
        output.log_probs, output.log_routing[:, experts], output.expert_log_probs[:, experts]
    )


def test_many_classes_stay_normalised_and_the_others_keep_their_proportions():
    output, labels = problem()
    repair = RoutingRecalibration().fit(output, labels)
    assert repair.status_ == "repaired"
    after = repair.transform(output)
    torch.testing.assert_close(after.probs.sum(1), torch.ones(1500, dtype=torch.float64))
    assert torch.equal(after.log_routing, output.log_routing)
    base, top = repair.temperature_.transform(output.log_probs), output.predicted
    others = torch.ones_like(base, dtype=torch.bool).scatter(1, top[:, None], False)
    moved = (after.log_probs - base)[others].reshape(1500, 3)
    assert (moved - moved[:, :1]).abs().max() < 1e-12
    logit = after.log_probs.gather(1, top[:, None])[:, 0] - base.gather(1, top[:, None])[:, 0] - moved[:, 0]
    event = _Event.of(output, repair.temperature_)
    design = event.design(10)
    expected = design.T @ repair.coefficients_.ravel()  # the table of auditors says what np.interp says
    np.testing.assert_allclose(logit.numpy(), expected, atol=1e-10)
    np.testing.assert_allclose(design.sum(axis=0), 2.0)  # hats and routing each sum to one, twice


def test_the_order_of_experts_does_not_matter():
    output, labels = problem()
    one = RoutingRecalibration().fit(output, labels)
    order = [2, 0, 1]
    other = RoutingRecalibration().fit(permuted(output, order), labels)
    np.testing.assert_allclose(other.coefficients_, one.coefficients_[:, order], atol=1e-9)
    torch.testing.assert_close(
        other.transform(permuted(output, order)).log_probs, one.transform(output).log_probs
    )


def test_the_order_of_rows_matters_to_the_folds_only():
    output, labels = problem()
    order = torch.randperm(1500, generator=generator(5))
    shuffled = output.take(order)
    right = (output.predicted == labels).numpy()
    repair = RoutingRecalibration()
    temperature = Temperature().fit(output.log_probs, labels)
    steps = repair._boost(_Event.of(output, temperature), right, 30)
    again = repair._boost(_Event.of(shuffled, temperature), right[order.numpy()], 30)
    assert [auditor for auditor, _ in steps] == [auditor for auditor, _ in again]
    np.testing.assert_allclose([size for _, size in steps], [size for _, size in again], rtol=1e-9)
    one, other = repair.fit(output, labels), RoutingRecalibration().fit(shuffled, labels[order])
    assert one.status_ == other.status_ == "repaired"
    difference = one.transform(output).probs - other.transform(output).probs
    assert difference.abs().mean() < 0.02


def test_the_same_fit_twice_is_the_same_and_is_read_back(tmp_path):
    output, labels = problem()
    one, other = (RoutingRecalibration().fit(output, labels) for _ in range(2))
    assert (one.coefficients_ == other.coefficients_).all()
    one.save(tmp_path / "r.json")
    read = RoutingRecalibration.load(tmp_path / "r.json")
    assert torch.equal(read.transform(output).log_probs, one.transform(output).log_probs)
    assert (read.status_, read.message_, read.gain_) == (one.status_, one.message_, one.gain_)
    saved = json.loads((tmp_path / "r.json").read_text())
    saved["coefficients"] = saved["coefficients"][:1]
    (tmp_path / "r.json").write_text(json.dumps(saved))
    with pytest.raises(InputError, match="coefficients must be"):
        RoutingRecalibration.load(tmp_path / "r.json")


def test_every_step_lowers_the_nll_of_the_rows_it_is_fitted_on():
    """Half a Newton step along one coordinate of a convex loss."""
    output, labels = problem(n=600)
    right = (output.predicted == labels).numpy()
    repair = RoutingRecalibration()
    event = _Event.of(output, Temperature().fit(output.log_probs, labels))
    coefficients, before = np.zeros((2, 3, 11)), np.inf
    for auditor, size in repair._boost(event, right, 60):
        coefficients.flat[auditor] += size
        logit = event.logit + event.shift(coefficients)
        now = np.logaddexp(0, np.where(right, -logit, logit)).mean()
        assert now < before
        before = now


# --- where there is little to go on


def test_few_rows_keep_the_temperature():
    output, labels = problem(n=199)
    repair = RoutingRecalibration().fit(output, labels)
    assert repair.status_ == "few rows"
    assert "199 rows" in repair.message_
    assert np.isnan(repair.gain_)
    expected = Temperature().fit(output.log_probs, labels).transform(output.log_probs)
    assert torch.equal(repair.transform(output).log_probs, expected)


def test_always_right_keeps_the_temperature():
    output = random_output(0, n=300)
    with pytest.warns(CalibrationWarning, match="every label already"):
        repair = RoutingRecalibration().fit(output, output.predicted)
    assert (repair.status_, repair.repaired) == ("one outcome", False)


def test_one_class_and_one_class_present():
    one = combine(torch.zeros(300, 2).log_softmax(1), torch.zeros(300, 2, 1))
    with pytest.warns(CalibrationWarning):
        assert RoutingRecalibration().fit(one, torch.zeros(300, dtype=torch.long)).status_ == "one outcome"
    output = random_output(0, n=600)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        repair = RoutingRecalibration().fit(output, torch.zeros(600, dtype=torch.long))
    assert not repair.transform(output).log_probs.isnan().any()


def test_a_constant_router_is_fitted():
    output, labels = problem()
    even = combine(torch.full((1500, 3), 1 / 3).double().log(), output.expert_log_probs)
    repair = RoutingRecalibration().fit(even, labels)
    assert not repair.transform(even).log_probs.isnan().any()
    assert repair.status_ in ("repaired", "no gain")


def test_impossible_classes_stay_impossible_and_impossible_labels_are_left_out():
    output, labels = problem()
    experts = output.expert_log_probs.clone()
    wrong = (labels + 1) % 4
    experts[:500].scatter_(2, wrong[:500].view(-1, 1, 1).expand(-1, 3, 1), -torch.inf)
    sure = torch.arange(500, 520)
    experts[sure] = (
        torch.full((4,), -torch.inf).scatter(0, torch.tensor(2), 0.0).double()
    )  # all mass on class 2
    output = combine(output.log_routing, experts.log_softmax(2))
    labels = labels.clone()
    labels[sure] = 2
    labels[500] = 0  # impossible
    with pytest.warns(CalibrationWarning, match="1 rows give their label probability zero"):
        repair = RoutingRecalibration().fit(output, labels)
    after = repair.transform(output).log_probs
    assert not after.isnan().any()
    assert torch.equal(after == -torch.inf, output.log_probs == -torch.inf)
    kept = torch.arange(1500) != 500
    alone = RoutingRecalibration().fit(output.take(kept), labels[kept])
    np.testing.assert_array_equal(alone.coefficients_, repair.coefficients_)


def test_single_precision_and_arrays_are_taken():
    output, labels = problem()
    single = MixtureOutput(*(part.float() for part in output))
    repair = RoutingRecalibration().fit(single, labels.numpy())
    assert repair.status_ == "repaired"
    assert repair.transform(single).log_probs.dtype == torch.float32
    expected = RoutingRecalibration().fit(output, labels).transform(output).log_probs
    torch.testing.assert_close(repair.transform(single).log_probs.double(), expected, atol=1e-3, rtol=0)


def test_what_is_refused():
    output, labels = problem(n=300)
    with pytest.raises(InputError, match="whole MixtureOutput"):
        RoutingRecalibration().fit(output.log_probs, labels)
    with pytest.raises(InputError, match="not fitted"):
        RoutingRecalibration().transform(output)
    with pytest.raises(InputError, match="rate must be"):
        RoutingRecalibration(rate=0.0)
    with pytest.raises(InputError, match="fitted on 3 experts, given 2"):
        RoutingRecalibration().fit(output, labels).transform(random_output(0, classes=4, experts=2))
