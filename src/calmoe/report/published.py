"""The cells the paper published, and where they stand in it."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from calmoe.errors import InputError


def published(dataset: str) -> dict[str, Any]:
    """A published table: `table`, `caption`, and `cells[method][column] = [mean, standard error]`.

    PACS has a table a target, "pacs_sketch". "eta_gamma" has `rows` in place of cells.

    >>> published("cifar10h")["cells"]["vanilla"]["ece"]
    [0.055, 0.001]
    """
    tables = _tables()
    if dataset not in tables:
        raise InputError(f"the paper has no table for {dataset!r}: choose one of {', '.join(tables)}")
    table: dict[str, Any] = tables[dataset]
    return table


def table_of(dataset: str, target: str = "") -> str:
    """The name that a published table of these data would have.

    >>> table_of("pacs", "art_painting")
    'pacs_art'
    """
    return f"{dataset}_{target.partition('_')[0]}" if target else dataset


def is_published(dataset: str) -> bool:
    """Whether the paper has a table of methods for `dataset`."""
    return "cells" in _tables().get(dataset, {})


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "published.toml").read_text("utf-8"))
