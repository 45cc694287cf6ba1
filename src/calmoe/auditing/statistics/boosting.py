"""Gradient boosting as the audit uses it everywhere: small trees, many rows a leaf, nothing held back."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def small_trees(rows: int, seed: int) -> dict[str, Any]:
    """Settings of scikit-learn's HistGradientBoosting models for so many rows to learn from."""
    return {
        "max_leaf_nodes": 8,
        "min_samples_leaf": max(20, rows // 200),
        "l2_regularization": 1.0,
        "early_stopping": False,
        "random_state": seed,
    }


def one_thread() -> AbstractContextManager[Any]:
    """One thread for scikit-learn's sums: they come out the same on every machine, busy or not."""
    return _libraries().limit(limits=1)


@cache
def _libraries() -> ThreadpoolController:
    """The loaded libraries with threads of their own: to look for them takes as long as a small fit."""
    return ThreadpoolController()
