"""Which rows train and which validate. Both functions return (kept, held out), each in stored order."""

import numpy as np


def stratified_holdout(strata: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Hold out `fraction` of every stratum, at random; a stratum of two rows or more is on both sides.

    >>> kept, held_out = stratified_holdout(np.array(["a", "a", "b", "b"]), 0.5, seed=0)
    >>> len(kept), len(held_out)
    (2, 2)
    """
    strata = np.asarray(strata)
    generator = np.random.default_rng(seed)
    held_out = np.zeros(len(strata), dtype=bool)
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
        held_out[generator.permutation(rows)[:count]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def last_rows_holdout(n: int, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Hold out the last `fraction` of n rows in stored order, as the paper's code does.

    >>> last_rows_holdout(10, 0.1)[1]
    array([9])
    """
    kept = n - int(n * fraction)
    return np.arange(kept), np.arange(kept, n)
