"""How a model lies on the ranks: a copy on each, or in shards (`calmoe.training.shards`)."""

from typing import Protocol

import torch
from torch import Tensor, nn

from calmoe.mixture import MixtureClassifier
from calmoe.reducers import Group
from calmoe.training.ranks import Ranks


class Layout(Protocol):
    """Where a model's tensors are, and how gradients of the global batch come to them."""

    ranks: Ranks
    pieces: Group  # the ranks that have the pieces of each gradient; None: every rank has all of it

    def place(self, model: MixtureClassifier, device: torch.device) -> None:
        """Move the model to where it is trained."""

    def parameters(self, model: nn.Module) -> list[Tensor]:
        """What the optimiser of this rank moves, in the order of the model's parameters."""

    def gradients(self, model: nn.Module, value: Tensor) -> list[Tensor]:
        """Of `value`, a global batch's, for each of `parameters`."""

    def named(self, part: Tensor, like: Tensor) -> Tensor:
        """A tensor of this rank's optimiser, as part of one that lies as the parameter `like` does."""

    def whole(self, tensor: Tensor) -> Tensor:
        """All of a tensor of the model, on every rank."""

    def spread(self, place: Tensor, value: Tensor | None) -> None:
        """Copy the leader's value into a tensor of the model; followers give none."""


class Copies:
    """A whole model on every rank: gradients are averaged by one all-reduce."""

    pieces: Group = None

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def place(self, model: MixtureClassifier, device: torch.device) -> None:
        model.to(device)
        if device.type == "cuda":
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def parameters(self, model: nn.Module) -> list[Tensor]:
        return list(model.parameters())

    def gradients(self, model: nn.Module, value: Tensor) -> list[Tensor]:
        return self.ranks.average(torch.autograd.grad(value, list(model.parameters())))

    def named(self, part: Tensor, like: Tensor) -> Tensor:
        return part

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor

    def spread(self, place: Tensor, value: Tensor | None) -> None:
        self.ranks.spread(place, value)


def make_layout(sharding: str, ranks: Ranks, device: torch.device) -> Layout:
    """As the setting `sharding` says; a process that is alone has the model whole."""
    if sharding == "full" and ranks.several:
        from calmoe.training.shards import Shards  # a second to import

        return Shards(ranks, device)
    return Copies(ranks)
