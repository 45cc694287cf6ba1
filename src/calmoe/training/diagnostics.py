"""What a tilted objective did to an epoch, from the losses of its batches alone."""

import torch
from torch import Tensor


def tilt_diagnostics(losses: Tensor, eta: float, batch: int) -> dict[str, float]:
    """Means over the full batches: share of negative gradient weights, perplexity of q, and Γ_eff = n / it.

    >>> tilt_diagnostics(torch.ones(256), eta=2.0, batch=128)
    {'negative_share': 0.0, 'perplexity': 128.0, 'gamma_eff': 1.0}
    """
    size = min(batch, len(losses))
    batches = losses[: len(losses) // size * size].double().view(-1, size)
    q = torch.softmax(eta * batches, dim=1)
    tilted = (q * batches).sum(dim=1, keepdim=True)
    negative = (1 + eta * (batches - tilted) < 0).double().mean()
    perplexity = torch.special.entr(q).sum(dim=1).exp()
    return {
        "negative_share": float(negative),
        "perplexity": round(float(perplexity.mean()), 9),
        "gamma_eff": round(float((size / perplexity).mean()), 9),
    }
