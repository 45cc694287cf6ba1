"""Build the model that settings describe, and say before any training what cannot be built."""

from collections.abc import Iterable

import torch

from calmoe.backbones import Backbone, backbone_options, build_backbone, fitting_weights, weights_digest
from calmoe.errors import InputError
from calmoe.mixture import MixtureClassifier, MixtureHead
from calmoe.text_encoders import encoder_digest
from calmoe.training.settings import ModelSettings

MOST_PARAMETERS = 2_000_000_000


def make_backbone(settings: ModelSettings, input_shape: tuple[int, ...]) -> Backbone:
    """The backbone that the settings describe; a pretrained ResNet's weights are not in it yet."""
    names = backbone_options(settings.backbone)
    options = {name: getattr(settings, name) for name in names if hasattr(settings, name)}
    return build_backbone(settings.backbone, input_shape, **options)


def make_head(settings: ModelSettings, head: str, in_features: int, num_classes: int) -> MixtureHead:
    """A "mixture" as the settings describe it, or a "single" expert."""
    experts, routing = (1, "soft") if head == "single" else (settings.experts, settings.routing)
    return MixtureHead(in_features, num_classes, experts, settings.router_hidden, routing)


def check_model(
    settings: ModelSettings, input_shape: tuple[int, ...], heads: Iterable[str], num_classes: int = 2
) -> None:
    """Build the model once with each of the heads, without weights: an InputError says what cannot be built.

    Only an encoder's files are read for it; `check_weights` compares a ResNet's.
    """
    encoder = settings.backbone == "encoder"
    with torch.random.fork_rng(devices=[]), torch.device("cpu" if encoder else "meta"):
        backbone = make_backbone(settings, input_shape)
    for head in heads:
        with torch.device("meta"):
            model = MixtureClassifier(backbone, make_head(settings, head, backbone.out_features, num_classes))
        size = sum(parameter.numel() for parameter in model.parameters())
        if size > MOST_PARAMETERS:
            raise InputError(
                f"the model would have {size:,} parameters, at most {MOST_PARAMETERS:,}: "
                "lower experts, router_hidden or hidden"
            )


def check_together(backbone: str, dataset: str, tokens: bool) -> None:
    """Refuse texts without the encoder, and the encoder without texts."""
    if tokens != (backbone == "encoder"):
        raise InputError(
            f"{dataset} and the backbone {backbone!r} do not go together: "
            "texts need 'encoder', other data another backbone"
        )


def check_weights(settings: ModelSettings, input_shape: tuple[int, ...]) -> str:
    """The digest of the pretrained weights, if they fit; an InputError if not, before anything is trained."""
    if settings.backbone == "encoder":
        return encoder_digest(settings.weights)
    with torch.device("meta"):
        backbone = make_backbone(settings, input_shape)
    fitting_weights(backbone, settings.weights)
    return weights_digest(settings.weights)
