"""What the filtered objective's value says: of weights on the routing-relevant set A, and of nothing else."""

import pytest
import torch
from hypothesis import given

from calmoe.mixture import combine
from calmoe.objectives import RobustFiltered, cross_entropy, entropic_risk, routing_relevant, tilt_weights
from strategies import generator, random_output, seeds

ETA = 2.0


def batch(seed, n=24):
    output = random_output(seed, n=n, classes=2, experts=3)
    labels = torch.randint(2, (n,), generator=generator(seed + 1))
    chosen = routing_relevant(output, labels)
    return output, labels, chosen, cross_entropy(output, labels)


def restricted(losses, chosen):
    """q_A: zero outside A."""
    weights = torch.zeros_like(losses)
    weights[chosen] = tilt_weights(losses[chosen], ETA)
    return weights


@given(seeds)
def test_the_objective_is_the_anchor_and_the_tilt_on_a(seed):
    output, labels, chosen, losses = batch(seed)
    if not chosen.any():
        return
    expected = losses.mean() + restricted(losses, chosen) @ losses
    assert float(RobustFiltered(eta=ETA)(output, labels)) == pytest.approx(float(expected))


@given(seeds)
def test_the_filtered_term_bounds_every_weighting_of_a(seed):
    """Σ w L ≤ ρ_η(L on A) + KL(w‖u_A)/η ≤ Σ q_A L + KL(w‖u_A)/η for every w on A."""
    _, _, chosen, losses = batch(seed)
    if not chosen.any():
        return
    inside, size = losses[chosen], int(chosen.sum())
    filtered, risk = restricted(losses, chosen) @ losses, entropic_risk(inside, ETA)
    q = tilt_weights(inside, ETA)
    assert float(filtered) == pytest.approx(float(risk + (q * (q * size).log()).sum() / ETA))
    w = torch.rand(20, size, generator=generator(seed + 2), dtype=torch.float64) ** 4
    w /= w.sum(1, keepdim=True)
    kl = torch.special.xlogy(w, w * size).sum(1)
    assert (w @ inside <= risk + kl / ETA + 1e-12).all()
    assert (w @ inside <= filtered + kl / ETA + 1e-12).all()


@given(seeds)
def test_each_term_controls_its_own_moments(seed):
    """|E[w r_k φ(f) D]| ≤ √(Σ w L): with w = q_A by the filtered term, with w = 1/n by the anchor."""
    output, labels, chosen, losses = batch(seed)
    f = output.probs[:, 1]
    levels = torch.rand(10, 10, generator=generator(seed + 3), dtype=torch.float64)
    phi = levels[:, (f * 10).long().clamp(max=9)]
    auditors = torch.einsum("nk,pn->nkp", output.routing, phi).flatten(1)
    uniform = torch.full_like(losses, 1 / len(losses))
    for w in (uniform, restricted(losses, chosen)) if chosen.any() else (uniform,):
        moments = ((w * (labels - f)) @ auditors).abs()
        assert (moments <= (w @ losses).sqrt() + 1e-12).all()


def test_outside_of_a_the_filtered_term_says_nothing():
    """Experts that agree, and are all wrong on one row: it is not in A, and no weight on A sees its loss."""
    agreed = torch.tensor([[0.9, 0.1], [0.9, 0.1], [1e-6, 1 - 1e-6]], dtype=torch.float64)
    apart = torch.tensor([[0.6, 0.4], [0.5, 0.5], [0.4, 0.6]], dtype=torch.float64)
    experts = torch.stack([agreed, torch.where(torch.arange(3)[:, None] < 2, apart, agreed)], dim=1)
    output = combine(torch.full((3, 2), 0.5, dtype=torch.float64).log(), experts.log())
    labels = torch.zeros(3, dtype=torch.long)
    chosen, losses = routing_relevant(output, labels), cross_entropy(output, labels)
    assert chosen.tolist() == [True, True, False]
    filtered = restricted(losses, chosen) @ losses
    assert losses[2] > 10 * filtered  # a shift towards the third row is not bounded by it
    assert losses[2] <= 3 * losses.mean()  # but by the anchor, n times
