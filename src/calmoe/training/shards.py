"""A model in shards, for one that does not fit whole: each rank keeps a part of every weight (torch's FSDP2).

A block's weights are gathered where it runs and let go after it. The optimiser, SAM and FGR work on a rank's
own parts, which are plain tensors that share memory with the model's.
"""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from calmoe.mixture import MixtureClassifier
from calmoe.reducers import Group
from calmoe.sharpness import own_part
from calmoe.training.ranks import Ranks


class Shards:
    """A part of every parameter on each rank; buffers are whole."""

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        self.ranks = ranks
        self.mesh = init_device_mesh(device.type, (ranks.size,))
        self.pieces: Group = ranks.group

    def place(self, model: MixtureClassifier, device: torch.device) -> None:
        """Backbone and head are called one after the other: two roots. FSDP moves each block by itself."""
        for module in (model.backbone, model.head):
            for block in _blocks(module):
                fully_shard(block, mesh=self.mesh)
            fully_shard(module, mesh=self.mesh, reshard_after_forward=True)

    def parameters(self, model: nn.Module) -> list[Tensor]:
        return [own_part(parameter) for parameter in model.parameters()]

    def gradients(self, model: nn.Module, value: Tensor) -> list[Tensor]:
        """FSDP averages them over the ranks, as `Ranks.average` does, and leaves each rank its part."""
        value.backward()
        gradients = []
        for parameter in model.parameters():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients.append(own_part(gradient))
            parameter.grad = None
        return gradients

    def named(self, part: Tensor, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor) or not part.ndim:
            return part
        return DTensor.from_local(
            part, self.mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def spread(self, place: Tensor, value: Tensor | None) -> None:
        if not isinstance(place, DTensor):
            self.ranks.spread(place, value)
            return
        sent = torch.empty(place.shape, dtype=place.dtype, device=place.device)
        if value is not None:
            sent.copy_(value)
        own_part(place).copy_(own_part(distribute_tensor(sent, self.mesh, place.placements)))


def _blocks(module: nn.Module) -> list[nn.Module]:
    """The outermost stacked blocks that have weights, such as an encoder's layers or a ResNet's blocks."""
    blocks: list[nn.Module] = []
    for child in module.children():
        stacked = isinstance(child, nn.ModuleList | nn.Sequential)
        blocks += list(child.children()) if stacked else _blocks(child)
    return [block for block in blocks if next(block.parameters(), None) is not None]
