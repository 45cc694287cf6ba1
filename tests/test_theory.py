"""Proposition 4.1, section 3 and appendix C on finite spaces, where expectations are sums."""

import pytest
import torch
from hypothesis import given

from strategies import generator, seeds


def world(seed, configurations=24, levels=4):
    """P(S), f(S) on a few levels, and m(S) = E[Y|S], all random."""
    source = generator(seed)
    mass = torch.rand(configurations, generator=source, dtype=torch.float64).softmax(0)
    level = torch.randint(levels, (configurations,), generator=source)
    f = torch.rand(levels, generator=source, dtype=torch.float64)[level]
    m = torch.rand(configurations, generator=source, dtype=torch.float64)
    return mass, level, f, m


def residual_by_level(mass, level, f, m):
    """E[Y − f | f = p] for each level with positive mass."""
    return {
        int(p): float((mass * (m - f))[level == p].sum() / mass[level == p].sum())
        for p in level.unique()
        if mass[level == p].sum() > 0
    }


def balanced(mass, level, f, m):
    """Shift m within each level so that its mean there is f: calibrated, though only by cancellation."""
    m = m.clone()
    for p in level.unique():
        at = level == p
        m[at] += (mass[at] * (f - m)[at]).sum() / mass[at].sum()
    return m


def random_density(seed, mass):
    a = generator(seed)
    values = torch.rand(len(mass), generator=a, dtype=torch.float64) ** 4
    return values / (mass @ values)


@given(seeds)
def test_the_identity_of_proposition_4_1(seed):
    mass, level, f, m = world(seed)
    a = random_density(seed + 1, mass)
    shifted = residual_by_level(mass * a, level, f, m)
    for p, residual in shifted.items():
        at = level == p
        conditional = mass[at] / mass[at].sum()
        numerator = (conditional * a[at] * (m - f)[at]).sum()
        assert residual == pytest.approx(float(numerator / (conditional * a[at]).sum()), abs=1e-12)


@given(seeds)
def test_calibration_by_cancellation_is_broken_by_the_constructed_reweighting(seed):
    mass, level, f, m = world(seed)
    m = balanced(mass, level, f, m)
    assert max(map(abs, residual_by_level(mass, level, f, m).values())) < 1e-12
    for sign in (1, -1):
        event = (sign * (m - f) > 1e-9).double()
        if event.any():
            a = event / (mass @ event)
            residuals = residual_by_level(mass * a, level, f, m)
            assert residuals
            assert all(sign * residual > 0 for residual in residuals.values())


@given(seeds)
def test_calibration_in_every_configuration_survives_every_reweighting(seed):
    mass, level, f, _ = world(seed)
    for draw in range(1000 // 50):
        a = random_density(seed + draw, mass)
        assert all(abs(r) < 1e-12 for r in residual_by_level(mass * a, level, f, f).values())


def test_none_of_a_thousand_reweightings_breaks_a_world_with_m_equal_f():
    mass, level, f, _ = world(7)
    for draw in range(1000):
        residuals = residual_by_level(mass * random_density(draw, mass), level, f, f)
        assert all(abs(residual) < 1e-12 for residual in residuals.values())


@given(seeds)
def test_region_reweighting_leaves_a_calibrated_hard_routed_mixture_calibrated(seed):
    """Section 3: S = (k, f_k). Experts calibrated on their own regions; the regions' prevalence changes."""
    source = generator(seed)
    experts, levels = 3, 4
    f = torch.rand(levels, generator=source, dtype=torch.float64)  # all experts may report the same values
    mass = torch.rand(experts, levels, 5, generator=source, dtype=torch.float64)  # five inputs per slice
    mass /= mass.sum()
    m = torch.rand(experts, levels, 5, generator=source, dtype=torch.float64)
    m += f.view(1, -1, 1) - (mass * m).sum(2, keepdim=True) / mass.sum(
        2, keepdim=True
    )  # calibrated per (k, p)
    alpha = torch.rand(experts, generator=source, dtype=torch.float64)
    shifted = alpha.view(-1, 1, 1) / alpha.sum() * mass / mass.sum((1, 2), keepdim=True)
    residual = (shifted * (m - f.view(1, -1, 1))).sum((0, 2)) / shifted.sum((0, 2))
    assert residual.abs().max() < 1e-12


@given(seeds)
def test_calibrated_experts_imply_marginal_balance_of_a_soft_mixture_only(seed):
    """Section 4.1: Σ_k E[r_k (Y − f_k)] = E[Y − f], whatever the level sets do."""
    source = generator(seed)
    n, k = 30, 3
    mass = torch.rand(n, generator=source, dtype=torch.float64).softmax(0)
    r = torch.randn(n, k, generator=source, dtype=torch.float64).softmax(1)
    f_k = torch.rand(n, k, generator=source, dtype=torch.float64)
    m = torch.rand(n, generator=source, dtype=torch.float64)
    by_expert = (mass.unsqueeze(1) * r * (m.unsqueeze(1) - f_k)).sum()
    assert float(by_expert) == pytest.approx(float(mass @ (m - (r * f_k).sum(1))), abs=1e-12)


@given(seeds)
def test_the_multiaccuracy_bound_is_never_violated(seed):
    """Appendix C: |E[w g (Y − f)]| ≤ √E[w (Y − f)²] for every auditor g = r_k φ(f) and every weight w."""
    source = generator(seed)
    n, k = 40, 3
    r = torch.randn(n, k, generator=source, dtype=torch.float64).softmax(1)
    f = torch.rand(n, generator=source, dtype=torch.float64)
    y = (torch.rand(n, generator=source) < 0.5).double()
    w = torch.rand(20, n, generator=source, dtype=torch.float64) ** 3
    w /= w.sum(1, keepdim=True)
    phi = torch.rand(10, n, generator=source, dtype=torch.float64)[:, (f * 10).long().clamp(max=9)]
    moments = torch.einsum("wn,nk,pn,n->wkp", w, r, phi, y - f).abs().amax((1, 2))
    assert (moments <= (w @ (y - f).square()).sqrt() + 1e-12).all()
