import math
import warnings

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given
from hypothesis import strategies as st

from calmoe.calibration import CalibrationWarning, PerExpertTemperature, Temperature, frontier
from calmoe.errors import InputError
from calmoe.metrics import ece
from calmoe.mixture import combine
from calmoe.predictions import Predictions
from strategies import generator, random_output, seeds


def problem(seed, true_temperature, n=400, classes=5):
    """Logits, and labels drawn from their softmax at the given temperature."""
    source = generator(seed)
    logits = true_temperature * 2 * torch.randn(n, classes, generator=source, dtype=torch.float64)
    labels = torch.multinomial((logits / true_temperature).softmax(1), 1, generator=source).squeeze(1)
    return logits, labels


def nll(logits, labels, temperature, weights=None):
    losses = -(logits / temperature).log_softmax(1)[torch.arange(len(labels)), labels]
    return float(losses.mean() if weights is None else (weights * losses).sum() / weights.sum())


def scipy_optimum(logits, labels, weights=None):
    result = scipy.optimize.minimize_scalar(
        lambda log_t: nll(logits, labels, math.exp(log_t), weights),
        bounds=(math.log(0.005), math.log(500)),
        method="bounded",
        options={"xatol": 1e-11, "maxiter": 1000},
    )
    return math.exp(result.x)


def test_the_exact_solver_finds_scipys_optimum_on_200_problems():
    """Optima from 0.05 to 50; SciPy's own resolution is √ε in log T, so values are compared too."""
    for seed in range(200):
        target = 0.05 * 1000 ** (seed / 199)
        logits, labels = problem(seed, target)
        fitted = Temperature().fit(logits, labels)
        expected = scipy_optimum(logits, labels)
        assert fitted.status_ == "optimum"
        assert fitted.temperature_ > 0
        assert fitted.temperature_ == pytest.approx(expected, rel=1e-6)
        assert nll(logits, labels, fitted.temperature_) <= nll(logits, labels, expected) + 1e-15


@given(seeds, st.floats(-3, 4))
def test_the_derivative_vanishes_at_the_optimum(seed, log_target):
    logits, labels = problem(seed, math.exp(log_target), n=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            temperature = Temperature().fit(logits, labels).temperature_
        except CalibrationWarning:
            return
    scores = logits / temperature
    slope = ((scores.softmax(1) * scores).sum(1) - scores[torch.arange(50), labels]).mean()
    assert abs(float(slope)) < 1e-9 * max(1.0, float(scores.abs().max()))


def test_logits_and_log_probabilities_give_the_same_temperature():
    logits, labels = problem(0, 2.0)
    a = Temperature().fit(logits, labels).temperature_
    assert Temperature().fit(logits.log_softmax(1), labels).temperature_ == pytest.approx(a, rel=1e-12)
    assert Temperature().fit(logits.numpy(), labels.numpy()).temperature_ == pytest.approx(a, rel=1e-12)


@given(seeds)
def test_weights_count_as_repetitions(seed):
    logits, labels = problem(seed, 2.0, n=60)
    counts = torch.randint(0, 4, (60,), generator=generator(seed))
    repeated = Temperature().fit(logits.repeat_interleave(counts, 0), labels.repeat_interleave(counts))
    weighted = Temperature().fit(logits, labels, counts)
    assert weighted.temperature_ == pytest.approx(repeated.temperature_, rel=1e-9)


def test_accuracy_does_not_change_and_calibration_improves():
    logits, labels = problem(1, 3.0, n=4000)
    fitted = Temperature().fit(logits, labels)
    after = fitted.transform(logits)
    assert torch.equal(after.argmax(1), logits.argmax(1))
    assert ece(after.exp(), labels) < 0.5 * ece(logits.softmax(1), labels)
    torch.testing.assert_close(after, (logits / fitted.temperature_).log_softmax(1))


# --- where there is no optimum


def test_separable_data_are_named_and_left_alone():
    logits = torch.tensor([[3.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    with pytest.warns(CalibrationWarning, match="every label already has the highest probability"):
        fitted = Temperature().fit(logits, torch.tensor([0, 1, 0]))
    assert (fitted.temperature_, fitted.status_) == (1.0, "separable")


def test_probabilities_worse_than_uniform_are_named():
    logits = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    with pytest.warns(CalibrationWarning, match="worse than uniform"):
        fitted = Temperature().fit(logits, torch.tensor([1, 0]))
    assert (fitted.temperature_, fitted.status_) == (Temperature.LARGEST, "uninformative")
    torch.testing.assert_close(fitted.transform(logits).exp(), torch.full((2, 2), 0.5), atol=1e-5, rtol=0)


def test_one_class_and_one_row():
    with pytest.warns(CalibrationWarning):
        assert Temperature().fit(torch.zeros(3, 1), torch.zeros(3, dtype=torch.long)).temperature_ == 1.0
    with pytest.warns(CalibrationWarning):
        assert Temperature().fit(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).temperature_ == 1.0


def test_impossible_labels_are_left_out_with_a_warning():
    logits, labels = problem(3, 2.0, n=50)
    expected = Temperature().fit(logits[1:], labels[1:]).temperature_
    logits[0] = 0.0
    logits[0, labels[0]] = -torch.inf
    with pytest.warns(CalibrationWarning, match="1 rows give their label probability zero"):
        fitted = Temperature().fit(logits, labels)
    assert fitted.temperature_ == pytest.approx(expected, rel=1e-9)
    assert not fitted.transform(logits).isnan().any()
    with pytest.warns(CalibrationWarning), pytest.raises(InputError, match="nothing to fit"):
        Temperature().fit(logits[:1], labels[:1])


@pytest.mark.parametrize("scale", [1e4, 1e-4])
def test_extreme_logits(scale):
    logits, labels = problem(4, 1.0, n=100)
    fitted = Temperature().fit(scale * logits, labels)
    assert fitted.temperature_ == pytest.approx(
        scale * Temperature().fit(logits, labels).temperature_, rel=1e-9
    )
    assert not fitted.transform((scale * logits).float()).isnan().any()


# --- the published solver


def test_the_published_solver_stops_short():
    logits, labels = problem(5, 2.6, n=5000, classes=10)
    exact = Temperature().fit(logits, labels).temperature_
    published = Temperature(solver="published").fit(logits, labels).temperature_
    assert exact == pytest.approx(2.6, rel=0.1)
    assert 1.0 < published < 0.75 * exact
    assert nll(logits, labels, exact) < nll(logits, labels, published)


def test_the_published_solver_is_the_authors_recipe():
    """LBFGS on T itself from 1, lr 0.01, 50 iterations, mean cross-entropy of logits / T."""
    logits, labels = problem(6, 1.7)
    logits = logits.float().log_softmax(1)
    temperature = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits / temperature, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    published = Temperature(solver="published").fit(logits, labels).temperature_
    assert published == pytest.approx(temperature.item(), rel=1e-3)


def test_the_published_solver_copes_with_impossible_classes():
    logits, labels = problem(7, 1.5, n=300)
    logits[torch.arange(0, 300, 7), (labels[::7] + 1) % 5] = -torch.inf
    fitted = Temperature(solver="published").fit(logits, labels)
    assert math.isfinite(fitted.temperature_)
    assert not fitted.transform(logits).isnan().any()


def test_the_published_solver_may_run_away_and_says_so():
    """As FACTS records for PACS: without a line search T can end up below zero; the exact solver cannot."""
    source = generator(90)
    n = int(torch.randint(2, 30, (), generator=source))
    scale = float(10 ** (3 * torch.rand((), generator=source) - 1))
    logits, labels = scale * torch.randn(n, 3, generator=source), torch.randint(3, (n,), generator=source)
    trusted = float(torch.rand((), generator=source))
    labels = torch.where(torch.rand(n, generator=source) < trusted, logits.argmax(1), labels)
    with pytest.warns(CalibrationWarning, match="not positive"):
        fitted = Temperature(solver="published").fit(logits, labels)
    assert (fitted.temperature_ < 0, fitted.status_) == (True, "negative")
    with pytest.warns(CalibrationWarning):
        assert Temperature().fit(logits, labels).temperature_ == 1


def test_fitting_works_under_inference_mode():
    logits, labels = problem(8, 1.5)
    with torch.inference_mode():
        for solver in ("exact", "published"):
            assert Temperature(solver).fit(logits, labels).temperature_ > 1


def test_an_optimum_beyond_the_range_is_named():
    """One error among thousands of labels that win by next to nothing: the best T lies below 1e-6."""
    logits = torch.zeros(4000, 2, dtype=torch.float64)
    logits[:, 0] = 1e-9
    labels = torch.zeros(4000, dtype=torch.long)
    labels[0] = 1
    with pytest.warns(CalibrationWarning, match="beyond the range"):
        fitted = Temperature().fit(logits, labels)
    assert (fitted.temperature_, fitted.status_) == (1e-6, "at bound")
    with pytest.warns(CalibrationWarning, match="beyond the range"):
        fitted = Temperature().fit(1e18 * logits, torch.cat([labels[:2001] * 0, labels[2001:] * 0 + 1]))
    assert (fitted.temperature_, fitted.status_) == (1e6, "at bound")


def test_rows_of_weight_zero_do_not_count_at_all():
    logits, labels = problem(9, 2.0, n=60)
    weights = torch.ones(60)
    weights[0] = 0
    logits[0] = 0.0
    logits[0, labels[0]] = -torch.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = Temperature().fit(logits, labels, weights)
    assert fitted.temperature_ == pytest.approx(Temperature().fit(logits[1:], labels[1:]).temperature_)


def test_tempering_is_exact_for_tiny_temperatures_and_half_precision():
    fitted = Temperature().fit(*problem(0, 1.0))
    fitted.temperature_ = 1e-6
    certain = fitted.transform(torch.tensor([[3e4, 3e4 - 1, 0.0]]))
    assert certain.exp().tolist() == [[1, 0, 0]]
    assert fitted.transform(torch.tensor([[2.0, 0.0]]).bfloat16()).dtype == torch.float32


# --- bad input


@pytest.mark.parametrize(
    ("log_probs", "labels", "weights", "message"),
    [
        (torch.rand(4), torch.zeros(4).long(), None, r"\[N, C\]"),
        (torch.zeros(0, 3), torch.zeros(0).long(), None, r"\[N, C\]"),
        (torch.randn(4, 3), torch.zeros(3).long(), None, "4 integers"),
        (torch.randn(4, 3), torch.zeros(4), None, "4 integers"),
        (torch.randn(4, 3), torch.full((4,), 3), None, "between 0 and 2"),
        (torch.full((4, 3), math.nan), torch.zeros(4).long(), None, "NaN"),
        (torch.full((4, 2), 0.5), torch.zeros(4).long(), None, "look like probabilities"),
        (torch.full((4, 2), -torch.inf), torch.zeros(4).long(), None, "nor a row of −inf only"),
        (torch.randn(4, 3), torch.zeros(4).long(), torch.zeros(4), "not all zero"),
        (torch.randn(4, 3), torch.zeros(4).long(), -torch.ones(4), "numbers ≥ 0"),
    ],
)
def test_bad_input_is_named(log_probs, labels, weights, message):
    with pytest.raises(InputError, match=message):
        Temperature().fit(log_probs, labels, weights)


def test_using_before_fitting_and_unknown_solvers():
    with pytest.raises(InputError, match="not fitted"):
        Temperature().transform(torch.zeros(1, 2))
    with pytest.raises(InputError, match="look like probabilities"):
        Temperature().fit(*problem(0, 1.0)).transform(torch.full((4, 2), 0.5))
    with pytest.raises(InputError, match="whole MixtureOutput"):
        PerExpertTemperature().fit(torch.zeros(4, 2), torch.zeros(4).long())
    with pytest.raises(InputError, match="not fitted"):
        PerExpertTemperature().transform(random_output(0))
    with pytest.raises(InputError, match="solver must be"):
        Temperature(solver="adam")
    with pytest.raises(InputError, match="clamp must be"):
        PerExpertTemperature(clamp=(0.0, 1.0))


# --- MoCaE


def test_per_expert_temperatures_are_each_experts_own_clamped():
    output = random_output(0, n=500, scale=3.0)
    labels = torch.randint(5, (500,), generator=generator(0))
    fitted = PerExpertTemperature().fit(output, labels)
    for k, value in enumerate(fitted.temperatures_):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone = Temperature().fit(output.expert_log_probs[:, k], labels).temperature_
        assert value == pytest.approx(min(max(alone, 0.1), 10.0))
    after = fitted.transform(output)
    assert torch.equal(after.log_routing, output.log_routing)
    scaled = output.expert_log_probs / torch.tensor(fitted.temperatures_, dtype=torch.float64).view(1, -1, 1)
    torch.testing.assert_close(after.expert_log_probs, scaled.log_softmax(2))
    torch.testing.assert_close(after.log_probs, combine(output.log_routing, after.expert_log_probs).log_probs)


def test_weighted_fits_each_expert_on_its_routing_weighted_view():
    """Expert 0 is right where it is routed and wrong elsewhere: only its own view should count."""
    n = 400
    source = generator(1)
    routed = torch.arange(n) < n // 2
    logits, labels = problem(2, 1.0, n=n, classes=3)
    other = torch.randint(3, (n,), generator=source)
    labels = torch.where(routed, labels, other)
    routing = torch.where(routed, 0.999, 0.001).double()
    output = combine(
        torch.stack([routing, 1 - routing], 1).log(), torch.stack([logits.log_softmax(1)] * 2, 1)
    )
    weighted = PerExpertTemperature(weighted=True).fit(output, labels)
    plain = PerExpertTemperature().fit(output, labels)
    assert weighted.temperatures_[0] == pytest.approx(1.0, abs=0.2)
    assert weighted.temperatures_[1] > plain.temperatures_[0] > 1.2 * weighted.temperatures_[0]
    assert plain.temperatures_[0] == plain.temperatures_[1]


def test_an_expert_that_is_never_routed_is_left_alone():
    output = random_output(3, n=100, experts=2)
    routing = torch.tensor([0.0, -torch.inf], dtype=torch.float64).expand(100, 2)
    output = combine(routing, output.expert_log_probs)
    labels = torch.multinomial((output.log_probs / 2).softmax(1), 1, generator=generator(3)).squeeze(1)
    fitted = PerExpertTemperature(weighted=True).fit(output, labels)
    assert (fitted.temperatures_[1], fitted.statuses_) == (1.0, ["optimum", "unrouted"])


def test_per_expert_temperatures_use_the_solver_they_were_given():
    output = random_output(6, n=500, scale=4.0)
    labels = torch.multinomial((output.log_probs / 3).softmax(1), 1, generator=generator(6)).squeeze(1)
    exact, published = (PerExpertTemperature(solver=s).fit(output, labels) for s in ("exact", "published"))
    assert published.statuses_ == ["published"] * 4
    assert all(abs(a - b) > 0.1 for a, b in zip(exact.temperatures_, published.temperatures_, strict=True))


def test_a_single_expert_makes_mocae_a_temperature():
    output = random_output(4, n=300, experts=1)
    labels = torch.multinomial((output.log_probs / 2).softmax(1), 1, generator=generator(4)).squeeze(1)
    one = Temperature().fit(output.log_probs, labels)
    many = PerExpertTemperature().fit(output, labels)
    torch.testing.assert_close(many.transform(output).log_probs, one.transform(output.log_probs))


# --- saving


def test_calibrators_are_saved_as_json(tmp_path):
    output = random_output(5, n=200)
    labels = torch.multinomial((output.log_probs / 2).softmax(1), 1, generator=generator(5)).squeeze(1)
    one = Temperature().fit(output.log_probs, labels)
    one.save(tmp_path / "one.json")
    again = Temperature.load(tmp_path / "one.json")
    assert (again.temperature_, again.status_, again.solver) == (one.temperature_, one.status_, "exact")
    many = PerExpertTemperature(weighted=True, clamp=(0.5, 3.0)).fit(output, labels)
    many.save(tmp_path / "many.json")
    loaded = PerExpertTemperature.load(tmp_path / "many.json")
    assert vars(loaded) == vars(many)
    with pytest.raises(InputError, match="not a saved Temperature"):
        Temperature.load(tmp_path / "many.json")
    (tmp_path / "text.json").write_text(
        '{"kind": "Temperature", "solver": "exact", "temperature": "x", "status": "optimum"}'
    )
    with pytest.raises(InputError, match="temperature must be a finite number"):
        Temperature.load(tmp_path / "text.json")
    with pytest.raises(InputError, match="there is no file"):
        Temperature.load(tmp_path / "none.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="not a readable JSON"):
        Temperature.load(tmp_path / "deep.json")
    with pytest.raises(InputError, match="fitted on 4 experts, given 3"):
        many.transform(random_output(0, experts=3))


# --- the frontier


def shifted_predictions(seed, temperature):
    logits, labels = problem(seed, temperature, n=1000)
    hard = np.arange(1000) < 200
    return Predictions.from_probs(logits.softmax(1), labels, groups={"hard": hard})


def test_the_frontier_sweeps_the_test_set_and_marks_the_validation_choice():
    val, test = shifted_predictions(0, 2.0), shifted_predictions(1, 2.0)
    curve = frontier(val, test, "hard")
    chosen = Temperature().fit(val.output.log_probs, val.labels).temperature_
    assert curve.temperatures[curve.chosen] == chosen
    assert np.all(np.diff(curve.temperatures) > 0)
    mask = torch.from_numpy(test.groups["hard"])
    for index in (0, curve.chosen, len(curve.temperatures) - 1):
        probs = (test.output.log_probs / curve.temperatures[index]).softmax(1)
        assert curve.ece[index] == pytest.approx(ece(probs, test.labels), abs=1e-9)
        assert curve.subset_ece[index] == pytest.approx(ece(probs[mask], test.labels[mask]), abs=1e-9)
    by_mask = frontier(val, test, mask, temperatures=[1.0, 2.0])
    assert len(by_mask.temperatures) == 3


def test_frontier_bad_input():
    val = shifted_predictions(0, 2.0)
    with pytest.raises(InputError, match="no group column 'soft'"):
        frontier(val, val, "soft")
    with pytest.raises(InputError, match="empty"):
        frontier(val, val, np.zeros(1000, dtype=bool))
    for mask in (np.zeros(10, dtype=bool), np.arange(1000)):
        with pytest.raises(InputError, match="1000 booleans"):
            frontier(val, val, mask)
    with pytest.raises(InputError, match="positive"):
        frontier(val, val, "hard", temperatures=[-1.0])
    unlabelled = Predictions.from_probs(val.output.probs)
    with pytest.raises(InputError, match="no labels"):
        frontier(unlabelled, val, "hard")
