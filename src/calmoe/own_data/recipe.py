"""How a network for images or texts is trained: by calmoe's recipe where the user says nothing else."""

import math
from typing import NamedTuple

from calmoe.data import ShiftDataset
from calmoe.errors import check_known
from calmoe.methods import METHODS, Method
from calmoe.own_data.settings import PATIENCE, SHARP, TEXT_SHARP, NetworkSettings
from calmoe.training.building import make_backbone
from calmoe.training.settings import ModelSettings, TrainingSettings

SIZE, PRETRAINED_SIZE = 64, 224
CIFAR_BELOW, THREE_STAGES_BELOW = 48, 128  # pixels: a fourth stage would see 3 x 3 cells or fewer
IMAGE_EPOCHS, TEXT_EPOCHS, SCRATCH_TEXT_EPOCHS = 30, 10, 60
FROM_SCRATCH = 1e-3  # the learning rate of networks that begin with random weights
ENCODER_PATIENCE = 2  # epochs; a pretrained encoder is best after a few and then learns its texts by heart
SPAN = 10  # an average looks back over this part of the steps at most: a tenth


class Recipe(NamedTuple):
    """What is trained, and how; notes on settings that were given and cannot be kept to."""

    method: Method
    model: ModelSettings
    training: TrainingSettings
    patience: int  # epochs without a lower validation log loss
    notes: list[str]


def make_recipe(dataset: ShiftDataset, model: ModelSettings, settings: NetworkSettings) -> Recipe:
    """The recipe for these rows and this network."""
    rows, texts, usual = len(dataset.train), dataset.tokens, TrainingSettings()
    rate = settings.learning_rate or _learning_rate(model, dataset)
    if texts:
        epochs, most = (TEXT_EPOCHS if rate < FROM_SCRATCH else SCRATCH_TEXT_EPOCHS), 32
    else:
        epochs, most = IMAGE_EPOCHS, 128
    epochs = settings.epochs or epochs
    batch = settings.batch or max(8, min(most, rows // 10))
    average, notes = _average(settings.average or 0.0, epochs * math.ceil(rows / batch))
    training = TrainingSettings(
        epochs=epochs,
        warmup=0,
        batch=batch,
        learning_rate=rate,
        weight_decay=usual.weight_decay if settings.weight_decay is None else settings.weight_decay,
        rho=radius(settings, texts),
        sharp_every=settings.sharp_every or usual.sharp_every,
        average=average,
        views=settings.views or len(dataset.views),
        batch_norm=settings.batch_norm or usual.batch_norm,
        sharding=settings.sharding or usual.sharding,
    )
    return Recipe(method_of(settings, texts), model, training, patience(settings, rate, texts), notes)


def image_model(settings: NetworkSettings) -> tuple[ModelSettings, int]:
    """The network for images, and their size in pixels."""
    backbone = settings.backbone or "resnet18"
    check_known("backbone for images", backbone, ("mlp", "resnet18", "resnet34", "resnet50"))
    size = settings.size or (PRETRAINED_SIZE if settings.weights else SIZE)
    fresh = not settings.weights
    model = ModelSettings(
        backbone=backbone,
        experts=settings.experts or 1,
        weights=settings.weights,
        stem="cifar" if fresh and size < CIFAR_BELOW else "imagenet",
        stages=3 if fresh and size < THREE_STAGES_BELOW else 4,
    )
    return model, size


def text_model(settings: NetworkSettings, encoder: str) -> ModelSettings:
    """The encoder under a head."""
    return ModelSettings(backbone="encoder", weights=encoder, pooling="mean", experts=settings.experts or 1)


def method_of(settings: NetworkSettings, texts: bool) -> Method:
    """One expert or a mixture, by sharp steps or by plain ones."""
    one, several = ("recommended", "sharp") if radius(settings, texts) else ("single", "vanilla")
    return METHODS[one if (settings.experts or 1) == 1 else several]


def radius(settings: NetworkSettings, texts: bool) -> float:
    """How far sharp steps look: not as far on texts, whose encoder is only to be adapted."""
    return (TEXT_SHARP if texts else SHARP) if settings.rho is None else settings.rho


def patience(settings: NetworkSettings, learning_rate: float, texts: bool) -> int:
    """How many epochs without a lower validation log loss end the training."""
    adapted = texts and learning_rate < FROM_SCRATCH
    return settings.patience or (ENCODER_PATIENCE if adapted else PATIENCE)


def _average(wanted: float, steps: int) -> tuple[float, list[str]]:
    """The decay of the average, which so few steps may not bear, and a note where they do not.

    >>> _average(0.998, 10_000), _average(0.998, 100)
    ((0.998, []), (0.9, ['an average of 0.998 looks back too far for 100 steps: 0.9 is used']))
    """
    used = max(0.0, min(wanted, 1 - SPAN / steps))
    if used == wanted:
        return used, []
    return used, [f"an average of {wanted:g} looks back too far for {steps:,} steps: {used:.3g} is used"]


def _learning_rate(model: ModelSettings, dataset: ShiftDataset) -> float:
    """Small where pretrained weights are only to be adapted."""
    if model.backbone == "encoder":
        backbone = make_backbone(model, dataset.input_shape)
        size = sum(parameter.numel() for parameter in backbone.parameters())
        return 2e-5 if size > 50_000_000 else 5e-5 if size > 5_000_000 else FROM_SCRATCH
    return 1e-4 if model.weights else FROM_SCRATCH
