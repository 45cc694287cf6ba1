"""A network as it is used: rows as stored go in, calibrated probabilities come out; all in one module.

Preparation, pooled views, experts' temperatures and the mixture's are inside, so that an exported file needs
nothing else.
"""

import torch
from torch import Tensor, nn

from calmoe.calibration.temperature_solvers import temper
from calmoe.mixture import MixtureClassifier, MixtureOutput, combine
from calmoe.models.inputs import ImageInputs, Inputs
from calmoe.views import View

ROWS = 500  # that the network sees at a time


class Deployed(nn.Module):
    """uint8 images, int32 token ids or float32 features [N, ...] -> MixtureOutput.

    >>> from calmoe.mixture import MixtureHead
    >>> network = MixtureClassifier(nn.Flatten(), MixtureHead(64, num_classes=3))
    >>> inputs = ImageInputs(shape=(1, 8, 8), mean=(0.5,), std=(0.25,), views=5)
    >>> Deployed(network, inputs, temperature=2.0)(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).routing.shape
    torch.Size([2, 20])
    """

    def __init__(
        self,
        network: MixtureClassifier,
        inputs: Inputs,
        temperature: float = 1.0,
        expert_temperatures: list[float] | None = None,
    ) -> None:
        super().__init__()
        self.network, self.inputs = network, inputs
        self.temperature, self.expert_temperatures = temperature, expert_temperatures

    def forward(self, rows: Tensor) -> MixtureOutput:
        if isinstance(self.inputs, ImageInputs):
            views = [self._answer(self._seen(rows, view)) for view in self.inputs.pooled]
            output = MixtureOutput.pool(views) if len(views) > 1 else views[0]
        else:
            output = self._answer(rows)
        if self.temperature == 1.0:
            return output
        return output._replace(log_probs=temper(output.log_probs, self.temperature))

    @torch.no_grad()
    def answer(self, rows: Tensor) -> MixtureOutput:
        """The output for any number of rows, some at a time."""
        parts = []
        for part in rows.split(ROWS):
            if isinstance(self.inputs, ImageInputs):  # in memory as the trainer has them: the same numbers
                part = part.contiguous(memory_format=torch.channels_last)
            parts.append(self(part))
        return MixtureOutput.cat(parts)

    def _answer(self, rows: Tensor) -> MixtureOutput:
        output: MixtureOutput = self.network(rows)
        if self.expert_temperatures is None:
            return output
        scale = output.expert_log_probs.new_tensor(self.expert_temperatures).unsqueeze(1)
        return combine(output.log_routing, temper(output.expert_log_probs, scale))

    def _seen(self, images: Tensor, view: View) -> Tensor:
        """The images as this view shows them, normalised; black beyond the border."""
        assert isinstance(self.inputs, ImageInputs)
        moved = view.apply(images.float() * (torch.ones(()) / 255))
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.inputs.mean, self.inputs.std))
        return (moved - mean) / std
