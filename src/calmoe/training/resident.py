"""A model and its optimiser on a device, at fixed addresses; states are copied in and out."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor, nn

from calmoe.mixture import MixtureClassifier
from calmoe.sharpness import in_layout_of
from calmoe.training.checkpoints import TrainingState
from calmoe.training.settings import TrainingSettings

AVERAGE = "average."  # the prefix of averaged weights in a state
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def without_moments(state: TrainingState) -> TrainingState:
    """The same weights, with an optimiser that has seen nothing."""
    forgotten = {
        name: torch.zeros_like(value) if name.split(".")[0] in MOMENTS else value
        for name, value in state.tensors.items()
    }
    return replace(state, tensors=forgotten)


class Features:
    """The features that a backbone makes of inputs; in bfloat16 where `half` says so."""

    def __init__(self, backbone: nn.Module, device: torch.device, half: bool) -> None:
        self.backbone, self.device, self.half = backbone, device, half

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            return self.backbone(inputs)

    @cached_property
    def compiled(self) -> Callable[[Tensor], Tensor]:
        return torch.compile(self.__call__, dynamic=False)


class Resident:
    """A classifier and its AdamW. On a GPU both are laid out for captured steps: channels last, fused.

    Residents with different heads share the backbone of the first, so that it is compiled once. What another
    resident left in it does not matter: states are copied in before anything runs.
    """

    def __init__(
        self,
        model: MixtureClassifier,
        settings: TrainingSettings,
        device: torch.device,
        half: bool,
        first: "Resident | None" = None,
    ) -> None:
        captured = device.type == "cuda"
        self.model = model.to(device)
        if captured:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if first is not None:
            self.model.backbone = first.model.backbone
        self.features: Features = first.features if first else Features(self.model.backbone, device, half)
        self.parameters = list(self.model.parameters())
        self.learning_rate = torch.tensor(settings.learning_rate, device=device)
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=self.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=captured,
        )
        self.average: dict[str, Tensor] = {}  # of the parameters, by name, where one is kept
        for parameter in self.parameters:
            self.optimizer.state[parameter] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def apply(self, gradients: list[Tensor]) -> None:
        """One step of AdamW.

        On a CPU the fused AdamW reads gradients in the order of memory. One that lies in another order than
        its parameter, as convolutions of channels-last images give it, would move the wrong weights.
        """
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = in_layout_of(parameter, gradient)
        self.optimizer.step()

    def keep_average(self) -> None:
        """Keep an average of the weights from here on, at addresses of its own."""
        if not self.average:
            self.average = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name, where it lives."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            tensors |= {f"{moment}.{name}": self.optimizer.state[parameter][moment] for moment in MOMENTS}
        return tensors

    @torch.no_grad()
    def is_finite(self) -> bool:
        """Whether all weights and statistics are; one wait for the device."""
        sums = [value.sum() for value in self.model.state_dict().values() if value.is_floating_point()]
        return bool(torch.stack(sums).isfinite().all())

    @torch.no_grad()
    def load(self, state: TrainingState) -> None:
        for name, tensor in self.tensors().items():
            tensor.copy_(state.tensors[name])
        for name, average in self.average.items():  # a state without one begins it
            average.copy_(state.tensors.get(f"{AVERAGE}{name}", state.tensors[f"model.{name}"]))

    def state(self, epoch: int, history: list[dict[str, float]], averaged: bool = False) -> TrainingState:
        tensors = self.tensors()
        if averaged:
            tensors |= {f"{AVERAGE}{name}": average for name, average in self.average.items()}
        copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
        return TrainingState(epoch=epoch, tensors=copies, history=list(history))
