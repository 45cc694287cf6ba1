"""How a network's inputs are prepared: images, texts or arrays, from the caller's hands to stored rows.

Stored rows are what datasets hold: uint8 images, int32 token ids, float32 features. `Deployed` takes them on.
"""

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import as_tensor
from calmoe.data import ShiftDataset
from calmoe.data.text import LENGTH, token_ids
from calmoe.errors import InputError, shown
from calmoe.models.images import DARK, as_images, has_paths
from calmoe.models.saved import exactly
from calmoe.validation import boolean, items, number, one_of, whole
from calmoe.views import View, first_views, image_views

MOST_SIDE = 4096  # pixels


@dataclass(frozen=True, kw_only=True)
class ImageInputs:
    """Images of one size; mean and std are for pixels in [0, 1]. `views` copies of each are pooled."""

    kind: ClassVar[str] = "images"
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    mirrors: bool = False
    views: int = 1

    def rows(self, given: Any, folder: Path | None = None) -> Tensor:
        """uint8 [N, C, H, W], from paths, PIL images or uint8 arrays."""
        images = as_images(given, self.shape)
        if not has_paths(given):
            self._check_range(images)
        return images

    def _check_range(self, images: Tensor) -> None:
        """Warn where no pixel of any image is as bright as the training images are on average.

        A black image says nothing of the range, and a dark one may be meant: so nothing is refused.
        """
        brightest, usual = int(images.max()), 255 * sum(self.mean) / len(self.mean)
        if 0 < brightest < min(DARK, usual):
            warnings.warn(
                f"the brightest pixel of all images is {brightest}, where training images are {usual:.0f} on "
                f"average: if the pixels run from 0 to {brightest}, give (x * (255 / {brightest})) in uint8",
                UserWarning,
                stacklevel=5,
            )

    @property
    def pooled(self) -> tuple[View, ...]:
        """The views whose predictions are pooled."""
        return first_views("the model", image_views(self.shape[2], self.mirrors), self.views)


@dataclass(frozen=True, kw_only=True)
class TextInputs:
    """Texts, cut by the tokenizer in the model's own folder."""

    kind: ClassVar[str] = "texts"
    length: int = LENGTH

    def rows(self, given: Any, folder: Path | None = None) -> Tensor:
        """int32 token ids [N, L], from strings."""
        if isinstance(given, str):
            given = [given]
        texts = list(given)
        if not texts:
            raise InputError("there are no texts: give at least one")
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"texts must be strings: row {row} is {shown(text)}")
        return token_ids(texts, str(folder))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)


@dataclass(frozen=True, kw_only=True)
class ArrayInputs:
    """Numbers, as they are."""

    kind: ClassVar[str] = "arrays"
    shape: tuple[int, ...]

    def rows(self, given: Any, folder: Path | None = None) -> Tensor:
        """float32 [N, ...]"""
        values = as_tensor(given if isinstance(given, Tensor) else np.asarray(given))
        if values.ndim < 2 or tuple(values.shape[1:]) != self.shape or not len(values):
            wanted = ", ".join(map(str, self.shape))
            raise InputError(f"give numbers [N, {wanted}], not {list(values.shape)}")
        return values.to(torch.float32)


Inputs: TypeAlias = ImageInputs | TextInputs | ArrayInputs


def dataset_inputs(dataset: ShiftDataset, views: int = 1) -> Inputs:
    """How the dataset's rows are prepared for a network that was trained on it."""
    if dataset.tokens:
        return TextInputs()
    if not dataset.images:
        return ArrayInputs(shape=dataset.input_shape)
    channels, height, width = dataset.input_shape
    return ImageInputs(
        shape=(channels, height, width),
        mean=dataset.mean,
        std=dataset.std,
        mirrors=dataset.flip,
        views=views,
    )


def inputs_as_dict(inputs: Inputs) -> dict[str, Any]:
    """As JSON holds it."""
    lists = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(inputs).items()}
    return {"kind": inputs.kind} | lists


def read_inputs(saved: Any) -> Inputs:
    """What `inputs_as_dict` described; an InputError where it cannot be."""
    if not isinstance(saved, dict) or "kind" not in saved:
        raise InputError(f"inputs must be a table with a kind, not {shown(saved)}")
    kind = one_of("inputs.kind", saved["kind"], ("images", "texts", "arrays"))
    if kind == "texts":
        exactly("inputs", saved, ("kind", "length"))
        return TextInputs(length=whole("inputs.length", saved["length"], least=LENGTH, most=LENGTH))
    if kind == "arrays":
        exactly("inputs", saved, ("kind", "shape"))
        shape = items("inputs.shape", saved["shape"], least=1, most=8)
        return ArrayInputs(shape=tuple(whole("inputs.shape", n, least=1, most=2**24) for n in shape))
    exactly("inputs", saved, ("kind", "shape", "mean", "std", "mirrors", "views"))
    shape = items("inputs.shape", saved["shape"], least=3, most=3)
    channels, height, width = (whole("inputs.shape", n, least=1, most=MOST_SIDE) for n in shape)
    if channels not in (1, 3):
        raise InputError(f"inputs.shape must begin with 1 or 3 channels, not {channels}")
    means, stds = (items(f"inputs.{n}", saved[n], least=channels, most=channels) for n in ("mean", "std"))
    inputs = ImageInputs(
        shape=(channels, height, width),
        mean=tuple(number("inputs.mean", each) for each in means),
        std=tuple(number("inputs.std", each, above=0) for each in stds),
        mirrors=boolean("inputs.mirrors", saved["mirrors"]),
        views=whole("inputs.views", saved["views"], least=1, most=10),
    )
    _ = inputs.pooled  # refuses more views than there are
    return inputs
