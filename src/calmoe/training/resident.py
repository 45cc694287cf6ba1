"""A model and its optimiser on a device, at fixed addresses; states are copied in and out."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor, nn

from calmoe.mixture import MixtureClassifier
from calmoe.sharpness import in_layout_of
from calmoe.training.checkpoints import TrainingState
from calmoe.training.layouts import Copies, Layout
from calmoe.training.ranks import ALONE
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
        layout: Layout | None = None,
    ) -> None:
        self.layout: Layout = layout or Copies(ALONE)
        self.model = model
        self.layout.place(model, device)
        if first is not None:
            self.model.backbone = first.model.backbone
        self.features: Features = first.features if first else Features(self.model.backbone, device, half)
        self.parameters = self.layout.parameters(self.model)
        self.learning_rate = torch.tensor(settings.learning_rate, device=device)
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=self.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=device.type == "cuda",
        )
        self.average: dict[str, Tensor] = {}  # of the parameters, by name, where one is kept
        self.steps: dict[tuple[object, ...], Callable[[], None]] = {}  # that train it
        for parameter in self.parameters:
            self.optimizer.state[parameter] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def gradients(self, value: Tensor) -> list[Tensor]:
        """Of `value`, a global batch's, for each of `parameters`."""
        return self.layout.gradients(self.model, value)

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
            names = [name for name, _ in self.model.named_parameters()]
            self.average = {n: p.detach().clone() for n, p in zip(names, self.parameters, strict=True)}

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name, where it lives."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for (name, like), parameter in zip(self.model.named_parameters(), self.parameters, strict=True):
            for moment in MOMENTS:
                part = self.optimizer.state[parameter][moment]
                tensors[f"{moment}.{name}"] = self.layout.named(part, like)
        return tensors

    def averages(self) -> dict[str, Tensor]:
        """The averaged weights by the names of a state, where they live."""
        likes = dict(self.model.named_parameters())
        return {f"{AVERAGE}{n}": self.layout.named(part, likes[n]) for n, part in self.average.items()}

    @torch.no_grad()
    def is_finite(self) -> bool:
        """Whether all weights and statistics of this rank are; one wait for the device."""
        kept = self.model.state_dict().keys()  # other buffers, such as masks, may be infinite
        buffers = (buffer for name, buffer in self.model.named_buffers() if name in kept)
        values = [*self.parameters, *buffers]
        sums = [value.sum() for value in values if value.is_floating_point()]
        return bool(torch.stack(sums).isfinite().all())

    @torch.no_grad()
    def load(self, state: TrainingState) -> None:
        """Copy the leader's state into place, on all ranks; followers come with an empty one."""
        for name, tensor in self.tensors().items():
            self.layout.spread(tensor, state.tensors.get(name))
        for name, average in self.averages().items():  # a state without one begins it
            weight = state.tensors.get(f"model.{name.removeprefix(AVERAGE)}")
            self.layout.spread(average, state.tensors.get(name, weight))

    def state(self, epoch: int, history: list[dict[str, float]], averaged: bool = False) -> TrainingState:
        """Copies on the CPU: all ranks gather them together, and the leader keeps them."""
        copies = {}
        for name, tensor in (self.tensors() | (self.averages() if averaged else {})).items():
            gathered = self.layout.whole(tensor).detach()
            if self.layout.ranks.leads:
                copies[name] = gathered.to("cpu", copy=True).contiguous()
        return TrainingState(epoch=epoch, tensors=copies, history=list(history))
