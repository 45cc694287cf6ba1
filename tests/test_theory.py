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
