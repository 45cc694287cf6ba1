"""From an input to a feature vector, by name: `build_backbone("resnet18", (3, 32, 32))`."""

import inspect
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from calmoe.backbones.backbone import Backbone
from calmoe.backbones.encoder import Encoder
from calmoe.backbones.mlp import MLP
from calmoe.backbones.resnet import ResNet
from calmoe.backbones.weights import fitting_weights, load_pretrained, weights_digest
from calmoe.errors import InputError, check_known, refusal
from calmoe.registry import Registry

__all__ = [
    "BACKBONES",
    "MLP",
    "Backbone",
    "Encoder",
    "ResNet",
    "backbone_options",
    "build_backbone",
    "fitting_weights",
    "load_pretrained",
    "weights_digest",
]


def _mlp(input_shape: tuple[int, ...], *, hidden: Iterable[int] = (128,)) -> MLP:
    return MLP(math.prod(input_shape), hidden)


def _resnet(
    input_shape: tuple[int, ...],
    *,
    depth: int,
    stem: str = "cifar",
    stages: int | None = None,
    variant: str = "v1.5",
) -> ResNet:
    if len(input_shape) != 3:
        raise InputError(f"resnet{depth} needs images (channels, height, width): got rows of {input_shape}")
    return ResNet(depth, stem=stem, stages=stages, variant=variant, in_channels=input_shape[0])


def _encoder(input_shape: tuple[int, ...], *, weights: str = "", pooling: str = "cls") -> Encoder:
    if len(input_shape) != 1:
        raise InputError(f"the encoder needs rows of token ids: got rows of {input_shape}")
    return Encoder(weights, pooling or "cls", length=input_shape[0])


def _check(name: str, make: Any) -> None:
    if not callable(make):
        raise refusal(f"the backbone {name!r}", "a function (input_shape, ...) -> Backbone", make)
    if [*inspect.signature(make).parameters][:1] != ["input_shape"]:
        raise InputError(f"the backbone {name!r} must take input_shape as its first argument")


BACKBONES: Registry[Callable[..., Backbone]] = Registry(
    "backbone",
    "calmoe.backbones",
    {
        "mlp": _mlp,
        "encoder": _encoder,
        **{f"resnet{depth}": partial(_resnet, depth=depth) for depth in (18, 34, 50)},
    },
    _check,
)


def build_backbone(name: str, input_shape: tuple[int, ...], **options: Any) -> Backbone:
    """The backbone `name` for rows of `input_shape`; its features have `.out_features` columns.

    >>> build_backbone("mlp", (1, 8, 8), hidden=(64, 32)).out_features
    32
    """
    known = backbone_options(name)
    for option in options:
        check_known(f"option of {name}", option, known)
    return BACKBONES[name](input_shape, **options)


def backbone_options(name: str) -> list[str]:
    """The options that a backbone takes: settings of a model, by name.

    >>> backbone_options("mlp"), backbone_options("resnet18")
    (['hidden'], ['stem', 'stages', 'variant'])
    """
    return [
        p for p in inspect.signature(BACKBONES.here(name)).parameters if p not in ("input_shape", "depth")
    ]
