"""The gradient's norm and the size of every step that AdamW takes."""

from typing import Any

import torch


class StepNotes:
    """Notes each step of an AdamW optimiser, in a place given by the optimiser's own count of steps.

    A hook of the optimiser writes into tensors on its device and never waits for the device: a step that was
    captured in a CUDA graph notes itself again whenever the graph is replayed. What capturing itself notes,
    the real steps overwrite.

    >>> weight = torch.nn.Parameter(torch.zeros(4))
    >>> optimizer = torch.optim.AdamW([weight], lr=0.1)
    >>> with StepNotes(optimizer, most=10) as notes:
    ...     weight.grad = torch.full((4,), 3.0)
    ...     optimizer.step()
    >>> [round(values[0], 3) for values in notes.between(0, 1)]
    [6.0, 1.0]
    """

    def __init__(self, optimizer: torch.optim.Optimizer, most: int) -> None:
        self.optimizer = optimizer
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.most = most
        device = self.parameters[0].device
        self.norms, self.sizes = (torch.zeros(most + 2, device=device) for _ in range(2))

    def __enter__(self) -> "StepNotes":
        self.hook = self.optimizer.register_step_post_hook(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self.hook.remove()

    def between(self, start: int, end: int) -> tuple[list[float], list[float]]:
        """Of steps [start, end): the gradient's norm, and the step's root mean square over learning rate."""
        norms, sizes = (values[start + 1 : end + 1].tolist() for values in (self.norms, self.sizes))
        return norms, sizes

    @torch.no_grad()
    def _note(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """What gradients and moments say about the step just taken; weight decay is no part of it."""
        group = optimizer.param_groups[0]
        (beta1, beta2), eps = group["betas"], group["eps"]
        squares = updates = torch.zeros((), device=self.norms.device)
        for parameter in self.parameters:
            state, gradient = optimizer.state[parameter], parameter.grad
            assert gradient is not None
            t = state["step"]
            scale = (state["exp_avg_sq"] / (1 - beta2**t)).sqrt() + eps
            squares = squares + gradient.square().sum()
            updates = updates + (state["exp_avg"] / (1 - beta1**t) / scale).square().sum()
        count = sum(parameter.numel() for parameter in self.parameters)
        at = t.to(device=self.norms.device, dtype=torch.int64).clamp(max=self.most + 1).reshape(1)
        self.norms.index_copy_(0, at, squares.sqrt().reshape(1))
        self.sizes.index_copy_(0, at, (updates / count).sqrt().reshape(1))
