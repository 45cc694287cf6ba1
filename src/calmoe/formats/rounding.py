"""Probabilities that somebody rounded: rows that miss 1 by no more than rounding explains sum to 1 again."""

import torch
from torch import Tensor

TOLERANCE = 1e-3
"""Rows may miss 1 by this much and stay as they are: `Predictions` takes them so."""
DECIMALS = (2, 3, 4, 5)  # one decimal would pass for an error of some points
FARTHEST = 0.05
"""No sum may be farther from 1, however many classes were rounded."""
HIDDEN = 0.1  # of a unit: about what stands behind a zero; more would lower the largest probabilities


def renormalised(probs: Tensor) -> tuple[Tensor, int] | None:
    """Rows that sum to 1, and the decimals that they were rounded to; None where that explains nothing.

    Of d decimals each value may be off by half a unit of the last one, so C values miss 1 by at most C/2
    units. Probabilities whose sums are fine anyway stay as they are: None again.

    >>> renormalised(torch.full((1, 6), 0.167, dtype=torch.float64))[0].sum()
    tensor(1.0000, dtype=torch.float64)
    >>> renormalised(torch.tensor([[0.5, 0.4]])) is None
    True
    """
    if not probs.is_floating_point() or probs.ndim < 2 or 0 in probs.shape:
        return None
    sums = probs.sum(dim=-1, dtype=torch.float64)
    farthest = float((sums - 1).abs().max())
    if not TOLERANCE < farthest <= FARTHEST:  # NaN too
        return None
    decimals = next((d for d in DECIMALS if _has_decimals(probs, d)), None)
    if decimals is None or farthest > probs.shape[-1] / 2 * 10.0**-decimals + 1e-9 or probs.min() < 0:
        return None
    return probs.double() / sums.unsqueeze(-1), decimals


def without_zeros(probs: Tensor, decimals: int) -> Tensor:
    """Rounded rows that sum to 1 again: what they call 0 is less than half a unit of the last decimal.

    >>> without_zeros(torch.tensor([[0.99, 0.0, 0.0]], dtype=torch.float64), 2)
    tensor([[0.9980, 0.0010, 0.0010]], dtype=torch.float64)
    """
    filled = torch.where(probs == 0, HIDDEN * 10.0**-decimals, probs.double())
    return filled / filled.sum(dim=-1, keepdim=True)


def _has_decimals(values: Tensor, decimals: int) -> bool:
    units = values.double() * 10.0**decimals
    slack = 1e-6 if values.dtype == torch.float64 else 10.0**decimals * 1e-7  # float32 has seven digits
    return bool(((units - units.round()).abs() <= slack).all())
