"""The mixture: f(x) = Σ_k r_k(x) f_k(x), kept in logarithms from the first layer to the last.

log f = logsumexp_k(log r_k + log f_k). Taking the logarithm of a summed probability instead loses the
gradient of every confident example to underflow; this form never does.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn

from calmoe.arrays import as_count, widen
from calmoe.errors import InputError, about
from calmoe.files import write_json, write_whole
from calmoe.tensor_files import read_tensors
from calmoe.validation import check_finite, check_shapes, read_json, whole

__all__ = ["MixtureClassifier", "MixtureHead", "MixtureOutput", "combine"]

SIZES = ("in_features", "num_classes", "num_experts", "router_hidden")
CONFIG, WEIGHTS = "config.json", "model.safetensors"


class MixtureOutput(NamedTuple):
    """What a mixture says about N examples: C classes, K experts, all in log space.

    Attributes:
        log_probs: The mixture's log-probabilities. [N, C]
        log_routing: The router's log-weights. [N, K]
        expert_log_probs: Each expert's log-probabilities. [N, K, C]

    Example:
        >>> routing, experts = torch.tensor([[0.25, 0.75]]), torch.tensor([[[0.8, 0.2], [0.4, 0.6]]])
        >>> output = combine(routing.log(), experts.log())
        >>> output.probs
        tensor([[0.5000, 0.5000]])
        >>> output.routing
        tensor([[0.2500, 0.7500]])
    """

    log_probs: Tensor
    log_routing: Tensor
    expert_log_probs: Tensor

    @property
    def probs(self) -> Tensor:
        """The mixture's probabilities. [N, C]"""
        return self.log_probs.exp()

    @property
    def routing(self) -> Tensor:
        """The router's weights. [N, K]"""
        return self.log_routing.exp()

    @property
    def expert_probs(self) -> Tensor:
        """Each expert's probabilities. [N, K, C]"""
        return self.expert_log_probs.exp()

    @property
    def confidence(self) -> Tensor:
        """Probability of the predicted class. [N]"""
        return self.log_probs.amax(dim=1).exp()

    @property
    def predicted(self) -> Tensor:
        """The predicted class. [N]"""
        return self.log_probs.argmax(dim=1)

    def take(self, rows: Tensor | slice) -> "MixtureOutput":
        """The given `rows`: indices, a boolean mask or a slice.

        >>> output = combine(torch.zeros(2, 1), torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]]).log())
        >>> output.take(output.predicted == 1).probs
        tensor([[0.2000, 0.8000]])
        """
        return MixtureOutput(*(part[rows] for part in self))

    def detach(self) -> "MixtureOutput":
        """The same numbers without a gradient."""
        return MixtureOutput(*(part.detach() for part in self))

    @staticmethod
    def of(output: Any) -> "MixtureOutput":
        """log_probs, log_routing and expert_log_probs of any `output` that has them under their names.

        >>> from types import SimpleNamespace
        >>> parts = combine(torch.zeros(1, 1), torch.tensor([[[0.25, 0.75]]]).log())._asdict()
        >>> MixtureOutput.of(SimpleNamespace(loss=None, **parts)).probs
        tensor([[0.2500, 0.7500]])
        """
        names = MixtureOutput._fields
        if isinstance(output, MixtureOutput) or not all(hasattr(output, name) for name in names):
            return output  # what takes a MixtureOutput refuses it
        return MixtureOutput(*(getattr(output, name) for name in names))

    @staticmethod
    def cat(outputs: Sequence["MixtureOutput"]) -> "MixtureOutput":
        """The `outputs` of several batches as one."""
        return MixtureOutput(*(torch.cat(parts) for parts in zip(*outputs, strict=True)))

    @staticmethod
    def pool(views: Sequence["MixtureOutput"]) -> "MixtureOutput":
        """Several views of the same rows as one mixture: V views of K experts are V·K experts, routed r / V.

        The mixture's probabilities are the mean of the views'.

        >>> experts = torch.tensor([[[[0.9, 0.1]]], [[[0.5, 0.5]]]]).log()
        >>> MixtureOutput.pool([combine(torch.zeros(1, 1), each) for each in experts]).probs
        tensor([[0.7000, 0.3000]])
        """
        if isinstance(views, MixtureOutput) or not views:
            raise InputError("pool takes a list of outputs, one for each view of the same rows")
        if any(view.log_probs.shape != views[0].log_probs.shape for view in views):
            shapes = ", ".join(str(list(view.log_probs.shape)) for view in views)
            raise InputError(f"views must be of the same rows and classes, not {shapes}")
        routing = torch.cat([view.log_routing for view in views], dim=1) - math.log(len(views))
        return combine(routing, torch.cat([view.expert_log_probs for view in views], dim=1))

    def views(self, count: int) -> list["MixtureOutput"]:
        """The `count` views that `pool` made one mixture of.

        >>> views = [combine(torch.zeros(1, 1), torch.tensor([[[p, 1 - p]]]).log()) for p in (0.9, 0.5)]
        >>> [view.probs for view in MixtureOutput.pool(views).views(2)]
        [tensor([[0.9000, 0.1000]]), tensor([[0.5000, 0.5000]])]
        """
        experts = self.log_routing.shape[1]
        if count < 1 or experts % count:
            raise InputError(f"{experts} experts are not {count} views of equally many")
        routing = self.log_routing + math.log(count)
        parts = (part.tensor_split(count, dim=1) for part in (routing, self.expert_log_probs))
        return [combine(*view) for view in zip(*parts, strict=True)]


def combine(log_routing: Tensor, expert_log_probs: Tensor) -> MixtureOutput:
    """log f = logsumexp_k(log r_k + log f_k).

    A class that no routed expert allows has log-probability −inf and gradient zero.

    Args:
        log_routing: The router's log-weights; their exponentials sum to 1 in each row. [N, K]
        expert_log_probs: Each expert's log-probabilities. [N, K, C]

    Returns:
        The mixture with its parts.

    Example:
        >>> routing, experts = torch.tensor([[0.5, 0.5]]), torch.tensor([[[0.9, 0.1], [0.5, 0.5]]])
        >>> combine(routing.log(), experts.log()).probs
        tensor([[0.7000, 0.3000]])
    """
    terms = log_routing.unsqueeze(2) + expert_log_probs
    impossible = terms.detach().amax(dim=1) == -torch.inf  # here logsumexp's own gradient would be NaN
    log_probs = torch.logsumexp(terms.masked_fill(impossible.unsqueeze(1), 0.0), dim=1)
    return MixtureOutput(log_probs.masked_fill(impossible, -torch.inf), log_routing, expert_log_probs)


class MixtureHead(nn.Module):
    """K linear experts and a two-layer router on features [N, in_features]: features -> MixtureOutput.

    With one expert there is no router: the head is a plain softmax classifier. Logarithms are float32 or
    better whatever the precision of the features, under autocast too.

    Args:
        in_features: The number of features of a row.
        num_classes: The number of classes, C.
        num_experts: The number of experts, K.
        router_hidden: The width of the router's hidden layer.
        routing: "soft" (the paper's); "hard" (the leading expert alone answers; the router learns from the
            soft mixture's gradient, straight through); "top2", "top3", … (the leading experts, renormalised).

    Example:
        >>> head = MixtureHead(in_features=16, num_classes=3)
        >>> head(torch.randn(5, 16)).log_probs.shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        num_experts: int = 4,
        router_hidden: int = 128,
        routing: str = "soft",
    ) -> None:
        super().__init__()
        given = in_features, num_classes, num_experts, router_hidden
        in_features, num_classes, num_experts, router_hidden = map(as_count, SIZES, given)
        self.leading = _leading_experts(routing, num_experts)
        self.config: dict[str, Any] = {
            "in_features": in_features,
            "num_classes": num_classes,
            "num_experts": num_experts,
            "router_hidden": router_hidden,
            "routing": routing,
        }
        self.experts = nn.Linear(in_features, num_experts * num_classes)
        self.router = (
            nn.Sequential(
                nn.Linear(in_features, router_hidden), nn.ReLU(), nn.Linear(router_hidden, num_experts)
            )
            if num_experts > 1
            else None
        )

    @property
    def num_experts(self) -> int:
        """The number of experts, K."""
        return self.config["num_experts"]

    @property
    def num_classes(self) -> int:
        """The number of classes, C."""
        return self.config["num_classes"]

    def forward(self, features: Tensor) -> MixtureOutput:
        width = self.config["in_features"]
        if not isinstance(features, Tensor) or features.ndim != 2 or features.shape[1] != width:
            given = list(features.shape) if isinstance(features, Tensor) else type(features)
            raise InputError(f"the head takes features [N, {width}], not {given}")
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(self.experts.weight.dtype)
            expert_logits = self.experts(features).unflatten(1, (self.num_experts, self.num_classes))
            expert_log_probs = torch.log_softmax(widen(expert_logits), dim=2)
            if self.router is None:
                log_routing = expert_log_probs.new_zeros(
                    features.shape[0], 1
                )  # any number of rows, in an export too
                return MixtureOutput(expert_log_probs.squeeze(1), log_routing, expert_log_probs)
            return self._route(widen(self.router(features)), expert_log_probs)

    def _route(self, router_logits: Tensor, expert_log_probs: Tensor) -> MixtureOutput:
        if self.leading < self.num_experts:
            chosen = router_logits.topk(self.leading, dim=1).indices
            left_out = torch.ones_like(router_logits, dtype=torch.bool).scatter(1, chosen, False)
            kept_logits = router_logits.masked_fill(left_out, -torch.inf)
        else:
            kept_logits = router_logits
        output = combine(torch.log_softmax(kept_logits, dim=1), expert_log_probs)
        if self.leading > 1:
            return output
        # Alone, the chosen expert has weight one and the router no gradient: lend it the soft mixture's.
        soft = combine(torch.log_softmax(router_logits, dim=1), expert_log_probs.detach()).log_probs
        return output._replace(log_probs=output.log_probs + (soft - soft.detach()))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` into `folder`."""
        _save(self, self.config, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "MixtureHead":
        """The head that `save_pretrained` wrote into `folder`."""
        config, weights = _read(folder)
        head = cls(**config)
        _load(head, weights, folder)
        return head


class MixtureClassifier(nn.Module):
    """A backbone and a mixture head: x -> MixtureOutput.

    Args:
        backbone: A module whose features [N, in_features] the head takes; it gets its inputs as they come.
        head: The mixture on top.

    Example:
        >>> model = MixtureClassifier(nn.Flatten(), MixtureHead(64, num_classes=10))
        >>> model(torch.rand(2, 8, 8)).routing.shape
        torch.Size([2, 4])
    """

    def __init__(self, backbone: nn.Module, head: MixtureHead) -> None:
        super().__init__()
        if not isinstance(head, MixtureHead):
            raise InputError(f"the head must be a MixtureHead, not {type(head)}")
        self.backbone = backbone
        self.head = head

    accepts_loss_kwargs = False
    """For transformers' Trainer, which takes `**named_inputs` for a place to put arguments of a loss."""

    def forward(self, *inputs: Any, **named_inputs: Any) -> MixtureOutput:
        return self.head(self.backbone(*inputs, **named_inputs))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the head's configuration and all weights into `folder`; the backbone's code stays yours."""
        _save(self, self.head.config, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path, backbone: nn.Module) -> "MixtureClassifier":
        """What `save_pretrained` wrote into `folder`, on a `backbone` of the same architecture, to predict.

        It is in evaluation mode: to train on, call `train()`.
        """
        config, weights = _read(folder)
        model = cls(backbone, MixtureHead(**config))
        _load(model, weights, folder)
        return model.eval()


def _leading_experts(routing: str, num_experts: int) -> int:
    """How many experts answer an example: all for "soft", one for "hard", k for "topk"."""
    if routing == "soft":
        return num_experts
    if routing == "hard":
        return 1
    match = re.fullmatch(r"top([0-9]{1,9})", routing) if isinstance(routing, str) else None
    if match is None:
        raise InputError(f'routing must be "soft", "hard" or "top2", "top3", …, not {routing!r}')
    leading = int(match[1])
    if leading == 1:
        raise InputError('routing "top1" would leave the router untrained: use "hard"')
    if not 2 <= leading <= num_experts:
        raise InputError(f'routing "{routing}" is not possible with num_experts={num_experts}')
    return leading


def _save(module: nn.Module, config: dict[str, Any], folder: str | Path) -> None:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()}
    write_whole(folder / WEIGHTS, safetensors.torch.save(weights))
    write_json(folder / CONFIG, config)


def _read(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A head's settings and the weights beside them; refused, before it is built, if these are too few."""
    path, beside = Path(folder) / CONFIG, Path(folder) / WEIGHTS
    config = read_json(_present(path))
    with about(path):
        if not isinstance(config, dict) or set(config) != {*SIZES, "routing"}:
            raise InputError(f"expected exactly the keys {', '.join([*SIZES, 'routing'])}")
        features, classes, experts, hidden = (whole(name, config[name], least=1) for name in SIZES)
        _leading_experts(config["routing"], experts)
    with about(beside):
        weights, _ = read_tensors(_present(beside))
    needed = features * experts * classes + (experts > 1) * hidden * (features + experts)
    stored = sum(tensor.numel() for tensor in weights.values())
    if needed > stored:
        raise InputError(f"{path}: its sizes need {needed:,} weights, {beside} has {stored:,}")
    return config, weights


def _load(module: nn.Module, weights: dict[str, Tensor], folder: str | Path) -> None:
    try:
        check_shapes(weights, module.state_dict())
        check_finite({name: weights[name] for name, _ in module.named_parameters()})  # a mask may be infinite
        own = "" if isinstance(module, MixtureHead) else "head."  # a backbone may be of another kind
        if len({tensor.dtype for name, tensor in weights.items() if name.startswith(own)}) > 1:
            raise InputError("the head's must all be of one dtype")
    except InputError as error:
        path = Path(folder) / WEIGHTS
        raise InputError(f"{path}: the weights do not fit this architecture: {error}") from None
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if name in weights:
            tensor.data = tensor.data.to(weights[name].dtype)  # a bfloat16 model stays one
    module.load_state_dict(weights)


def _present(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a folder that save_pretrained wrote")
    return path
