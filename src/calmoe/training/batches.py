"""Batches made where the data lives: rows are drawn, cropped, flipped and scaled on the device, all at once.

An epoch's draw (order, crops, flips) comes from one generator before its first step, into buffers that keep
their addresses: a captured step only reads them.
"""

import torch
from torch import Tensor

from calmoe.data import ShiftDataset, Split
from calmoe.views import View


class Batches:
    """The rows of one split on a device, and the present epoch's draw over them."""

    def __init__(self, split: Split, dataset: ShiftDataset, device: torch.device) -> None:
        self.images = dataset.images
        inputs = split.inputs.to(device)
        self.inputs = (
            inputs.permute(0, 2, 3, 1).contiguous() if self.images else inputs
        )  # images as [N,H,W,C]
        self.labels = split.labels.to(device)
        self.padding, self.flips = dataset.crop_padding, dataset.flip
        self.mean, self.std = (
            torch.tensor(values, device=device).view(-1, 1, 1) for values in (dataset.mean, dataset.std)
        )
        n = len(self.labels)
        self.order = torch.arange(n, device=device)
        self.corner = torch.full((n, 2), self.padding, device=device)
        self.flipped = torch.zeros(n, dtype=torch.bool, device=device)

    def __len__(self) -> int:
        return len(self.labels)

    def draw(self, generator: torch.Generator, shuffle: bool = True) -> None:
        """A new order, crop and flip for every row."""
        n, device = len(self), self.order.device
        if shuffle:
            self.order.copy_(torch.randperm(n, generator=generator, device=device))
        if self.images:
            self.corner.copy_(torch.randint(2 * self.padding + 1, (n, 2), generator=generator, device=device))
        if self.flips:
            self.flipped.copy_(torch.rand(n, generator=generator, device=device) < 0.5)

    def look(self, view: View) -> None:
        """Every row in its stored order, as this view shows it."""
        self.order.copy_(torch.arange(len(self), device=self.order.device))
        moved = torch.tensor([-view.down, -view.right], device=self.corner.device)
        self.corner.copy_((moved + self.padding).expand_as(self.corner))
        self.flipped.fill_(view.mirrored)

    def take(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels at positions `at` [B] of the draw; images in [0, 1], black beyond the border."""
        rows = self.order[at]
        if not self.images:
            return self.inputs[rows], self.labels[rows]
        height, width = self.inputs.shape[1:3]
        top, left = (self.corner[at] - self.padding).unbind(1)
        y = top[:, None] + torch.arange(height, device=at.device)
        across = torch.arange(width, device=at.device)
        x = left[:, None] + torch.where(self.flipped[at][:, None], width - 1 - across, across)
        inside = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
        pixels = self.inputs[
            rows[:, None, None], y.clamp(0, height - 1)[:, :, None], x.clamp(0, width - 1)[:, None, :]
        ]
        scaled = pixels.float() * (inside.unsqueeze(3) / 255)
        return scaled.permute(0, 3, 1, 2), self.labels[rows]

    def normalise(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean) / self.std if self.images else inputs
