"""Gradient boosting as the audit uses it everywhere: small trees, many rows a leaf, nothing held back."""

from typing import Any


def small_trees(rows: int, seed: int) -> dict[str, Any]:
    """Settings of scikit-learn's HistGradientBoosting models for so many rows to learn from."""
    return {
        "max_leaf_nodes": 8,
        "min_samples_leaf": max(20, rows // 200),
        "l2_regularization": 1.0,
        "early_stopping": False,
        "random_state": seed,
    }
