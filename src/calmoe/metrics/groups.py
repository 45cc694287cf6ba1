"""A metric group by group."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from calmoe.arrays import Array, as_tensor, check_word
from calmoe.errors import InputError
from calmoe.metrics.checks import as_ids, select
from calmoe.metrics.scores import accuracy


class Groups(NamedTuple):
    """A metric on all rows and on each group; an empty group has the value NaN and the count 0.

    Attributes:
        all: The metric on all rows.
        values: The metric by group.
        counts: The rows by group.
        worst_group: The group with the worst value; None where no group has one.
        worst: Its value.

    Example:
        >>> Groups(all=0.9, values={"a": 0.8}, counts={"a": 5}, worst_group="a", worst=0.8).worst_group
        'a'
    """

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

    Args:
        metric: A metric of this package, or your own f(probs, labels, weights, ...).
        probs: What the metric takes: probabilities, or log-probabilities for `nll`. [N, C]
        labels: The true classes. [N]
        groups: Boolean masks [N] by name, or one id (string or integer) a row [N].
        weights: Sample weights ≥ 0 [N]; equal unless given.
        worst: "max" or "min": which value is the worst.
        options: What else the metric takes, such as bins=10.

    Returns:
        The metric on all rows, on each group, and the worst.

    Example:
        >>> probs, labels = np.array([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4]]), np.array([0, 1, 0])
        >>> result = by_group(accuracy, probs, labels, np.array(["sketch", "sketch", "photo"]))
        >>> result.values, result.counts, result.worst_group
        ({'photo': 1.0, 'sketch': 0.5}, {'photo': 1, 'sketch': 2}, 'sketch')
    """
    if worst is not None:
        check_word("worst", worst, ("max", "min"))
    rows = as_tensor(labels).numel()
    masks = _masks(groups, rows)
    mass = np.ones(rows) if weights is None else as_tensor(weights).double().cpu().numpy()

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


CATEGORIES = 30  # a column with more whole numbers (or words, unless asked for) than this names no groups


def column_groups(
    columns: Mapping[str, np.ndarray], most_words: float = CATEGORIES
) -> dict[str, dict[str, np.ndarray]]:
    """The groups of each column, as masks by name; a column of measurements has none and is left out.

    A boolean column is one group, named as the column; in a column of few whole numbers, or of at most
    `most_words` words, every value is a group.

    >>> groups = column_groups({"hard": np.array([True, False]), "year": np.array([7, 8])})
    >>> {column: list(masks) for column, masks in groups.items()}
    {'hard': ['hard'], 'year': ['7', '8']}
    """
    groups: dict[str, dict[str, np.ndarray]] = {}
    most = {"U": most_words, "S": most_words, "i": CATEGORIES, "u": CATEGORIES}
    for column, values in columns.items():
        kind = values.dtype.kind
        if kind == "b":
            groups[column] = {column: values}
        elif kind in most and len(np.unique(values)) <= most[kind]:
            groups[column] = _by_value(values)
    return groups


def group_masks(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All of `column_groups` in one: a boolean column's mask by its name, the others by column and value.

    >>> list(group_masks({"hard": np.array([True, False]), "year": np.array([7, 8])}))
    ['hard', 'year 7', 'year 8']
    """
    return {
        name if columns[column].dtype == bool else f"{column} {name}": mask
        for column, masks in column_groups(columns).items()
        for name, mask in masks.items()
    }


def _masks(groups: Mapping[Any, Array] | Array, rows: int) -> dict[str, np.ndarray]:
    if isinstance(groups, Mapping):
        masks = {str(name): as_ids(mask, f"group {str(name)!r}") for name, mask in groups.items()}
    else:
        masks = _by_value(as_ids(groups, "groups"))
    for name, mask in masks.items():
        if mask.dtype != bool or mask.shape != (rows,):
            raise InputError(
                f"group {name!r} must be a boolean mask [N] = [{rows}], got {mask.dtype} {mask.shape}: "
                "give {name: mask}, or one array with the group of each row"
            )
    return masks


def _by_value(values: np.ndarray) -> dict[str, np.ndarray]:
    names, index = np.unique(values, return_inverse=True)
    return {str(name): index == i for i, name in enumerate(names)}
