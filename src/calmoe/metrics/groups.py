"""A metric group by group."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from calmoe.arrays import Array, as_tensor
from calmoe.errors import InputError
from calmoe.metrics.checks import select
from calmoe.metrics.scores import accuracy


class Groups(NamedTuple):
    """A metric on all rows and on each group; an empty group has the value NaN and the count 0."""

    all: float
    values: dict[str, float]
    counts: dict[str, int]
    worst_group: str | None
    worst: float


def by_group(
    metric: Callable[..., float],
    probs: Array,
    labels: Array,
    groups: Mapping[Any, Array] | Array,
    weights: Array | None = None,
    *,
    worst: Literal["max", "min"] | None = None,
    **options: Any,
) -> Groups:
    """The metric on every group: groups are {name: boolean mask [N]}, or one id (string or integer) a row.

    The worst group has the largest value, for accuracy the smallest; `worst` says otherwise. Masks may
    overlap. A group without weight has the value NaN and is never the worst.

    >>> probs, labels = np.array([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4]]), np.array([0, 1, 0])
    >>> result = by_group(accuracy, probs, labels, np.array(["sketch", "sketch", "photo"]))
    >>> result.values, result.counts, result.worst_group
    ({'photo': 1.0, 'sketch': 0.5}, {'photo': 1, 'sketch': 2}, 'sketch')
    """
    if worst not in (None, "max", "min"):
        raise InputError(f'worst must be "max" or "min", got {worst!r}')
    masks = _masks(groups, len(labels))
    mass = np.ones(len(labels)) if weights is None else as_tensor(weights).double().cpu().numpy()

    def value(mask: np.ndarray) -> float:
        if not mass[mask].any():
            return float("nan")
        inside = None if weights is None else select(weights, mask)
        return float(metric(select(probs, mask), select(labels, mask), inside, **options))

    everywhere = float(metric(probs, labels, weights, **options))
    values = {name: value(mask) for name, mask in masks.items()}
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    present = {name: number for name, number in values.items() if not np.isnan(number)}
    extreme = min if (worst or ("min" if metric is accuracy else "max")) == "min" else max
    name = extreme(present, key=present.__getitem__, default=None)
    return Groups(everywhere, values, counts, name, present[name] if name is not None else float("nan"))


def _masks(groups: Mapping[Any, Array] | Array, rows: int) -> dict[str, np.ndarray]:
    if isinstance(groups, Mapping):
        masks = {str(name): np.asarray(as_tensor(mask).cpu()) for name, mask in groups.items()}
    else:
        ids = groups.cpu().numpy() if hasattr(groups, "cpu") else np.asarray(groups)
        names, index = np.unique(ids, return_inverse=True)
        masks = {str(name): index == i for i, name in enumerate(names)}
    for name, mask in masks.items():
        if mask.dtype != bool or mask.shape != (rows,):
            raise InputError(
                f"group {name!r} must be a boolean mask [N] = [{rows}], got {mask.dtype} {mask.shape}: "
                "give {name: mask}, or one array with the group of each row"
            )
    return masks


CATEGORIES = 30  # a column of whole numbers or words with more distinct values than this names no groups


def group_masks(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Masks by name: each boolean column, and every value of a column of words or of few whole numbers.

    >>> list(group_masks({"hard": np.array([True, False]), "year": np.array([7, 8])}))
    ['hard', 'year 7', 'year 8']
    """
    masks: dict[str, np.ndarray] = {}
    for column, values in columns.items():
        if values.dtype == bool:
            masks[column] = values
        elif values.dtype.kind in "USiu" and len(names := np.unique(values)) <= CATEGORIES:
            masks |= {f"{column} {name}": values == name for name in names}
    return masks
