"""A network's architecture as JSON: a backbone by name, its options, and the head's sizes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from calmoe.backbones import Backbone, Encoder, backbone_options, build_backbone
from calmoe.errors import InputError
from calmoe.mixture import SIZES, MixtureClassifier, MixtureHead
from calmoe.models.saved import exactly
from calmoe.training.building import MOST_PARAMETERS
from calmoe.training.settings import ModelSettings
from calmoe.validation import items, one_of, text, whole

MOST_WIDTH, MOST_LAYERS = 2**20, 100
WEIGHTS = "weights"  # the option that says where an encoder's files are: not part of the architecture


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What `build` needs; `shape` is that of one row."""

    backbone: str
    shape: tuple[int, ...]
    options: dict[str, Any]
    head: dict[str, Any]

    @classmethod
    def of(cls, settings: ModelSettings, model: MixtureClassifier, shape: tuple[int, ...]) -> "Architecture":
        """The architecture of a model that these settings built."""
        names = [name for name in backbone_options(settings.backbone) if name != WEIGHTS]
        options = {name: getattr(settings, name) for name in names}
        return cls(backbone=settings.backbone, shape=shape, options=options, head=dict(model.head.config))

    @property
    def is_encoder(self) -> bool:
        return self.backbone == "encoder"

    def build(self, encoder: Path | None = None) -> MixtureClassifier:
        """The network, without weights where no encoder is given: its tensors are on the device "meta"."""
        if self.is_encoder:
            pooling = self.options.get("pooling") or "cls"
            backbone: Backbone = Encoder(str(encoder), pooling, length=self.shape[0])
        with torch.device("meta"):
            if not self.is_encoder:
                backbone = build_backbone(self.backbone, self.shape, **self.options)
            if self.head["in_features"] != backbone.out_features:
                raise InputError(
                    f"architecture.head.in_features must be the backbone's {backbone.out_features}, not "
                    f"{self.head['in_features']}"
                )
            model = MixtureClassifier(backbone, MixtureHead(**self.head))
        size = sum(parameter.numel() for parameter in model.parameters())
        if size > MOST_PARAMETERS:
            raise InputError(f"the model would have {size:,} parameters, at most {MOST_PARAMETERS:,}")
        return model

    def as_dict(self) -> dict[str, Any]:
        options = {n: list(v) if isinstance(v, tuple) else v for n, v in self.options.items()}
        return {
            "backbone": self.backbone,
            "shape": list(self.shape),
            "options": options,
            "head": dict(self.head),
        }

    @classmethod
    def from_dict(cls, saved: Any) -> "Architecture":
        """What `as_dict` gave; an InputError where no network can be built from it."""
        exactly("architecture", saved, ("backbone", "shape", "options", "head"))
        name = text("architecture.backbone", saved["backbone"], most=200)
        known = [option for option in backbone_options(name) if option != WEIGHTS]
        options = exactly("architecture.options", saved["options"], known)
        shape = items("architecture.shape", saved["shape"], least=1, most=8)
        head = exactly("architecture.head", saved["head"], (*SIZES, "routing"))
        for size in SIZES:
            whole(f"architecture.head.{size}", head[size], least=1, most=MOST_WIDTH)
        text("architecture.head.routing", head["routing"], most=20)
        return cls(
            backbone=name,
            shape=tuple(whole("architecture.shape", n, least=1, most=2**24) for n in shape),
            options={option: _option(option, options[option]) for option in known},
            head=dict(head),
        )


def _option(name: str, value: Any) -> Any:
    """An option of a backbone: a word, a whole number, or widths."""
    field = f"architecture.options.{name}"
    if name == "hidden":
        widths = items(field, value, least=1, most=MOST_LAYERS)
        return tuple(whole(field, width, least=1, most=MOST_WIDTH) for width in widths)
    if name == "pooling":
        return one_of(field, value, ("", "cls", "mean"))
    if isinstance(value, int):
        return whole(field, value, least=0, most=10_000)
    return text(field, value, most=200)
