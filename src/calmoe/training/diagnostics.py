"""What a tilted objective did to an epoch, from the losses of its batches alone."""

import torch
from torch import Tensor

from calmoe.objectives import density_ratio_bound, share_of_negative_weights, tilt_weights


def tilt_diagnostics(losses: Tensor, eta: float, batch: int) -> dict[str, float]:
    """Means over the full batches: share of negative gradient weights, perplexity of q and Γ_eff.

    >>> tilt_diagnostics(torch.ones(256), eta=2.0, batch=128)
    {'negative_share': 0.0, 'perplexity': 128.0, 'gamma_eff': 1.0}
    """
    batches = [part.double() for part in losses.split(batch) if len(part) == batch] or [losses.double()]
    bounds = torch.stack([density_ratio_bound(tilt_weights(part, eta)) for part in batches])
    negative = torch.stack([share_of_negative_weights(part, eta) for part in batches])
    return {
        "negative_share": float(negative.mean()),
        "perplexity": round(float((len(batches[0]) / bounds).mean()), 9),
        "gamma_eff": round(float(bounds.mean()), 9),
    }
