import math

import pytest
import torch

from calmoe.training.diagnostics import tilt_diagnostics


def by_hand(batch, eta):
    """Of one batch, in plain numbers: the perplexity of q, and how many gradients Σ q L has below zero."""
    scale = [math.exp(eta * loss) for loss in batch]
    q = [s / sum(scale) for s in scale]
    losses = torch.tensor(batch, dtype=torch.float64, requires_grad=True)
    (torch.softmax(eta * losses, dim=0) @ losses).backward()
    return math.exp(-sum(p * math.log(p) for p in q)), int((losses.grad < 0).sum())


@pytest.mark.parametrize("eta", [0.0, 0.3, 2.0])
def test_means_over_full_batches(eta):
    """Ten batches of 16 and a rest, which does not count."""
    losses = torch.rand(165, generator=torch.Generator().manual_seed(5)).mul(3).square()
    batches = losses[:160].double().view(10, 16).tolist()
    perplexities, negative = zip(*(by_hand(batch, eta) for batch in batches), strict=True)
    diagnostics = tilt_diagnostics(losses, eta, batch=16, through_weights=True)
    assert diagnostics == pytest.approx(
        {
            "batch": 16,
            "perplexity": math.fsum(perplexities) / 10,
            "gamma_eff": math.fsum(16 / p for p in perplexities) / 10,
            "negative_share": sum(negative) / 160,
        }
    )
    assert (0 < diagnostics["negative_share"] < 1) == (eta > 0)
    without = tilt_diagnostics(losses, eta, batch=16, through_weights=False)
    assert without == {name: value for name, value in diagnostics.items() if name != "negative_share"}


def test_fewer_rows_than_a_batch_are_one_batch():
    losses = torch.linspace(0, 2, 12)
    diagnostics = tilt_diagnostics(losses, 1.0, batch=50, through_weights=True)
    assert diagnostics == tilt_diagnostics(losses, 1.0, batch=12, through_weights=True)
    assert diagnostics["batch"] == 12
    assert diagnostics["gamma_eff"] == pytest.approx(12 / by_hand(losses.double().tolist(), 1.0)[0])
