"""What to minimise: a proper loss per example, a reducer over the batch, and the paper's objectives.

Three steps, each usable alone:

    losses = cross_entropy(output, labels)     # [N]
    value = tilted_mean(losses, eta=2.0)       # scalar
    value = RobustMoE(eta=2.0)(output, labels) # both

Values and gradients are those of the whole batch: over processes through a group (`calmoe.reducers`), over
micro-batches through `Objective.gradient_weights`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from calmoe.arrays import as_number, widen
from calmoe.errors import InputError
from calmoe.mixture import MixtureOutput
from calmoe.reducers import (
    Group,
    Tilt,
    check_gamma,
    check_tilt,
    cvar,
    density_ratio_bound,
    entropic_risk,
    mean,
    share_of_negative_weights,
    solve_tilt,
    tilt_weights,
    tilted_mean,
)

__all__ = [
    "ERM",
    "CVaR",
    "EntropicRisk",
    "Objective",
    "RobustFiltered",
    "RobustMoE",
    "brier",
    "cross_entropy",
    "cvar",
    "density_ratio_bound",
    "entropic_risk",
    "mean",
    "routing_relevant",
    "share_of_negative_weights",
    "solve_tilt",
    "tilt_weights",
    "tilted_mean",
]

LOG_ZERO = -1e6
"""A label of probability zero costs −LOG_ZERO nats and has gradient zero: finite, and above any real loss."""

Loss = Callable[[MixtureOutput, Tensor], Tensor]


# --- proper losses, one value per example -------------------------------------------------------------------


def cross_entropy(output: MixtureOutput, labels: Tensor) -> Tensor:
    """L_i = −log f(x_i)_{y_i}. [N]

    Args:
        output: What the mixture says about N examples.
        labels: The true classes. [N]

    Returns:
        One loss an example, at most 10⁶ where a label has probability zero. [N]

    Example:
        >>> from calmoe.mixture import combine
        >>> output = combine(torch.zeros(1, 1), torch.tensor([[[0.25, 0.75]]]).log())
        >>> cross_entropy(output, torch.tensor([1]))
        tensor([0.2877])
    """
    labels = check_batch(output, labels)
    return -widen(output.log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)).clamp(min=LOG_ZERO)


def brier(output: MixtureOutput, labels: Tensor) -> Tensor:
    """L_i = Σ_c (f(x_i)_c − 1{y_i = c})², between 0 and 2 and never above the cross-entropy. [N]

    Args:
        output: What the mixture says about N examples.
        labels: The true classes. [N]

    Returns:
        One loss an example. [N]

    Example:
        >>> from calmoe.mixture import combine
        >>> output = combine(torch.zeros(1, 1), torch.tensor([[[0.25, 0.75]]]).log())
        >>> brier(output, torch.tensor([1]))
        tensor([0.1250])
    """
    labels = check_batch(output, labels)
    probs = widen(output.log_probs).exp()
    label_probs = probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    return probs.square().sum(dim=1) - 2 * label_probs + 1


@torch.no_grad()
def routing_relevant(
    output: MixtureOutput, labels: Tensor, regret: float = 1e-6, disagreement: float = 0.01
) -> Tensor:
    """The set A: the mixture is worse than its best expert, or the routed experts disagree. Boolean [N].

    Regret is L_mix − min_k L_k; disagreement is Σ_k r_k ‖f_k − f‖², the routing-weighted variance of the
    experts' probability vectors.

    Args:
        output: What the mixture says about N examples.
        labels: The true classes. [N]
        regret: An example is relevant if the mixture's loss is more than this above its best expert's.
        disagreement: An example is relevant if the experts disagree by more than this.

    Returns:
        Whether each example is in A. Boolean [N]

    Example:
        >>> from calmoe.mixture import combine
        >>> experts = torch.tensor([[[0.9, 0.1], [0.9, 0.1]], [[0.9, 0.1], [0.2, 0.8]]])
        >>> output = combine(torch.full((2, 2), 0.5).log(), experts.log())
        >>> routing_relevant(output, torch.tensor([0, 0]))
        tensor([False,  True])
    """
    labels = check_batch(output, labels)
    output = MixtureOutput(*map(widen, output))
    least_regret, least_spread = _threshold("regret", regret), _threshold("disagreement", disagreement)
    picked = labels.view(-1, 1, 1).expand(-1, output.expert_log_probs.shape[1], 1)
    best = output.expert_log_probs.gather(2, picked).squeeze(2).amax(dim=1)
    mixture = output.log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    # Σ r_k ‖f_k − f‖² = Σ r_k ‖f_k‖² − ‖f‖²
    spread = (output.routing * output.expert_probs.square().sum(dim=2)).sum(dim=1)
    spread = spread - output.probs.square().sum(dim=1)
    return (best - mixture > least_regret) | (spread > least_spread)


def _threshold(name: str, value: float | Tensor) -> float | Tensor:
    """A number; a tensor without dimensions stays as it is, unread."""
    if isinstance(value, Tensor) and not value.ndim:
        return value
    return as_number(name, value, least=-math.inf, most=math.inf)


def check_batch(output: MixtureOutput, labels: Tensor) -> Tensor:
    """The labels as int64; refuses those that do not fit the output, which `gather` may accept in silence.

    It reads values on a CPU only: a GPU would have to wait, and refuses them itself.
    """
    if not isinstance(output, MixtureOutput):
        raise InputError(
            f"objectives take a MixtureOutput (of MixtureHead or calmoe.mixture.combine), not {type(output)}"
        )
    if output.log_probs.ndim != 2:
        raise InputError(f"log_probs must be [N, C], not {list(output.log_probs.shape)}")
    rows, classes = output.log_probs.shape
    if (
        not isinstance(labels, Tensor)
        or labels.shape != (rows,)
        or labels.is_floating_point()
        or labels.is_complex()
        or labels.dtype == torch.bool
    ):
        given = f"{list(labels.shape)} of {labels.dtype}" if isinstance(labels, Tensor) else type(labels)
        raise InputError(f"labels must be a tensor of {rows} class indices, not {given}")
    labels = labels.long()
    if rows and labels.device.type == "cpu" and not torch.compiler.is_compiling():
        low, high = (int(end) for end in labels.aminmax())
        if low < 0 or high >= classes:
            raise InputError(f"labels lie in {low} .. {high}, but there are {classes} classes: count from 0")
    return labels


# --- objectives: (output, labels) -> scalar -----------------------------------------------------------------


@dataclass(frozen=True)
class Objective(ABC):
    """A proper loss and how its values over the batch become one number: objective(output, labels) -> scalar.

    Args:
        loss: One loss an example, such as `cross_entropy` or `brier`: (output, labels) -> [N].

    Example:
        >>> class Worst(Objective):
        ...     def reduce(self, losses, output, labels, group=None):
        ...         return losses.max()
        >>> from calmoe.mixture import combine
        >>> output = combine(torch.zeros(2, 1), torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]]).log())
        >>> Worst(loss=brier)(output, torch.tensor([1, 1]))
        tensor(0.5000)
    """

    _: KW_ONLY
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        if not callable(self.loss):
            raise InputError(f"loss must be a function such as cross_entropy or brier, not {self.loss!r}")
        if hasattr(self, "eta"):
            check_tilt(self.eta)
        if hasattr(self, "gamma"):
            check_gamma(self.gamma)

    def __call__(
        self,
        output: MixtureOutput,
        labels: Tensor,
        group: Group = None,
        num_items_in_batch: int | Tensor | None = None,
    ) -> Tensor:
        """The objective of the batch; output may be any object with the parts of a MixtureOutput.

        num_items_in_batch: as transformers' Trainer gives it to a `compute_loss_func`: the rows of all
        micro-batches of a step, of which this is one. The value is then this micro-batch's share: all of them
        add up to their mean by rows. That is exact for ERM; the others weigh examples within each micro-batch
        (`gradient_weights` makes them exact).

        >>> from calmoe.mixture import combine
        >>> output = combine(torch.zeros(2, 1), torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]]).log())
        >>> ERM()(output, torch.tensor([1, 0])), ERM()(output, torch.tensor([1, 0]), num_items_in_batch=8)
        (tensor(0.4904), tensor(0.1226))
        """
        output = MixtureOutput.of(output)
        value = self.reduce(self.loss(output, labels), output, labels, group)
        if num_items_in_batch is None:
            return value
        rows = num_items_in_batch
        rows = rows.reshape(-1)[0] if isinstance(rows, Tensor) else rows  # one a device, all equal
        return value * (len(labels) / rows)

    @abstractmethod
    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        """The `losses` [N] of the batch as one number; objectives that ask have `output` and `labels` too.

        With a process `group` the batch is that of all ranks.
        """

    def gradient_weights(self, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        """∂ objective / ∂ L_i at the whole batch, of `output` and `labels`: makes micro-batches exact. [N]

        First collect the outputs of all micro-batches without gradient, then give each its share::

            weights = objective.gradient_weights(MixtureOutput.cat(outputs), labels).split(size)
            for x, y, w in zip(micro_x, micro_y, weights):
                (w * objective.loss(model(x), y)).sum().backward()

        The sum of these gradients is the gradient of the objective on the whole batch, provided that both
        passes compute the same: dropout must draw the same masks, and batch norm, which normalises each
        micro-batch by itself, keeps whatever difference it makes. With a `group` the weights carry the factor
        W that DDP divides by.
        """
        with torch.enable_grad():
            losses = self.loss(output, labels).detach().requires_grad_()
            return torch.autograd.grad(self.reduce(losses, output.detach(), labels, group), losses)[0]


@dataclass(frozen=True)
class ERM(Objective):
    """The mean loss, (1/n) Σ L_i.

    Args:
        loss: One loss an example: `cross_entropy`, `brier` or your own.

    Example:
        >>> from calmoe.mixture import combine
        >>> output = combine(torch.zeros(2, 1), torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]]).log())
        >>> ERM(loss=brier)(output, torch.tensor([1, 1]))
        tensor(0.3125)
    """

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        return mean(losses, group)


@dataclass(frozen=True)
class RobustMoE(Objective):
    """The paper's Robust MoE: the tilted mean Σ q_i L_i of the whole batch, q = softmax(η L).

    Args:
        eta: How hard the adversary leans on large losses; 0 is the mean. A number, or a tensor.
        loss: One loss an example: `cross_entropy`, `brier` or your own.

    Example:
        >>> from calmoe.mixture import combine
        >>> output = combine(torch.zeros(2, 1), torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]]).log())
        >>> RobustMoE(eta=2.0)(output, torch.tensor([1, 1]))
        tensor(0.5684)
    """

    eta: Tilt = 2.0

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        return tilted_mean(losses, self.eta, group=group)


@dataclass(frozen=True)
class RobustFiltered(Objective):
    """The paper's Robust Filtered: the mean, plus the tilted mean over the routing-relevant examples.

    Args:
        eta: How hard the adversary leans on large losses; 0 is the mean. A number, or a tensor.
        regret: As in `routing_relevant`.
        disagreement: As in `routing_relevant`.
        loss: One loss an example: `cross_entropy`, `brier` or your own.

    Example:
        >>> from calmoe import MixtureHead
        >>> output = MixtureHead(16, num_classes=3)(torch.randn(8, 16))
        >>> RobustFiltered(eta=2.0)(output, torch.randint(3, (8,))).backward()
    """

    eta: Tilt = 2.0
    regret: float = 1e-6
    disagreement: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("regret", "disagreement"):
            _threshold(name, getattr(self, name))

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        relevant = routing_relevant(output, labels, self.regret, self.disagreement)
        return mean(losses, group) + tilted_mean(losses, self.eta, where=relevant, group=group)


@dataclass(frozen=True)
class EntropicRisk(Objective):
    """(1/η) log (1/n) Σ exp(η L_i): the same weights as Robust MoE, without the gradient through them.

    Args:
        eta: How hard the adversary leans on large losses; 0 is the mean. A number, or a tensor.
        loss: One loss an example: `cross_entropy`, `brier` or your own.

    Example:
        >>> from calmoe.mixture import combine
        >>> output = combine(torch.zeros(2, 1), torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]]).log())
        >>> EntropicRisk(eta=2.0)(output, torch.tensor([1, 1]))
        tensor(0.5304)
    """

    eta: Tilt = 2.0

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        return entropic_risk(losses, self.eta, group)


@dataclass(frozen=True)
class CVaR(Objective):
    """The mean of the worst 1/γ of the batch.

    Args:
        gamma: How rare the worst rows are: 2 is the worse half, 1 the mean.
        loss: One loss an example: `cross_entropy`, `brier` or your own.

    Example:
        >>> from calmoe.mixture import combine
        >>> output = combine(torch.zeros(2, 1), torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]]).log())
        >>> CVaR(gamma=2.0)(output, torch.tensor([1, 1]))
        tensor(0.6931)
    """

    gamma: float = 2.0

    def reduce(self, losses: Tensor, output: MixtureOutput, labels: Tensor, group: Group = None) -> Tensor:
        return cvar(losses, self.gamma, group)
