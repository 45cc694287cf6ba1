"""From whatever the caller holds (torch, NumPy, lists) to checked tensors."""

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = Tensor | np.ndarray


def as_tensor(values: Array, device: torch.device | None = None) -> Tensor:
    """A detached tensor over the same memory where possible; NumPy arrays may be read-only or reversed."""
    if isinstance(values, Tensor):
        return values.detach() if device is None else values.detach().to(device)
    array = np.asarray(values)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.as_tensor(array, device=device)
