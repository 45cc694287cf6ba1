"""What a tilted objective did to an epoch, from the losses of its batches alone."""

import torch
from torch import Tensor

from calmoe.reducers import density_ratio_bound, share_of_negative_weights, tilt_weights


def tilt_diagnostics(losses: Tensor, eta: float, batch: int, through_weights: bool) -> dict[str, float]:
    """Means over the full batches: perplexity of q, Γ_eff = n / it, and the share of negative weights.

    `batch` is their size n; fewer rows than that make one batch. A weight can be negative only where
    gradients flow through the weights, as in the tilted mean.

    >>> tilt_diagnostics(torch.ones(256), eta=2.0, batch=128, through_weights=True)
    {'batch': 128, 'perplexity': 128.0, 'gamma_eff': 1.0, 'negative_share': 0.0}
    """
    size = min(batch, len(losses))
    batches = losses[: len(losses) // size * size].double().view(-1, size)
    gamma = torch.vmap(lambda batch: density_ratio_bound(tilt_weights(batch, eta)))(batches)
    diagnostics = {
        "batch": size,
        "perplexity": round(float((size / gamma).mean()), 9),
        "gamma_eff": round(float(gamma.mean()), 9),
    }
    if through_weights:
        shares = torch.vmap(lambda batch: share_of_negative_weights(batch, eta))(batches)
        diagnostics["negative_share"] = float(shares.mean())
    return diagnostics
