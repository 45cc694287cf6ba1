"""The identities and inequalities of the paper's section 5 and appendix B, on random inputs."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calmoe import MixtureHead
from calmoe.errors import InputError
from calmoe.mixture import combine
from calmoe.objectives import (
    ERM,
    LOG_ZERO,
    CVaR,
    EntropicRisk,
    RobustFiltered,
    RobustMoE,
    brier,
    cross_entropy,
    cvar,
    density_ratio_bound,
    entropic_risk,
    mean,
    routing_relevant,
    share_of_negative_weights,
    solve_tilt,
    tilt_weights,
    tilted_mean,
)
from sizes import at_size
from strategies import generator, losses, random_output, seeds

etas = st.floats(1e-3, 50)
OBJECTIVES = [
    ERM(),
    RobustMoE(eta=2.0),
    RobustMoE(eta=50.0),
    RobustMoE(eta=2.0, loss=brier),
    RobustFiltered(eta=2.0),
    EntropicRisk(eta=2.0),
    CVaR(gamma=2.5),
]


def name(objective):
    return f"{type(objective).__name__}-{objective.loss.__name__}-{getattr(objective, 'eta', '')}"


def kl_to_uniform(q):
    return float(-torch.special.entr(q).sum() + math.log(len(q)))


# --- losses


@given(seeds)
def test_losses_against_their_definitions(seed):
    output = random_output(seed)
    labels = torch.randint(5, (32,), generator=generator(seed))
    target = torch.nn.functional.one_hot(labels, 5)
    torch.testing.assert_close(cross_entropy(output, labels), -(output.probs.log() * target).sum(1))
    torch.testing.assert_close(brier(output, labels), (output.probs - target).square().sum(1))


@given(seeds, st.floats(0.1, 20))
def test_the_brier_loss_never_exceeds_the_cross_entropy(seed, scale):
    output = random_output(seed, scale=scale)
    labels = torch.randint(5, (32,), generator=generator(seed))
    assert (brier(output, labels) <= cross_entropy(output, labels) + 1e-12).all()


@given(st.floats(1e-300, 1, exclude_max=True), st.sampled_from([0, 1]))
def test_the_squared_residual_never_exceeds_the_binary_cross_entropy(p, y):
    assert (y - p) ** 2 <= -(y * math.log(p) + (1 - y) * math.log1p(-p)) + 1e-15


def test_losses_have_correct_gradients():
    labels = torch.tensor([0, 2, 1])
    logits = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    router = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for loss in (cross_entropy, brier):

        def value(router, logits, loss=loss):
            return loss(combine(router.log_softmax(1), logits.log_softmax(2)), labels)

        assert torch.autograd.gradcheck(value, (router, logits))


# --- identities of the entropy-balanced objective


@given(losses(), etas)
def test_decomposition_into_entropic_risk_and_kl(values, eta):
    """R-MoE = ρ_η + KL(q‖u)/η."""
    kl = kl_to_uniform(tilt_weights(values, eta))
    assert float(tilted_mean(values, eta)) == pytest.approx(
        float(entropic_risk(values, eta)) + kl / eta, abs=1e-9
    )


@given(losses(), etas)
def test_the_gradient_is_the_entropic_gradient_plus_a_covariance(values, eta):
    """∂ R-MoE / ∂L_i = q_i (1 + η (L_i − L̄_q)), and ∂ρ_η/∂L_i = q_i."""
    q = tilt_weights(values, eta)
    values = values.requires_grad_()
    (tilted,) = torch.autograd.grad(tilted_mean(values, eta), values)
    (entropic,) = torch.autograd.grad(entropic_risk(values, eta), values)
    values = values.detach()
    torch.testing.assert_close(entropic, q, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(tilted, q * (1 + eta * (values - q @ values)), rtol=1e-9, atol=1e-9)


@given(seeds, st.floats(0.1, 10))
def test_the_covariance_identity_holds_for_parameters(seed, eta):
    """∇_θ R-MoE = ∇_θ ρ_η + η Cov_q(L, ∇_θ L)."""
    source = generator(seed)
    theta = torch.randn(3, generator=source, dtype=torch.float64, requires_grad=True)
    design = torch.randn(12, 3, generator=source, dtype=torch.float64)
    values = torch.nn.functional.softplus(design @ theta)
    jacobian = torch.autograd.functional.jacobian(lambda t: torch.nn.functional.softplus(design @ t), theta)
    q = tilt_weights(values.detach(), eta)
    covariance = (q * values.detach()) @ jacobian - (q @ values.detach()) * (q @ jacobian)
    (full,) = torch.autograd.grad(tilted_mean(values, eta), theta, retain_graph=True)
    (entropic,) = torch.autograd.grad(entropic_risk(values, eta), theta)
    torch.testing.assert_close(full, entropic + eta * covariance, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@given(losses(), etas)
def test_the_tilted_mean_is_the_derivative_of_eta_times_entropic_risk(values, eta):
    """R-MoE = ∂_η [η ρ_η(L)] at fixed losses."""
    tilt = torch.tensor(eta, dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(tilt * entropic_risk(values, tilt), tilt)
    assert float(derivative) == pytest.approx(float(tilted_mean(values, eta)), abs=1e-9)


@given(losses(), st.one_of(st.just(0.0), st.floats(1e-3, 50)))
def test_a_tilt_in_a_tensor_is_the_same_tilt(values, eta):
    for reduce in (tilted_mean, entropic_risk):
        for tilt in (eta, torch.tensor(eta, dtype=torch.float64)):
            leaf = values.clone().requires_grad_()
            value = reduce(leaf, tilt)
            result = value.detach(), torch.autograd.grad(value, leaf)[0]
            if tilt is eta:
                expected = result
        torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(InputError, match="one number"):
        tilted_mean(values, torch.ones(2))


@given(losses())
def test_eta_zero_is_the_mean_exactly_and_the_limit_is_continuous(values):
    assert torch.equal(tilted_mean(values, 0.0), mean(values))
    assert torch.equal(entropic_risk(values, 0.0), mean(values))
    for reducer in (tilted_mean, entropic_risk):
        assert float(reducer(values, 1e-12)) == pytest.approx(float(values.mean()), abs=1e-9)


@given(losses())
def test_a_huge_eta_is_the_maximum(values):
    assert float(tilted_mean(values, 1e12)) == pytest.approx(float(values.max()), abs=1e-9)
    assert float(entropic_risk(values, 1e12)) == pytest.approx(float(values.max()), abs=1e-9)


@given(losses(), etas, st.floats(-5, 5))
def test_a_constant_added_to_all_losses_is_added_to_the_value(values, eta, shift):
    for reducer in (tilted_mean, entropic_risk):
        assert float(reducer(values + shift, eta)) == pytest.approx(
            float(reducer(values, eta)) + shift, abs=1e-9
        )


@given(losses(), etas)
def test_order_mean_entropic_tilted_max(values, eta):
    chain = [mean(values), entropic_risk(values, eta), tilted_mean(values, eta), values.max()]
    assert all(float(a) <= float(b) + 1e-9 for a, b in itertools.pairwise(chain))


@given(losses(), etas)
def test_gamma_effective_is_the_exponential_of_the_kl(values, eta):
    q = tilt_weights(values, eta)
    assert float(density_ratio_bound(q)) == pytest.approx(math.exp(kl_to_uniform(q)), rel=1e-9)
    assert 1 - 1e-9 <= float(density_ratio_bound(q)) <= len(values) * (1 + 1e-9)


# --- float32, in which everyone trains


@pytest.mark.parametrize("n", [128, 4096, 65_536])
@pytest.mark.parametrize("eta", [0.01, 2.0, 50.0])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_float32_agrees_with_float64(n, eta, offset):
    """One hard example among easy ones, where sums cancel; and large losses, whose differences are small."""
    exact = 0.3 * torch.rand(n, generator=generator(n), dtype=torch.float64)
    exact[0] = 8.0
    exact = (exact + offset).float().double()
    for reducer in (mean, tilted_mean, entropic_risk):
        arguments = () if reducer is mean else (eta,)
        single, double = exact.float().requires_grad_(), exact.clone().requires_grad_()
        values = reducer(single, *arguments), reducer(double, *arguments)
        resolution = 1e-6 * float(exact.max())  # of float32 at the largest loss
        assert float(values[0].detach()) == pytest.approx(float(values[1].detach()), abs=resolution)
        for value in values:
            value.backward()
        assert float((single.grad.double() - double.grad).abs().sum()) < 1e-4 * (1 + eta)


# --- bounds


def random_weights(seed, n, count):
    """Distributions over n points from nearly uniform to nearly degenerate. [count, n]"""
    source = generator(seed)
    sharpness = 10 ** (4 * torch.rand(count, 1, generator=source, dtype=torch.float64) - 2)
    return (sharpness * torch.randn(count, n, generator=source, dtype=torch.float64)).softmax(1)


def test_the_kl_ball_dual_bound_is_never_violated():
    """Σ q_i L_i ≤ ρ_η + KL(q‖u)/η ≤ R-MoE + KL(q‖u)/η for all q and η: 10,000 cases at the full size."""
    for seed in range(at_size(20, 100)):
        source = generator(seed)
        n = int(torch.randint(1, 40, (), generator=source))
        values = 10 * torch.rand(n, generator=source, dtype=torch.float64)
        eta = float(10 ** (4 * torch.rand((), generator=source) - 2))
        for q in random_weights(seed, n, 100):
            dual = float(entropic_risk(values, eta)) + kl_to_uniform(q) / eta
            assert float(q @ values) <= dual + 1e-9
            assert dual <= float(tilted_mean(values, eta)) + kl_to_uniform(q) / eta + 1e-9


def test_the_dual_bound_is_attained_by_the_tilt():
    values = torch.rand(20, dtype=torch.float64)
    q = tilt_weights(values, 3.0)
    assert float(q @ values) == pytest.approx(
        float(entropic_risk(values, 3.0)) + kl_to_uniform(q) / 3.0, abs=1e-12
    )


def test_the_cvar_entropic_bound_is_never_violated():
    """CVaR_Γ ≤ (log Γ)/η + ρ_η: 10,000 random cases at the full size."""
    for seed in range(at_size(2000, 10_000)):
        source = generator(seed)
        n = int(torch.randint(1, 20, (), generator=source))
        values = 10 * torch.rand(n, generator=source, dtype=torch.float64)
        gamma = 1 + float(9 * torch.rand((), generator=source))
        eta = float(10 ** (4 * torch.rand((), generator=source) - 2))
        assert float(cvar(values, gamma)) <= math.log(gamma) / eta + float(entropic_risk(values, eta)) + 1e-9


# --- entropy balancing


@given(losses(min_size=2), st.floats(0.001, 0.999))
def test_solve_tilt_hits_its_target(values, share):
    low, high = float(values.mean()), float(values.max())
    if high - low < 1e-6:
        return
    target = low + share * (high - low)
    eta = solve_tilt(values, target)
    assert eta >= 0
    assert float(tilted_mean(values, eta)) == pytest.approx(target, abs=1e-9)


@settings(max_examples=30)
@given(seeds)
def test_no_reweighting_with_the_same_moment_is_closer_to_uniform(seed):
    source = generator(seed)
    values = 5 * torch.rand(8, generator=source, dtype=torch.float64)
    target = float(values.mean() + 0.5 * (values.max() - values.mean()))
    balanced = tilt_weights(values, solve_tilt(values, target))
    # walk from the solution along directions that keep Σq = 1 and Σ q L = target
    constraints = torch.stack([torch.ones_like(values), values])
    directions = torch.randn(200, 8, generator=source, dtype=torch.float64)
    directions -= directions @ torch.linalg.pinv(constraints) @ constraints
    for direction in directions:
        reach = (balanced / direction.abs()).min() * torch.rand((), generator=source)
        other = balanced + reach * direction
        assert float(other @ values) == pytest.approx(target, abs=1e-9)
        assert kl_to_uniform(other) >= kl_to_uniform(balanced) - 1e-12


def test_solve_tilt_edges():
    values = torch.tensor([1.0, 2.0, 3.0])
    assert solve_tilt(values, 2.0) == 0.0
    assert solve_tilt(torch.tensor([1.5, 1.5]), 1.5) == 0.0
    noisy = torch.rand(1000) + 1
    assert solve_tilt(noisy, float(noisy.mean())) < 1e-5  # float32's own mean may lie below float64's
    for target in (1.9, 3.0, 4.0):
        with pytest.raises(InputError, match="no tilt reaches"):
            solve_tilt(values, target)
    nearly = solve_tilt(values, 3.0 - 1e-9)
    assert float(tilted_mean(values.double(), nearly)) == pytest.approx(3.0 - 1e-9, abs=1e-12)


# --- CVaR


@given(losses(), st.floats(1, 60))
def test_cvar_is_the_linear_programme(values, gamma):
    """sup Σ w L over 0 ≤ w ≤ Γ/n, Σw = 1, solved greedily; and Rockafellar and Uryasev's minimum."""
    n, left, best = len(values), 1.0, 0.0
    for value in values.sort(descending=True).values.tolist():
        weight = min(left, gamma / n)
        best, left = best + weight * value, left - weight
    assert float(cvar(values, gamma)) == pytest.approx(best, abs=1e-9)
    dual = min(float(t + gamma * (values - t).clamp(min=0).mean()) for t in values)
    assert float(cvar(values, gamma)) == pytest.approx(dual, abs=1e-9)


@given(losses(), st.floats(1, 60))
def test_cvar_weights_are_a_bounded_density(values, gamma):
    values = values.requires_grad_()
    (weights,) = torch.autograd.grad(cvar(values, gamma), values)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-9)
    assert (weights >= -1e-12).all()
    assert (weights <= gamma / len(values) + 1e-9).all() or gamma > len(values)


@given(losses())
def test_cvar_limits(values):
    assert float(cvar(values, 1.0)) == pytest.approx(float(values.mean()), abs=1e-9)
    assert float(cvar(values, 1e9)) == pytest.approx(float(values.max()), abs=1e-9)


# --- the routing-relevant set


@given(seeds)
def test_routing_relevant_against_its_definition(seed):
    output = random_output(seed, scale=1.0)
    labels = torch.randint(5, (32,), generator=generator(seed))
    rows = torch.arange(32)
    regret = cross_entropy(output, labels) - (-output.expert_log_probs[rows, :, labels]).min(1).values
    gaps = (output.expert_probs - output.probs.unsqueeze(1)).square().sum(2)
    disagreement = (output.routing * gaps).sum(1)
    for tau_regret, tau_disagreement in ((1e-6, 0.01), (0.5, 0.2), (math.inf, 0.05), (0.3, math.inf)):
        expected = (regret > tau_regret) | (disagreement > tau_disagreement)
        assert torch.equal(routing_relevant(output, labels, tau_regret, tau_disagreement), expected)


def test_agreeing_experts_and_a_single_expert_are_not_relevant():
    labels = torch.tensor([0, 1])
    same = torch.tensor([[0.3, 0.7], [0.6, 0.4]]).log().unsqueeze(1).expand(2, 3, 2)
    assert not routing_relevant(combine(torch.full((2, 3), 1 / 3).log(), same), labels).any()
    assert not routing_relevant(random_output(0, n=2, classes=2, experts=1), labels).any()


@given(seeds, st.floats(0, 10))
def test_robust_filtered_is_the_mean_plus_the_tilted_mean_over_a(seed, eta):
    output = random_output(seed)
    labels = torch.randint(5, (32,), generator=generator(seed))
    objective = RobustFiltered(eta=eta, regret=0.3, disagreement=0.3)
    values, mask = cross_entropy(output, labels), routing_relevant(output, labels, 0.3, 0.3)
    expected = values.mean() + (tilted_mean(values[mask], eta) if mask.any() else values.mean())
    torch.testing.assert_close(objective(output, labels), expected, rtol=1e-9, atol=1e-9)


def test_an_empty_a_gives_twice_the_mean_with_its_gradient():
    output, labels = random_output(0), torch.zeros(32, dtype=torch.long)
    objective = RobustFiltered(regret=math.inf, disagreement=math.inf)
    torch.testing.assert_close(objective(output, labels), 2 * cross_entropy(output, labels).mean())
    torch.testing.assert_close(
        objective.gradient_weights(output, labels), torch.full((32,), 2 / 32, dtype=torch.float64)
    )


@given(losses(min_size=2), st.floats(0.1, 10), seeds)
def test_tilting_a_subset_equals_tilting_it_alone(values, eta, seed):
    where = torch.rand(len(values), generator=generator(seed)) < 0.5
    q = tilt_weights(values, eta, where)
    if where.any():
        assert not q[~where].any()
        torch.testing.assert_close(q[where], tilt_weights(values[where], eta))
    else:
        torch.testing.assert_close(q, torch.full_like(values, 1 / len(values)))


# --- the negative-weight diagnostic


@given(losses(), st.floats(0.1, 10))
def test_share_of_negative_weights_counts_negative_gradients(values, eta):
    share = float(share_of_negative_weights(values, eta))
    values = values.requires_grad_()
    (gradient,) = torch.autograd.grad(tilted_mean(values, eta), values)
    gap = 1 + eta * (values - tilted_mean(values, eta)).detach()
    if gap.abs().min() > 1e-9 and tilt_weights(values.detach(), eta).min() > 0:
        assert share == float((gradient < 0).double().mean())


# --- exact gradients over micro-batches


@pytest.mark.parametrize("objective", OBJECTIVES, ids=name)
@pytest.mark.parametrize("sizes", [(16, 16, 16, 16), (30, 20, 13, 1)])
def test_four_micro_batches_give_the_gradient_of_the_whole_batch(objective, sizes):
    head = MixtureHead(8, num_classes=5).double()
    x, y = torch.randn(64, 8, dtype=torch.float64), torch.randint(5, (64,))
    whole = torch.autograd.grad(objective(head(x), y), list(head.parameters()))
    with torch.no_grad():
        output = head(x)
    weights = objective.gradient_weights(output, y)
    for part, label, weight in zip(x.split(sizes), y.split(sizes), weights.split(sizes), strict=True):
        (weight * objective.loss(head(part), label)).sum().backward()
    for parameter, gradient in zip(head.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


# --- edges: never NaN, gradients always finite


def extreme_outputs():
    labels = torch.tensor([0, 1, 2, 0])
    for scale in (1e4, -1e4):
        yield (
            combine(
                (scale * torch.randn(4, 3)).log_softmax(1), (scale * torch.randn(4, 3, 3)).log_softmax(2)
            ),
            labels,
        )
    certain = torch.full((4, 3, 3), -torch.inf)
    certain[:, :, 0] = 0.0  # labels 1 and 2 have probability zero
    yield combine(torch.full((4, 3), 1 / 3).log(), certain), labels
    yield random_output(1, n=1, classes=3, experts=3), torch.tensor([2])
    yield random_output(2, n=4, classes=3, experts=3), torch.tensor([1, 1, 1, 1])
    yield random_output(3, n=4, classes=1, experts=3), torch.zeros(4, dtype=torch.long)
    yield random_output(4, n=4, classes=3, experts=1), labels


@pytest.mark.parametrize(
    "objective", [*OBJECTIVES, RobustFiltered(eta=50.0), EntropicRisk(eta=50.0)], ids=name
)
def test_extreme_inputs_give_finite_values_and_gradients(objective):
    for output, labels in extreme_outputs():
        routing = output.log_routing.clone().requires_grad_()
        experts = output.expert_log_probs.clone().requires_grad_()
        value = objective(combine(routing, experts), labels)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(routing.grad).all()
        assert torch.isfinite(experts.grad).all()


def test_a_label_of_probability_zero_costs_a_known_amount():
    experts = torch.tensor([[[0.0, -torch.inf]]])
    output = combine(torch.zeros(1, 1), experts)
    assert float(cross_entropy(output, torch.tensor([1]))) == -LOG_ZERO
    assert float(brier(output, torch.tensor([1]))) == 2.0


def test_batches_that_do_not_fit_are_named():
    output = random_output(0, n=8)
    for loss in (cross_entropy, brier):
        for labels in (torch.zeros(3).long(), torch.zeros(8, 1).long(), torch.zeros(8), [0] * 8):
            with pytest.raises(InputError, match="labels must be a tensor of 8 class indices"):
                loss(output, labels)
        with pytest.raises(InputError, match="take a MixtureOutput"):
            loss(output.log_probs, torch.zeros(8).long())
    with pytest.raises(InputError, match="empty batch"):
        mean(torch.zeros(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RobustMoE(eta=-1.0), "eta must be"),
        (lambda: RobustFiltered(eta="2"), "eta must be"),
        (lambda: CVaR(gamma=0.5), "gamma must be"),
        (lambda: ERM(loss="brier"), "loss must be a function"),
    ],
)
def test_objectives_refuse_bad_settings_when_made(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("eta", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("reducer", [tilted_mean, entropic_risk, tilt_weights])
def test_a_bad_eta_is_refused(reducer, eta):
    with pytest.raises(InputError, match="eta must be"):
        reducer(torch.ones(3), eta)


def test_a_gamma_below_one_is_refused():
    with pytest.raises(InputError, match="gamma must be"):
        cvar(torch.ones(3), 0.5)
