"""Predictions from anywhere: files and tables with columns of any name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calmoe.errors import InputError, about
from calmoe.formats import Columns, asked, read_table, table_in_memory
from calmoe.predictions import Predictions, assemble

__all__ = ["read_predictions"]


def read_predictions(
    source: Any,
    *,
    label: str | None = None,
    probs: str | Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
    positive: Any = None,
    routing: Any = None,
    experts: str | Sequence[str] | None = None,
    groups: str | Sequence[str] | None = None,
    logits: bool = False,
    routing_logits: bool = False,
    limit: int | None = None,
) -> Predictions:
    """Read predictions that other tools made: a file (safetensors, npz, csv, parquet) or a table in memory.

    Names that leave no doubt need no option: those that calmoe uses; columns named like the labels' values,
    with or without `prob_`, `p_` or `proba_` before them; a lone `y_score`. `metadata["read_as"]` says in one
    line how the columns were read, `metadata["classes"]` what the classes are called.

    Args:
        source: A path, a DataFrame (pandas, polars, anything that speaks Arrow) or a dict of arrays.
        label: The column of labels: class names, or numbers.
        probs: The columns of probabilities, one a class; one alone is about the positive class of two.
        classes: Names of the classes, in the order of the probabilities.
        positive: The class that a lone column of probabilities is about.
        routing: The columns of the router's weights, or one weight an expert for all rows.
        experts: The experts' columns, expert first, then class; or how their names begin, one an expert.
        groups: The columns to keep as groups; all that are left by default.
        logits: Whether probabilities and experts are given before the softmax.
        routing_logits: Whether the routing is given before the softmax.
        limit: The bytes of memory that the file may unpack to, as in `Predictions.load`.

    Returns:
        The predictions, checked.

    Example:
        >>> table = {"y": ["dog", "cat"], "p_cat": [0.2, 0.9], "p_dog": [0.8, 0.1]}
        >>> predictions = read_predictions(table, label="y")
        >>> predictions.labels, predictions.metadata["classes"]
        (tensor([1, 0]), ['cat', 'dog'])
    """
    return read_with(
        source,
        asked(
            label=label,
            probs=probs,
            classes=classes,
            positive=positive,
            routing=routing,
            experts=experts,
            groups=groups,
            logits=logits,
            routing_logits=routing_logits,
        ),
        limit,
    )


def read_with(source: Any, columns: Columns, limit: int | None = None) -> Predictions:
    """As `read_predictions`, with options that were checked before."""
    if isinstance(source, Predictions):
        raise InputError("these are Predictions already: nothing to read")
    if isinstance(source, str | Path):
        with about(source):
            return assemble(read_table(Path(source), limit, columns))
    return assemble(table_in_memory(source, columns, limit))
