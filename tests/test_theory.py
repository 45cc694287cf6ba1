"""Proposition 4.1, section 3 and appendix C on finite spaces, where expectations are sums.

A configuration S is a row of routing weights and expert predictions; the mixture and the calibration residual
come from the library. A finite space of configurations with E[Y|S] = m(S) is a table with two rows each, for
Y = 1 and Y = 0, weighted by P(S) m(S) and P(S) (1 − m(S)).
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from calmoe.metrics import ece, reliability
from calmoe.metrics.routing import expert_variance
from calmoe.mixture import combine
from calmoe.objectives import brier, cross_entropy
from strategies import generator, seeds

LEVELS = torch.tensor([0.1, 0.3, 0.55, 0.8], dtype=torch.float64)
BINS = 10  # puts every level into a bin of its own


def configurations(seed, count=24, experts=3):
    """Random configurations whose mixtures collapse onto four levels of f: P(S), the output, m(S)."""
    source = generator(seed)
    level = torch.randint(len(LEVELS), (count,), generator=source)
    routing = torch.rand(count, experts, generator=source, dtype=torch.float64) + 0.1
    routing /= routing.sum(1, keepdim=True)
    # any expert predictions, moved along the routing weights until the mixture is at its level
    f_k = torch.rand(count, experts, generator=source, dtype=torch.float64)
    low, high = torch.zeros(count, 1, dtype=torch.float64), torch.ones(count, 1, dtype=torch.float64)
    mixed = (routing * f_k).sum(1, keepdim=True)
    target = LEVELS[level].unsqueeze(1)
    towards = torch.where(mixed < target, high, low)
    f_k += (target - mixed) / (towards - mixed) * (towards - f_k)
    output = combine(routing.log(), torch.stack([1 - f_k, f_k], dim=2).log())
    mass = torch.rand(count, generator=source, dtype=torch.float64).softmax(0)
    m = torch.rand(count, generator=source, dtype=torch.float64)
    return mass, output, m


def aggregate(output):
    """f(S), onto its level exactly: the sums of a mixture carry rounding errors."""
    f = output.probs[:, 1]
    nearest = LEVELS[(f.unsqueeze(1) - LEVELS).abs().argmin(1)]
    assert (f - nearest).abs().max() < 1e-12
    return nearest


def table(f, m, mass):
    """Two rows a configuration: probabilities, labels, weights."""
    probs = torch.stack([1 - f, f], dim=1).repeat(2, 1)
    labels = torch.cat([torch.ones(len(f)), torch.zeros(len(f))]).long()
    return probs, labels, torch.cat([mass * m, mass * (1 - m)])


def residuals(f, m, mass):
    """E[Y − f | f = p] at each level, through the library's reliability; NaN where a level has no mass."""
    curve = reliability(*table(f, m, mass), bins=BINS, of=1)
    at = [int(np.ceil(float(p) * BINS)) - 1 for p in LEVELS]
    return -curve.gap[at]


def balanced(mass, f, m):
    """m moved within each level so that its mean there is f: calibrated, though only by cancellation."""
    m = m.clone()
    for p in LEVELS:
        at = f == p
        if at.any():
            spread = min(p, 1 - p)
            m[at] = p + spread * (m[at] - (mass[at] * m[at]).sum() / mass[at].sum())
    return m


def random_density(seed, mass):
    values = torch.rand(len(mass), generator=generator(seed), dtype=torch.float64) ** 4
    return values / (mass @ values)


@given(seeds)
def test_the_identity_of_proposition_4_1(seed):
    mass, output, m = configurations(seed)
    f, a = aggregate(output), random_density(seed + 1, mass)
    shifted = residuals(f, m, mass * a)
    for p, residual in zip(LEVELS, shifted, strict=True):
        at = f == p
        if at.any():
            conditional = mass[at] / mass[at].sum()
            expected = (conditional * a[at] * (m[at] - p)).sum() / (conditional * a[at]).sum()
            assert residual == pytest.approx(float(expected), abs=1e-9)


@given(seeds)
def test_calibration_by_cancellation_is_broken_by_the_constructed_reweighting(seed):
    mass, output, m = configurations(seed)
    f = aggregate(output)
    m = balanced(mass, f, m)
    assert ece(*table(f, m, mass), bins=BINS, of=1) < 1e-9
    for sign in (1, -1):
        event = (sign * (m - f) > 1e-6).double()
        if event.any():
            a = event / (mass @ event)
            broken = residuals(f, m, mass * a)
            assert (sign * broken[~np.isnan(broken)] > 0).all()
            expected = float((mass * a) @ (m - f).abs())  # all residuals have one sign: nothing cancels
            assert ece(*table(f, m, mass * a), bins=BINS, of=1) == pytest.approx(expected, abs=1e-9)


def test_none_of_a_thousand_reweightings_breaks_calibration_in_every_configuration():
    """And each of the same thousand moves the residual of a world that is calibrated by cancellation."""
    mass, output, m = configurations(7)
    f = aggregate(output)
    cancelling = balanced(mass, f, m)
    for draw in range(1000):
        a = random_density(draw, mass)
        assert ece(*table(f, f, mass * a), bins=BINS, of=1) < 1e-9
        assert ece(*table(f, cancelling, mass * a), bins=BINS, of=1) > 1e-4


@given(seeds)
def test_region_reweighting_leaves_a_calibrated_hard_routed_mixture_calibrated(seed):
    """Section 3: S = (k, f_k). Experts calibrated on their own regions; the regions' prevalence changes."""
    source = generator(seed)
    experts, inputs = 3, 5
    chosen = torch.arange(experts).repeat_interleave(len(LEVELS) * inputs)
    level = torch.arange(len(LEVELS)).repeat_interleave(inputs).repeat(experts)
    n = len(chosen)
    log_routing = torch.nn.functional.one_hot(chosen, experts).double().log()
    f_k = torch.rand(n, experts, generator=source, dtype=torch.float64)
    f_k[torch.arange(n), chosen] = LEVELS[level]
    f = combine(log_routing, torch.stack([1 - f_k, f_k], 2).log()).probs[:, 1]
    mass = torch.rand(n, generator=source, dtype=torch.float64).softmax(0)
    m = torch.rand(n, generator=source, dtype=torch.float64)
    for slice_ in range(n // inputs):  # calibrated on every expert-confidence slice
        at = slice(slice_ * inputs, (slice_ + 1) * inputs)
        m[at] += f[at] - (mass[at] * m[at]).sum() / mass[at].sum()
    alpha = torch.rand(experts, generator=source, dtype=torch.float64)
    region = torch.stack([mass[chosen == k].sum() for k in range(experts)])
    shifted = mass * (alpha / alpha.sum() / region)[chosen]
    gap = torch.stack([(shifted * (m - f))[level == p].sum() for p in range(len(LEVELS))])
    assert gap.abs().max() < 1e-12
    # the same mixture under a reweighting inside the slices is not protected
    inside = mass * torch.rand(n, generator=source, dtype=torch.float64)
    broken = torch.stack([(inside * (m - f))[level == p].sum() for p in range(len(LEVELS))])
    assert broken.abs().max() > 1e-6


@given(seeds)
def test_calibrated_experts_imply_marginal_balance_of_a_soft_mixture_only(seed):
    """Section 4.1: Σ_k E[r_k (Y − f_k)] = E[Y − f], whatever the level sets do."""
    mass, output, m = configurations(seed)
    by_expert = mass.unsqueeze(1) * output.routing * (m.unsqueeze(1) - output.expert_probs[:, :, 1])
    assert float(by_expert.sum()) == pytest.approx(float(mass @ (m - output.probs[:, 1])), abs=1e-12)


# --- calibrated experts and a calibrated mixture agree (docs/mathematics.md)


def uniform(source, *shape, low=0.0, high=1.0):
    return low + (high - low) * torch.rand(*shape, generator=source, dtype=torch.float64)


def routed(source, count, experts):
    """P(S) and routing; a third of the weights are zero, but no row of them."""
    weights = uniform(source, count, experts, low=0.01) * (uniform(source, count, experts) > 1 / 3)
    weights[weights.sum(1) == 0] = 1.0
    return uniform(source, count, low=0.01).softmax(0), weights / weights.sum(1, keepdim=True)


def calibrated_on_their_views(source, mass, routing, truth, signals=4):
    """f_k: expert k sees a signal with a few values, and says E[r_k Y | signal] / E[r_k | signal]."""
    answers = torch.empty_like(routing)
    for k, weight in enumerate((mass.unsqueeze(1) * routing).T):
        signal = torch.randint(signals, weight.shape, generator=source)
        for value in range(signals):
            at = (signal == value) & (weight > 0)
            answers[at, k] = (weight[at] @ truth[at]) / weight[at].sum()
    unasked = routing == 0  # these may say anything
    answers[unasked] = uniform(source, int(unasked.sum()))
    return answers


def level_sets(values, weights):
    """Sums of weights at equal values, up to rounding."""
    return np.bincount(np.unique(values.numpy().round(12), return_inverse=True)[1], weights.numpy())


def assert_calibrated_on_their_views(mass, routing, answers, truth, atol=1e-12):
    for k in range(routing.shape[1]):
        residual = mass * routing[:, k] * (truth - answers[:, k])
        assert np.abs(level_sets(answers[:, k], residual)).max() < atol


def assert_the_identity(mass, output, event, answers, truth):
    """E[Y − f] = 0, E[f(Y − f)] = E[D], and the mixture's level sets are off by 2 E[D] or more in all."""
    f = output.probs.gather(1, event.unsqueeze(1)).squeeze(1)
    disagreement = torch.as_tensor(expert_variance(output.routing.numpy(), answers.numpy()))
    expected = float(mass @ disagreement)
    assert float(mass @ (truth - f)) == pytest.approx(0, abs=1e-12)
    assert float(mass @ (f * (truth - f))) == pytest.approx(expected, abs=1e-12)
    assert np.abs(level_sets(f, mass * (truth - f))).sum() >= 2 * expected - 1e-12
    return expected


@given(seeds)
def test_calibrated_experts_that_disagree_make_an_uncalibrated_mixture(seed):
    source, count = generator(seed), 30
    mass, routing = routed(source, count, experts=3)
    truth = uniform(source, count)
    answers = calibrated_on_their_views(source, mass, routing, truth)
    assert_calibrated_on_their_views(mass, routing, answers, truth)
    output = combine(routing.log(), torch.stack([1 - answers, answers], dim=2).log())
    of_class_1 = torch.ones(count, dtype=torch.long)
    assert assert_the_identity(mass, output, of_class_1, answers, truth) > 1e-6


@given(seeds)
def test_the_same_for_confidence_with_the_experts_probability_of_the_mixtures_class(seed):
    """The predicted class has more than 1/C in every configuration; what is left is shared by the others."""
    source, count, experts, classes = generator(seed), 30, 3, 4
    mass, routing = routed(source, count, experts)
    predicted = torch.randint(classes, (count,), generator=source)
    truth = uniform(source, count, low=1 / classes + 0.05)  # P(Y = the predicted class | S)
    answers = calibrated_on_their_views(source, mass, routing, truth)
    asked = routing > 0
    answers = torch.where(asked, answers, 1 / classes)
    probs = ((1 - answers) / (classes - 1)).unsqueeze(2).repeat(1, 1, classes)
    probs.scatter_(2, predicted.view(-1, 1, 1).expand(-1, experts, 1), answers.unsqueeze(2))
    output = combine(routing.log(), probs.log())
    assert torch.equal(output.predicted, predicted)
    said = output.expert_probs.gather(2, predicted.view(-1, 1, 1).expand(-1, experts, 1)).squeeze(2)
    assert_calibrated_on_their_views(mass, routing, said, truth)
    torch.testing.assert_close(output.confidence, (routing * said).sum(1), rtol=0, atol=1e-14)
    assert assert_the_identity(mass, output, predicted, said, truth) > 1e-6


def orthogonal_to(rows, values):
    """`values` less their projection on the rows [K, n]."""
    return values - torch.linalg.pinv(rows) @ (rows @ values)


@given(seeds)
def test_with_agreement_a_shift_that_breaks_the_mixture_breaks_an_expert(seed):
    """Both calibrated, by cancellation: routed experts say p while m(S) = p + u, with u ⟂ P r_k in a level.

    A density a with a u ⟂ P r_k too keeps all experts calibrated, and the mixture is. Any other one breaks
    an expert at least as far, summed over experts, as it breaks the mixture.
    """
    source, experts, inputs = generator(seed), 3, 12
    count = inputs * len(LEVELS)
    mass, routing = routed(source, count, experts)
    f = LEVELS.repeat_interleave(inputs)
    answers = f.unsqueeze(1).expand(-1, experts)
    truth, kept = f.clone(), torch.ones_like(mass)
    for level in range(len(LEVELS)):
        at = slice(level * inputs, (level + 1) * inputs)
        rows = (mass[at].unsqueeze(1) * routing[at]).T
        u = orthogonal_to(rows, uniform(source, inputs, low=-1.0))
        truth[at] += 0.9 * min(LEVELS[level], 1 - LEVELS[level]) * u / u.abs().max()
        off = truth[at] - f[at]
        density = orthogonal_to(rows * off, uniform(source, inputs, low=-1.0))
        kept[at] += 0.9 * density / density.abs().max()
    for a in (torch.ones_like(mass), kept):  # before, and after a shift that keeps the experts calibrated
        assert_calibrated_on_their_views(mass * a, routing, answers, truth)
        assert np.abs(level_sets(f, mass * a * (truth - f))).max() < 1e-12
    assert float(mass @ (truth - f).abs()) > 1e-3  # by cancellation: no configuration is calibrated
    for draw in range(20):
        a = random_density(seed + draw, mass)
        broken = level_sets(f, mass * a * (truth - f))
        by_expert = [level_sets(f, mass * a * routing[:, k] * (truth - f)) for k in range(experts)]
        assert (np.abs(broken) <= np.abs(by_expert).sum(0) + 1e-12).all()


@settings(max_examples=200)
@given(seeds)
def test_the_multiaccuracy_bound_is_never_violated(seed):
    """Appendix C: |E[w g (Y − f)]| ≤ √E[w (Y − f)²] ≤ √E[w CE], for auditors g = r_k φ(f) and weights w."""
    _, output, _ = configurations(seed, count=40)
    source = generator(seed + 1)
    f, labels = output.probs[:, 1], torch.randint(2, (40,), generator=source)
    residual = labels - f
    w = torch.rand(20, 40, generator=source, dtype=torch.float64) ** 3
    w /= w.sum(1, keepdim=True)
    phi = torch.rand(10, 10, generator=source, dtype=torch.float64)[:, (f * 10).long().clamp(max=9)]
    moments = torch.einsum("wn,nk,pn,n->wkp", w, output.routing, phi, residual).abs().amax((1, 2))
    squared = w @ (brier(output, labels) / 2)  # the two-class Brier loss counts the residual twice
    torch.testing.assert_close(squared, w @ residual.square())
    assert (moments <= squared.sqrt() + 1e-12).all()
    assert (squared <= w @ cross_entropy(output, labels) + 1e-12).all()
