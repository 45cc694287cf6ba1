"""Images or texts as tensors, and the recipe for them: made once for all that is trained on them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from torch import Tensor

from calmoe.data import ShiftDataset, Split
from calmoe.data.domains import MEAN, STD
from calmoe.data.image_cache import decode
from calmoe.data.text import token_ids
from calmoe.own_data.parts import Labelled
from calmoe.own_data.recipe import Recipe, image_model, make_recipe, method_of, text_model
from calmoe.own_data.settings import IMAGE_NETWORK, READ, TEXT_NETWORK
from calmoe.own_data.spec import TrainSpec
from calmoe.progress_bar import progress_bar
from calmoe.text_encoders import PADDING
from calmoe.training.building import check_model, check_weights


class Prepared(NamedTuple):
    """All rows as tensors, and how they and the network are to be treated.

    The dataset's texts end where the longest does; `rows` have the width that the finished model reads.
    """

    rows: Tensor
    dataset: ShiftDataset
    recipe: Recipe

    @property
    def used(self) -> dict[str, Any]:
        """The settings in use, by the names that users give them."""
        values = asdict(self.recipe.model) | asdict(self.recipe.training)
        values |= {"patience": self.recipe.patience, "size": self.dataset.input_shape[-1]}
        read = READ[TEXT_NETWORK if self.dataset.tokens else IMAGE_NETWORK]
        return {name: values[name] for name in read if values[name] != ""}

    def __str__(self) -> str:
        """What is trained, where the data decided and where the user did: one line."""
        model, training = self.recipe.model, self.recipe.training
        *_, longest = self.dataset.input_shape
        if self.dataset.images:
            what = f"{model.backbone} on images of {longest} x {longest} pixels"
        else:
            what = f"{Path(model.weights).name} on texts of at most {longest} tokens"
        return (
            f"network: {what}, at most {training.epochs} epochs in batches of {training.batch}, "
            f"learning rate {training.learning_rate:g}"
        )


def prepare(data: Labelled, spec: TrainSpec) -> Prepared:
    """Every text tokenised, every image decoded; a network that cannot be built for them is refused."""
    settings, source, train = spec.network, data.source, data.parts.train
    if source.kind == "texts":
        model = text_model(settings, spec.encoder)
        check_weights(model, ())
        check_model(model, (128,), (method_of(settings, texts=True).head,), len(data.classes))
        rows = token_ids(source.texts, spec.encoder)
        trained_on = rows[:, : _longest(rows)]
        as_images: dict[str, Any] = {}
    else:
        model, size = image_model(settings)
        rows = trained_on = _decoded([*source.files], size)
        shape = tuple(rows.shape[1:])
        check_model(model, shape, (method_of(settings, texts=False).head,), len(data.classes))
        if settings.weights:
            check_weights(model, shape)
        mean, std = (MEAN, STD) if settings.weights else _statistics(rows[torch.from_numpy(train)])
        as_images = {"mean": mean, "std": std, "crop_padding": size // 8, "flip": True}
    everything = Split(inputs=trained_on, labels=torch.from_numpy(data.codes), groups={})
    validation = everything.take(data.parts.validation)
    dataset = ShiftDataset(
        name=source.name,
        train=everything.take(train),
        validation=validation,
        test=validation.take([0]),  # what is scored is scored by the finished model
        class_names=tuple(map(str, data.classes)),
        **as_images,
    )
    return Prepared(rows, dataset, make_recipe(dataset, model, settings))


def _longest(rows: Tensor) -> int:
    """How many tokens the longest text has: training need not look beyond."""
    return max(1, int((rows != PADDING).sum(dim=1).max()))


def _decoded(files: list[Path], size: int) -> Tensor:
    """uint8 [N, 3, size, size], channels last in memory."""
    with (
        ThreadPoolExecutor() as threads,
        progress_bar(MofNCompleteColumn(), TimeRemainingColumn(), transient=True) as bar,
    ):
        task = bar.add_task("images", total=len(files))
        pixels = np.empty((len(files), size, size, 3), np.uint8)
        for i, image in enumerate(threads.map(lambda file: decode(file, size), files)):
            pixels[i] = image
            bar.advance(task)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def _statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, for pixels in [0, 1]."""
    pixels = images.permute(1, 0, 2, 3).flatten(1).double() / 255
    means = [round(float(value), 4) for value in pixels.mean(dim=1)]
    stds = [max(0.01, round(float(value), 4)) for value in pixels.std(dim=1)]
    return tuple(means), tuple(stds)
