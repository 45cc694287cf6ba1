"""Checks of the inputs, once, in a few passes over the data; a refusal names the remedy."""

import math
from collections.abc import Iterator
from numbers import Integral
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import Array, as_tensor
from calmoe.errors import InputError

Of: TypeAlias = Literal["top"] | int


class Rows(NamedTuple):
    """Checked input on one device: probabilities (or their logs) [N, C], labels [N], weights [N] or None."""

    probs: Tensor
    labels: Tensor
    weights: Tensor | None

    @property
    def total(self) -> float:
        return float(len(self.labels) if self.weights is None else self.weights.sum())

    def weigh(self, values: Tensor) -> Tensor:
        """w_i v_i, and 0 where w_i = 0 even if v_i is infinite; values are [N] or [N, C]."""
        if self.weights is None:
            return values
        weights = self.weights if values.dim() == 1 else self.weights[:, None]
        return torch.where(weights > 0, weights * values, 0.0)

    def split(self, size: int) -> Iterator["Rows"]:
        """The same rows in parts of at most `size`."""
        for start in range(0, len(self.labels), size):
            part = slice(start, start + size)
            yield Rows(
                self.probs[part], self.labels[part], None if self.weights is None else self.weights[part]
            )

    def mean(self, values: Tensor) -> float:
        """The weighted mean of one value a row."""
        return float(self.weigh(values).sum()) / self.total


def check(probs: Array, labels: Array, weights: Array | None = None) -> Rows:
    """Rows of probabilities, or an InputError: never a guess about what the numbers are."""
    values = _matrix(probs, "probs")
    tolerance = max(1e-3, torch.finfo(values.dtype).eps)
    low, high = (end.item() for end in _row_sums(values).aminmax())
    least, most = (end.item() for end in values.aminmax())
    if not (least >= -torch.finfo(values.dtype).eps and low >= 1 - tolerance and high <= 1 + tolerance):
        raise InputError(_not_probabilities(values, low, high))
    if least < 0 or most > 1:  # by rounding only
        values = values.clamp(0, 1)
    return Rows(values, _labels(labels, values), _weights(weights, values))


def check_log(log_probs: Array, labels: Array, weights: Array | None = None) -> Rows:
    """Rows of log-probabilities; minus infinity is allowed."""
    values = _matrix(log_probs, "log_probs")
    tolerance = max(1e-3, torch.finfo(values.dtype).eps * math.log(values.shape[1] + 1))
    low, high = (end.item() for end in _row_sums(values.exp()).aminmax())
    if not (low >= 1 - tolerance and high <= 1 + tolerance):
        if values.isnan().any():
            raise InputError("log_probs contains NaN: find the rows with log_probs.isnan().any(1)")
        kind = (
            "probabilities: pass probs.log()" if values.min() >= 0 else "logits: pass logits.log_softmax(1)"
        )
        raise InputError(
            f"rows of exp(log_probs) sum to {low:.4g} .. {high:.4g}, not 1: these are probably {kind}"
        )
    return Rows(values, _labels(labels, values), _weights(weights, values))


def events(rows: Rows, of: Of) -> tuple[Tensor, Tensor]:
    """Confidence [N] in its own dtype, outcome [N] in bool: of the top class, or of class c against y = c."""
    check_event(of, rows.probs.shape[1])
    if of == "top":
        confidence, predicted = rows.probs.max(1)
        return confidence, predicted == rows.labels
    return rows.probs[:, of], rows.labels == of


def check_event(of: Of, classes: int) -> None:
    """Refuse what is neither "top" nor a class."""
    top = isinstance(of, str) and of == "top"
    if not top and not (isinstance(of, Integral) and not isinstance(of, bool) and 0 <= of < classes):
        raise InputError(f'of must be "top" or a class in 0..{classes - 1}, got {of!r}')


def select(values: Array, mask: np.ndarray) -> Array:
    """The rows where mask is true, in the caller's own kind of array."""
    if isinstance(values, Tensor):
        return values[torch.as_tensor(mask, device=values.device)]
    return np.asarray(values)[mask]


def as_ids(values: Array, name: str) -> np.ndarray:
    """Words or numbers that say what each row belongs to."""
    if isinstance(values, Tensor):
        ids = as_tensor(values).cpu()
        return (ids.double() if ids.is_floating_point() else ids).numpy()
    array = np.asarray(values)
    if array.dtype.kind == "O":  # pandas', say
        try:
            np.unique(array)
        except TypeError:
            raise InputError(f"{name} must all be words or all be numbers: convert the others") from None
    return array


def _matrix(values: Array, name: str) -> Tensor:
    matrix = as_tensor(values)
    if matrix.dim() != 2:
        shape = tuple(matrix.shape)
        raise InputError(
            f"{name} must be [N, C], got shape {shape}: one row an example, two columns if binary"
        )
    if not matrix.numel():
        raise InputError(f"{name} is empty, shape {tuple(matrix.shape)}: give at least one row and one class")
    return _real(matrix, name) if matrix.is_floating_point() else _real(matrix, name).double()


def _real(values: Tensor, name: str) -> Tensor:
    """Real numbers of at least two bytes each."""
    if values.is_complex():
        raise InputError(f"{name} must be real numbers, got {values.dtype}: pass {name}.real")
    return values.float() if values.is_floating_point() and values.itemsize < 2 else values


def _row_sums(values: Tensor) -> Tensor:
    """Row sums in at least float32, autocast or not; a matrix-vector product is the fastest way to them."""
    if values.itemsize < 4:
        return values.sum(1, dtype=torch.float32)
    with torch.autocast(values.device.type, enabled=False):
        return values @ values.new_ones(values.shape[1])


def _not_probabilities(values: Tensor, low: float, high: float) -> str:
    if values.isnan().any():
        return "probs contains NaN: find the rows with probs.isnan().any(1)"
    if values.max() <= 0:
        return "probs has no positive value: these are probably log-probabilities, pass log_probs.exp()"
    remedy = "if these are logits, pass logits.softmax(1); if log-probabilities, log_probs.exp()"
    if values.min() < 0 or values.max() > 1:
        return f"probs has values in {values.min():.4g} .. {values.max():.4g}, outside [0, 1]: {remedy}"
    return f"rows of probs sum to {low:.4g} .. {high:.4g}, not 1: divide by probs.sum(1); {remedy}"


def _labels(labels: Array, values: Tensor) -> Tensor:
    index = as_tensor(labels, values.device)
    if index.shape != values.shape[:1]:
        raise InputError(
            f"labels must be [N] = [{len(values)}] as the rows, got {tuple(index.shape)}: one class a row"
        )
    if index.is_floating_point() or index.is_complex():
        raise InputError(
            f"labels must be integers, got {index.dtype}: pass class indices, e.g. labels.long()"
        )
    index = index.long()
    low, high = (int(end) for end in index.aminmax())
    if low < 0 or high >= values.shape[1]:
        raise InputError(
            f"labels lie in {low} .. {high}, but there are {values.shape[1]} classes (columns): count from 0"
        )
    return index


def _weights(weights: Array | None, values: Tensor) -> Tensor | None:
    if weights is None:
        return None
    checked = _real(as_tensor(weights, values.device), "weights").double()
    if checked.shape != values.shape[:1]:
        raise InputError(
            f"weights must be [N] = [{len(values)}] as the rows, got {tuple(checked.shape)}: one a row"
        )
    low, total = checked.min().item(), checked.sum().item()
    if not (low >= 0 and 0 < total < math.inf):
        raise InputError(
            f"weights must be finite, >= 0 and not all 0, got least {low:.4g}, sum {total:.4g}: correct these"
        )
    return checked
