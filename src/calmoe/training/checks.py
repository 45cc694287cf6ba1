"""Before training: does code from outside of calmoe do what a training needs? A mistake in it is one line."""

from dataclasses import fields

import torch
from torch import Tensor, nn

from calmoe.backbones import BACKBONES
from calmoe.errors import InputError
from calmoe.methods import LOSSES, OBJECTIVES, card
from calmoe.mixture import combine
from calmoe.objectives import Objective
from calmoe.registry import cause
from calmoe.training.building import make_backbone
from calmoe.training.settings import ModelSettings, TrainingSettings


def check_objective(method: str, training: TrainingSettings) -> None:
    """Try a plug-in's objective and loss on three rows, with these settings."""
    known = card(method)
    named = f"the objective {known.objective!r} with the loss {known.loss!r}"
    recipe = OBJECTIVES[known.objective]
    origins = [OBJECTIVES.origin(known.objective), LOSSES.origin(known.loss)]
    if not any(origins):
        return
    for name in recipe.settings:
        if name not in {each.name for each in fields(TrainingSettings)} - {"own"}:
            raise InputError(f"{named}: {name!r} is no setting of calmoe: declare it in own=")
    values = {name: training.value(name) for name in (*recipe.settings, *recipe.own)}
    logits = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]] * 3).log_softmax(2).requires_grad_()
    output, labels = combine(torch.full((3, 2), 0.5).log(), logits), torch.tensor([0, 1, 1])
    try:
        objective = recipe.make(**values, loss=LOSSES[known.loss])
        if not isinstance(objective, Objective):
            raise InputError(f"it makes {type(objective).__name__}, no calmoe.objectives.Objective")
        losses = objective.loss(output, labels)
        if not isinstance(losses, Tensor) or losses.shape != (3,):
            raise InputError("the loss must give one value a row")
        value = objective.reduce(losses, output, labels)
        if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
            raise InputError("it must give one number that gradients flow through")
    except Exception as error:
        where = next(origin.where for origin in origins if origin)
        raise InputError(f"{named} of {where} fails on three rows: {cause(error)}") from None


def check_backbone(settings: ModelSettings, input_shape: tuple[int, ...]) -> None:
    """Build a plug-in's backbone and try it on two rows."""
    origin = BACKBONES.origin(settings.backbone)
    if origin is None:
        return
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            backbone = make_backbone(settings, input_shape)
            width = getattr(backbone, "out_features", None)
            if not isinstance(backbone, nn.Module) or type(width) is not int or width < 1:
                raise InputError("it must be an nn.Module with out_features, the number of its features")
            features = backbone.eval()(torch.zeros(2, *input_shape))
        if not isinstance(features, Tensor) or tuple(features.shape) != (2, width):
            raise InputError(f"its features must be [N, {width}], as its out_features says")
    except Exception as error:
        rows = "rows of " + " x ".join(map(str, input_shape))
        named = f"the backbone {settings.backbone!r} of {origin.where}"
        raise InputError(f"{named} fails on {rows}: {cause(error)}") from None
