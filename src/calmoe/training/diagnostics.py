"""What a tilted objective did to an epoch, from the losses of its batches alone."""

import torch
from torch import Tensor


def tilt_diagnostics(losses: Tensor, eta: float, batch: int, through_weights: bool) -> dict[str, float]:
    """Means over the full batches: perplexity of q, Γ_eff = n / it, and the share of negative weights.

    Only where gradients flow through the weights, as in the tilted mean, can a weight be negative.

    >>> tilt_diagnostics(torch.ones(256), eta=2.0, batch=128, through_weights=True)
    {'perplexity': 128.0, 'gamma_eff': 1.0, 'negative_share': 0.0}
    """
    size = min(batch, len(losses))
    batches = losses[: len(losses) // size * size].double().view(-1, size)
    q = torch.softmax(eta * batches, dim=1)
    perplexity = torch.special.entr(q).sum(dim=1).exp()
    found = {
        "perplexity": round(float(perplexity.mean()), 9),
        "gamma_eff": round(float((size / perplexity).mean()), 9),
    }
    if through_weights:
        tilted = (q * batches).sum(dim=1, keepdim=True)
        found["negative_share"] = float((1 + eta * (batches - tilted) < 0).double().mean())
    return found
