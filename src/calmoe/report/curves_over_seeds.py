"""Curves by method and over seeds: grouping, means with standard errors, and how many seeds there are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calmoe.errors import InputError
from calmoe.methods import in_order
from calmoe.render.wording import count_range, plus_minus
from calmoe.report.curves import Curves


def by_method(curves: Sequence[Curves]) -> dict[str, list[Curves]]:
    """The seeds of each method, methods in the paper's order; one protocol, and no seed twice."""
    if not curves:
        raise InputError("there are no curves to draw: no method of this run is finished")
    protocols = sorted({str(c.get("protocol")) for c in curves})
    if len(protocols) > 1:
        raise InputError(f"curves of several protocols ({', '.join(protocols)}): draw one at a time")
    runs: dict[str, list[Curves]] = {method: [] for method in in_order(c["method"] for c in curves)}
    for c in curves:
        if any(c.get("seed") == other.get("seed") for other in runs[c["method"]]):
            raise InputError(f"two curves for method {c['method']!r}, seed {c.get('seed')}: keep one")
        runs[c["method"]].append(c)
    return runs


def over_seeds(values: Sequence[Any] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis; None and NaN are left out, one seed has no error.

    >>> over_seeds([[1.0, None], [3.0, 5.0]])
    (array([2., 5.]), array([ 1., nan]))
    """
    array = np.array(values, dtype=float)
    n = (~np.isnan(array)).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(n > 0, np.nansum(array, axis=0) / n, np.nan)
        variance = np.nansum((array - mean) ** 2, axis=0) / np.where(n > 1, n - 1, np.nan)
        return mean, np.sqrt(variance / n)


def mean_text(values: Sequence[float | None] | np.ndarray) -> str:
    """The mean over seeds and its standard error, as in the tables.

    >>> mean_text([0.05, 0.06]), mean_text([0.05]), mean_text([None])
    ('0.055 ± 0.005', '0.050', 'none')
    """
    mean, error = over_seeds(values)
    return plus_minus(float(mean), float(error))


def seeds_text(runs: Mapping[str, Sequence[Curves]]) -> str:
    """How many seeds the methods have: "5 seeds", or "3 to 5 seeds"."""
    return count_range((len(seeds) for seeds in runs.values()), "seed")


def seed_counts(runs: Mapping[str, Sequence[Curves]]) -> dict[str, list[int]]:
    """How many seeds each method has, in the one place that a run is: for `looks.fewer_seeds`."""
    return {method: [len(seeds)] for method, seeds in runs.items()}
