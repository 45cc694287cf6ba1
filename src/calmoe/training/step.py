"""One optimisation step, and how a GPU runs it: compiled in pieces, captured as one graph without inputs.

The step reads its position in the epoch from a tensor that it advances itself, and leaves each example's loss
at that position: nothing passes between host and device until the epoch ends.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from calmoe.averaging import update_average
from calmoe.objectives import Objective
from calmoe.rectification import frequency_filter, rectify, soft_ece
from calmoe.sharpness import perturbed
from calmoe.training.batches import Batches
from calmoe.training.ranks import ALONE, Ranks
from calmoe.training.resident import Resident


class Step:
    """Batch, forward, objective, backward, AdamW for `size` examples from the cursor on.

    Of several ranks each takes its share of them; value and gradients are those of all `size`.
    """

    def __init__(
        self,
        resident: Resident,
        batches: Batches,
        objective: Objective,
        cursor: Tensor,
        losses: Tensor,
        size: int,
        generator: torch.Generator,
        ranks: Ranks = ALONE,
    ) -> None:
        self.resident, self.batches, self.objective = resident, batches, objective
        self.cursor, self.losses, self.size = cursor, losses, size
        self.generator, self.group = generator, ranks.group
        share = ranks.share(size)
        self.first, self.positions = share.start, torch.tensor(share, dtype=torch.int64, device=cursor.device)
        self.filter: tuple[float, str] | None = None
        self.rho: float | None = None
        self.decay = 0.0
        self.take: Callable[[Tensor], tuple[Tensor, Tensor]] = batches.take
        self.features: Callable[[Tensor], Tensor] = resident.features

    def rectify_with(self, fraction: float, variant: str) -> None:
        """FGR: the main gradient on a filtered batch, rectified against the soft ECE of the clean one."""
        self.filter = (fraction, variant)

    def sharpen(self, rho: float) -> None:
        """SAM: the gradient at the worst point within ρ of the weights, to first order."""
        self.rho = rho

    def average(self, decay: float) -> None:
        """Keep an exponential average of the weights."""
        self.decay = decay

    def compile(self) -> None:
        """The backbone, which all objectives share, and the two small parts around it."""
        self.features = self.resident.features.compiled
        for part in ("take", "value", "calibration"):
            setattr(self, part, torch.compile(getattr(self, part), dynamic=False))

    def value(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The objective, and the loss of each example."""
        output = self.resident.model.head(features)
        losses = self.objective.loss(output, labels)
        over = () if self.group is None else (self.group,)  # a plug-in's objective may take no group
        return self.objective.reduce(losses, output, labels, *over), losses.detach()

    def calibration(self, features: Tensor, labels: Tensor) -> Tensor:
        return soft_ece(self.resident.model.head(features), labels, group=self.group)

    def __call__(self) -> None:
        at = self.cursor + self.positions
        inputs, labels = self.take(at)
        seen = inputs if self.filter is None else self._filtered(inputs, *self.filter)
        rows = self.batches.normalise(seen)
        value, losses = self.value(self.features(rows), labels)
        gradients = self.resident.gradients(value)
        pieces = self.resident.layout.pieces
        if self.rho is not None:
            buffers = list(self.resident.model.buffers())  # batch norm moves in the first pass only
            with perturbed(self.resident.parameters, gradients, self.rho, buffers, pieces):
                value, _ = self.value(self.features(rows), labels)
                gradients = self.resident.gradients(value)
        if self.filter is not None:
            calibration = self.calibration(self.features(self.batches.normalise(inputs)), labels)
            gradients = rectify(gradients, self.resident.gradients(calibration), group=pieces)
        self.resident.apply(gradients)
        if self.decay:
            update_average([*self.resident.average.values()], self.resident.parameters, self.decay)
        self.losses.index_copy_(0, at, losses)
        self.cursor.add_(self.size)

    def _filtered(self, inputs: Tensor, fraction: float, variant: str) -> Tensor:
        """Some images without their high frequencies; inputs that are no images pass as they are."""
        if not self.batches.images:
            return inputs
        share = None if self.group is None else (self.first, self.size)
        return frequency_filter(inputs, fraction, variant=variant, generator=self.generator, share=share)


def captured(step: Step, compiles: bool, pool: Any) -> Callable[[], None]:
    """The step as a CUDA graph. Warming up changes the model, so states are loaded after this.

    All graphs share `pool`, a graph_pool_handle: they never run at once, and none reads what another left.
    """
    if compiles:
        step.compile()
    step.resident.model.train()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch\._inductor")  # advice to its developers
        for _ in range(3):
            step.cursor.zero_()
            step()
    torch.cuda.current_stream().wait_stream(side)
    step.cursor.zero_()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(step.generator)
    with torch.cuda.graph(graph, pool=pool):
        step()

    def replay(kept: Step = step) -> None:  # the graph reads the step's tensors: it must not outlive them
        graph.replay()

    return replay
