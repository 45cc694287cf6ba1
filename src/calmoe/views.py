"""Views of an image at test time: mirrored and shifted copies, whose predictions are pooled.

A mixture of K experts over V views is a mixture of V·K experts with routing r / V: `MixtureOutput.pool`.
"""

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

from calmoe.errors import InputError

__all__ = ["View", "first_views", "image_views"]

ALL_VIEWS = 0  # as a number of views: as many as the dataset declares
SHARE = 16  # a view is shifted by this share of the image: 2 of 32 pixels, 14 of 224


class View(NamedTuple):
    """How one copy of an image differs from it: it is shifted, then mirrored.

    Attributes:
        mirrored: Whether left and right are exchanged.
        down: By how many pixels it is shifted down.
        right: By how many pixels it is shifted to the right.

    Example:
        >>> View(mirrored=True, right=2)
        View(mirrored=True, down=0, right=2)
    """

    mirrored: bool = False
    down: int = 0
    right: int = 0

    def apply(self, images: Tensor) -> Tensor:
        """The images as this view shows them; zeros, which are black before normalisation, come in.

        Args:
            images: Images, not yet normalised. [N, C, H, W]

        Returns:
            Images of the same size. [N, C, H, W]

        Example:
            >>> import torch
            >>> View(down=1).apply(torch.tensor([[[[1, 2], [3, 4]]]]))[0, 0]
            tensor([[0, 0],
                    [1, 2]])
        """
        height, width = images.shape[2:]
        down, right = max(-height, min(self.down, height)), max(-width, min(self.right, width))
        if down or right:
            rows = slice(max(0, -down), height - max(0, down))
            columns = slice(max(0, -right), width - max(0, right))
            border = (max(0, right), max(0, -right), max(0, down), max(0, -down))
            images = functional.pad(images[:, :, rows, columns], border)
        return images.flip(3) if self.mirrored else images


def image_views(size: int, mirrors: bool) -> tuple[View, ...]:
    """All views of an image: the image itself, and shifted by a little in four directions.

    Args:
        size: The image's width in pixels.
        mirrors: Whether each view comes mirrored too, right after it.

    Returns:
        5 or 10 views; the image as it is comes first.

    Example:
        >>> len(image_views(32, mirrors=True)), len(image_views(8, mirrors=False))
        (10, 5)
    """
    shift = max(1, size // SHARE)
    shifts = [(0, 0), (-shift, 0), (shift, 0), (0, -shift), (0, shift)]
    sides = (False, True) if mirrors else (False,)
    return tuple(View(mirrored, down, right) for down, right in shifts for mirrored in sides)


def first_views(name: str, declared: tuple[View, ...], count: int) -> tuple[View, ...]:
    """The first `count` of the views that a dataset declares, or all of them (`ALL_VIEWS`).

    Args:
        name: What the dataset is called, for the message where it has too few.
        declared: Its views, the image itself first.
        count: How many to pool; 0 is all.

    Returns:
        The views to pool.

    Example:
        >>> first_views("digits", image_views(8, mirrors=False), count=2)
        (View(mirrored=False, down=0, right=0), View(mirrored=False, down=-1, right=0))
    """
    if count == ALL_VIEWS:
        return declared
    if count > len(declared):
        if len(declared) == 1:
            raise InputError(f"{name} has no views to pool: leave out views")
        raise InputError(f"{name} has {len(declared)} views: give views={len(declared)} or fewer")
    return declared[:count]
