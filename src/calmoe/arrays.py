"""From whatever the caller holds (torch, NumPy, lists) to checked tensors."""

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from calmoe.errors import InputError

Array: TypeAlias = Tensor | np.ndarray


def as_tensor(values: Array, device: torch.device | None = None) -> Tensor:
    """A detached tensor over the same memory where possible; NumPy arrays may be read-only or reversed."""
    tensor = values.detach() if isinstance(values, Tensor) else _from_numpy(values)
    return tensor if device is None else tensor.to(device)


def as_numpy(tensor: Tensor) -> np.ndarray:
    """The values of a tensor, wherever it lies; what NumPy does not know (bfloat16, float8) as float32."""
    plain = tensor.detach().cpu()
    try:
        return plain.numpy()
    except TypeError:
        pass
    try:
        return plain.float().numpy()
    except (TypeError, RuntimeError):
        kind = str(plain.dtype).removeprefix("torch.")
        raise InputError(f"NumPy has no {kind}: give float32") from None


def _from_numpy(values: Any) -> Tensor:
    try:
        array = np.asarray(values)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.writeable or any(stride < 0 for stride in array.strides):
            array = array.copy()
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(_not_numbers(values)) from None


def _not_numbers(values: Any) -> str:
    """By the names of attributes: this module knows neither MixtureOutput nor Predictions."""
    kind = type(values).__name__
    if hasattr(values, "probs"):
        return (
            f"expected an array, got the whole {kind}: pass output.probs (where logs are asked, .log_probs)"
        )
    if hasattr(values, "output"):
        return (
            f"expected an array, got the whole {kind}: pass predictions.output.probs (where logs are asked, "
            ".output.log_probs)"
        )
    of = f" of {values.dtype}" if hasattr(values, "dtype") else ""
    return f"expected numbers in a rectangular array, got {kind}{of}: give a torch tensor or a NumPy array"
