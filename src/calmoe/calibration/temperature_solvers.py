"""log softmax(z / T): what a temperature does, and the solvers for the T of least cross-entropy."""

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from calmoe.arrays import Array, as_tensor, widen
from calmoe.errors import InputError
from calmoe.roots import rising_root


class CalibrationWarning(UserWarning):
    """The fitted temperature is not an interior optimum.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("ignore", CalibrationWarning)  # where it is expected
    """


def temper(log_probs: Tensor, temperature: float | Tensor) -> Tensor:
    """log softmax(log_probs / T) over the last axis.

    >>> temper(torch.tensor([0.9, 0.1]).log(), 2.0).exp()
    tensor([0.7500, 0.2500])
    """
    wide = widen(log_probs)
    # A shift per row changes nothing and keeps the largest entry exact however small T is.
    scaled = (wide - wide.amax(dim=-1, keepdim=True)) / temperature
    if isinstance(temperature, float) and temperature < 0:  # impossible stays impossible, large stays finite
        scaled = scaled.clamp(max=torch.finfo(wide.dtype).max).masked_fill(wide == -torch.inf, -torch.inf)
    return torch.log_softmax(scaled, dim=-1)


def check_scores(scores: Tensor) -> None:
    """Log-probabilities or logits [N, C]; not probabilities."""
    if scores.ndim != 2 or not scores.is_floating_point() or len(scores) == 0:
        raise InputError(
            f"log_probs must be floating-point [N, C], not {list(scores.shape)} of {scores.dtype}"
        )
    top = scores.amax(dim=1)
    if scores.isnan().any() or top.isinf().any():
        raise InputError("log_probs must not contain NaN or +inf, nor a row of −inf only")
    if scores.shape[1] > 1 and (scores >= 0).all() and ((scores.sum(dim=1) - 1).abs() < 1e-3).all():
        raise InputError("these look like probabilities: pass their logarithms, probs.log()")


class Problem(NamedTuple):
    """Minimise Σ w_i (log Σ_c exp(z_ic / T) − z_{i,y} / T) over T."""

    scores: Tensor  # [N, C] float64, the largest of each row 0
    of_label: Tensor  # [N] the label's score
    weights: Tensor  # [N] summing to one


def prepare(log_probs: Array, labels: Array, weights: Array | None) -> Problem:
    """The checked problem in float64, without rows of weight zero and rows that no temperature helps."""
    scores = as_tensor(log_probs)
    check_scores(scores)
    scores = scores.double()
    labels = as_tensor(labels, scores.device)
    if labels.shape != scores.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(f"labels must be {len(scores)} integers, not {list(labels.shape)} of {labels.dtype}")
    if labels.min() < 0 or labels.max() >= scores.shape[1]:
        raise InputError(f"labels must lie between 0 and {scores.shape[1] - 1}")
    weights = torch.ones_like(scores[:, 0]) if weights is None else as_tensor(weights, scores.device).double()
    if weights.shape != labels.shape or not (weights >= 0).all() or not 0 < float(weights.sum()) < math.inf:
        raise InputError(f"weights must be {len(scores)} numbers ≥ 0, not all zero")
    scores = scores - scores.amax(dim=1, keepdim=True)
    of_label = scores.gather(1, labels.long().unsqueeze(1)).squeeze(1)
    possible = (of_label > -torch.inf) & (weights > 0)
    impossible = int(((of_label == -torch.inf) & (weights > 0)).sum())
    if impossible:
        warnings.warn(
            f"{impossible} rows give their label probability zero; no temperature helps them: left out",
            CalibrationWarning,
            stacklevel=3,
        )
        if not possible.any():
            raise InputError("every row gives its label probability zero: there is nothing to fit")
    scores, of_label, weights = scores[possible], of_label[possible], weights[possible]
    return Problem(scores, of_label, weights / weights.sum())


FITTED = ("optimum", "published")  # how a fit ends if all went well
STATUSES = {  # by solver, how a fit may end
    "exact": ("optimum", "separable", "uninformative", "at bound"),
    "published": ("published", "negative"),
}
EXPLAINED = {
    "separable": "every label already has the highest probability, so no temperature is best; left at 1",
    "uninformative": "the probabilities do worse than uniform ones, the best temperature is infinite",
    "at bound": "the best temperature lies beyond the range that is searched",
    "negative": "the published solver ran away to a temperature that is not positive; use solver='exact'",
}


def solve_exactly(scores: Tensor, of_label: Tensor, weights: Tensor, largest: float) -> tuple[float, str]:
    """The root of d NLL/dβ = Σ w_i (E_β[z_i] − z_{i,y}), which rises in β = 1/T, by Newton on log β.

    >>> log_probs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]).log()
    >>> solve_exactly(*prepare(log_probs, torch.tensor([0, 0, 1, 1]), None), largest=1e6)
    (2.0..., 'optimum')
    """
    support = scores > -torch.inf
    finite = scores.masked_fill(~support, 0.0)
    if float(weights @ of_label) == 0.0:
        return 1.0, "separable"
    uniform = finite.sum(dim=1) / support.sum(dim=1)
    if float(weights @ (uniform - of_label)) >= 0:
        return largest, "uninformative"

    def slope_and_curvature(log_beta: float) -> tuple[float, float]:
        beta = math.exp(log_beta)
        probs = torch.softmax(beta * scores, dim=1)
        expected = (probs * finite).sum(dim=1)
        slope = float(weights @ (expected - of_label))
        variance = (probs * (finite - expected.unsqueeze(1)).square()).sum(dim=1)
        return slope, beta * float(weights @ variance)

    low, high = 0.0, 0.0
    while slope_and_curvature(low)[0] > 0:
        low -= 1.0
        if low < -math.log(largest):
            return largest, "at bound"
    while slope_and_curvature(high)[0] < 0:
        high += 1.0
        if high > math.log(largest):
            return 1.0 / largest, "at bound"
    log_beta = rising_root(slope_and_curvature, low, high, start=(low + high) / 2, absolute=1e-13)
    return math.exp(-log_beta), "optimum"


@torch.inference_mode(False)
@torch.enable_grad()
def solve_as_published(scores: Tensor, of_label: Tensor, weights: Tensor) -> tuple[float, str]:
    """What the authors' code does, in float32 as there."""
    impossible = (scores == -torch.inf).clone()
    finite, of_label, weights = (
        part.float().clone() for part in (scores.masked_fill(impossible, 0.0), of_label, weights)
    )
    temperature = torch.ones((), device=scores.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def loss() -> Tensor:
        optimizer.zero_grad()
        scaled = (finite / temperature).masked_fill(impossible, -torch.inf)
        value = (weights * (torch.logsumexp(scaled, dim=1) - of_label / temperature)).sum()
        value.backward()
        return value

    optimizer.step(loss)
    fitted = float(temperature.detach())
    if not math.isfinite(fitted) or fitted == 0:
        raise InputError(f"the published solver ended at a temperature of {fitted}: use solver='exact'")
    return fitted, "published" if fitted > 0 else "negative"
