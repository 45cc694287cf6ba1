"""What a tilted objective did to an epoch, from the losses of its batches alone."""

import torch
from torch import Tensor

from calmoe.reducers import density_ratio_bound, share_of_negative_weights, tilt_weights


def tilt_diagnostics(losses: Tensor, eta: float, batch: int, through_weights: bool) -> dict[str, float]:
    """Means over the full batches: perplexity of q, Γ_eff = n / it, and the share of negative weights.

    `batch` is their size n: all rows make one batch where there are fewer than asked for. Only where
    gradients flow through the weights, as in the tilted mean, can a weight be negative.

    >>> tilt_diagnostics(torch.ones(256), eta=2.0, batch=128, through_weights=True)
    {'batch': 128, 'perplexity': 128.0, 'gamma_eff': 1.0, 'negative_share': 0.0}
    """
    size = min(batch, len(losses))
    batches = losses[: len(losses) // size * size].double().view(-1, size)
    gamma = torch.vmap(lambda of: density_ratio_bound(tilt_weights(of, eta)))(batches)
    found = {
        "batch": size,
        "perplexity": round(float((size / gamma).mean()), 9),
        "gamma_eff": round(float(gamma.mean()), 9),
    }
    if through_weights:
        found["negative_share"] = float(
            torch.vmap(lambda of: share_of_negative_weights(of, eta))(batches).mean()
        )
    return found
