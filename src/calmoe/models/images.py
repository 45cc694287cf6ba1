"""Images from whatever the caller holds, paths, PIL images or arrays, as uint8 tensors of one size."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from calmoe.arrays import as_numpy
from calmoe.data.image_cache import decode, pixels
from calmoe.errors import InputError, shown

MODES = {1: "L", 3: "RGB"}
DARK = 32  # of 255: where all pixels are darker, they may have another range


def as_images(images: Any, shape: tuple[int, int, int]) -> Tensor:
    """The images as uint8 [N, C, H, W], resized where they have another size.

    Arrays are uint8, [N, C, H, W] or [N, H, W, C]; grey ones may be [N, H, W].

    >>> as_images([Image.new("RGB", (40, 30))], (3, 8, 8)).shape
    torch.Size([1, 3, 8, 8])
    >>> as_images(np.zeros((2, 8, 8), np.uint8), (1, 8, 8)).shape
    torch.Size([2, 1, 8, 8])
    """
    if isinstance(images, str | Path | Image.Image):
        images = [images]
    if isinstance(images, Tensor):
        images = as_numpy(images)
    if isinstance(images, np.ndarray) and images.dtype.kind not in "OU":
        whole = _whole(images, shape)
        if whole is not None:
            return torch.from_numpy(np.ascontiguousarray(whole))
    if not isinstance(images, Iterable):
        raise InputError(f"give images as a list of paths, PIL images or uint8 arrays, not {shown(images)}")
    listed = [_one(image, row, shape) for row, image in enumerate(images)]
    if not listed:
        raise InputError("there are no images: give at least one")
    return torch.from_numpy(np.stack(listed))


def _whole(array: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray | None:
    """The array as [N, C, H, W] if it has that size already; None if its images must be resized."""
    if array.dtype != np.uint8:
        raise InputError(
            f"image arrays must hold uint8 pixels from 0 to 255, not {array.dtype}: {_as_uint8(array)}"
        )
    channels, height, width = shape
    if array.shape[1:] == shape:
        return array
    if array.shape[1:] == (height, width, channels):
        return array.transpose(0, 3, 1, 2)
    if array.shape[1:] == (height, width) and channels == 1:
        return array[:, None]
    return None


def _one(image: Any, row: int, shape: tuple[int, int, int]) -> np.ndarray:
    """One image as [C, H, W]."""
    channels, height, width = shape
    mode = MODES[channels]
    if isinstance(image, str | Path):
        path = Path(image)
        if not path.is_file():
            raise InputError(f"{path}: there is no such image")
        return _channels_first(decode(path, (height, width), mode))
    if not isinstance(image, Image.Image):
        image = _from_array(image, row, shape)
    return _channels_first(pixels(image, f"image {row}", (height, width), mode))


def _from_array(image: Any, row: int, shape: tuple[int, int, int]) -> Image.Image:
    array = as_numpy(image) if isinstance(image, Tensor) else np.asarray(image)
    if array.dtype == np.uint8:
        if array.ndim == 3 and array.shape[0] in MODES and array.shape[2] not in (1, 3, 4):
            array = array.transpose(1, 2, 0)
        if array.ndim == 3 and array.shape[2] == 1:
            array = array[:, :, 0]
        if array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4)):
            return Image.fromarray(np.ascontiguousarray(array))
    raise InputError(
        f"image {row} must be a path, a PIL image or uint8 pixels [H, W, {shape[0]}], not "
        f"{type(image).__name__} of {array.dtype} {list(array.shape)}"
        + (f": {_as_uint8(array)}" if array.dtype.kind in "iuf" and array.ndim > 1 else "")
    )


def _as_uint8(array: np.ndarray) -> str:
    """How to make uint8 pixels of these numbers."""
    low, high = (float(np.nanmin(array)), float(np.nanmax(array))) if array.size else (0.0, 1.0)
    if low >= 0 and high <= 1:
        return "they lie between 0 and 1, give (255 * x).round().astype('uint8')"
    if low >= 0 and DARK <= high <= 255:
        return "they lie between 0 and 255, give x.round().astype('uint8')"
    return f"they lie between {low:g} and {high:g}, bring them to 0 to 255 as the training images were"


def has_paths(images: Any) -> bool:
    """Whether these are files, whose pixels have their range."""
    first = images[0] if isinstance(images, list | tuple) and images else images
    return isinstance(first, str | Path)


def _channels_first(array: np.ndarray) -> np.ndarray:
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))
