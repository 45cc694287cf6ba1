"""Views of images against a loop over pixels."""

import pytest
import torch

from calmoe.views import View, image_views


def pixel_by_pixel(images, view):
    seen = torch.zeros_like(images)
    height, width = images.shape[2:]
    for y in range(height):
        for x in range(width):
            from_y, from_x = y - view.down, (width - 1 - x if view.mirrored else x) - view.right
            if 0 <= from_y < height and 0 <= from_x < width:
                seen[:, :, y, x] = images[:, :, from_y, from_x]
    return seen


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
@pytest.mark.parametrize(
    "view",
    [
        *image_views(33, mirrors=True),
        View(down=2, right=-1),
        View(mirrored=True, down=-6, right=3),
        View(right=50),
    ],
)
def test_a_view_shifts_then_mirrors(view, dtype):
    images = torch.randint(1, 256, (2, 3, 33, 40)).to(dtype)
    seen = view.apply(images)
    assert seen.dtype == dtype
    assert torch.equal(seen, pixel_by_pixel(images, view))
