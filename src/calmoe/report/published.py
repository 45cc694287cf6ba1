"""What the paper published: its tables, what their ± means, with which backbones, and the targets' names."""

import math
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from calmoe.errors import InputError

SEEDS = 5


def published(dataset: str) -> dict[str, Any]:
    """A published table: `table`, `caption`, and `cells[method][column] = [mean, ±]` as printed.

    PACS has a table for each target, such as "pacs_sketch". "eta_gamma" has `rows` in place of cells.

    >>> published("cifar10h")["cells"]["vanilla"]["ece"]
    [0.055, 0.001]
    """
    tables = _tables()
    if dataset not in tables:
        raise InputError(f"the paper has no table for {dataset!r}: choose one of {', '.join(tables)}")
    table: dict[str, Any] = tables[dataset]
    return table


def standard_error(printed: float) -> float:
    """The standard error of a published mean, from its printed ±: the seeds' np.std, which has ddof 0.

    s² = ±² n / (n − 1) is the unbiased variance, and s / √n = ± / √(n − 1) the error: half of ± for 5 seeds.

    >>> standard_error(0.019)
    0.0095
    """
    return printed / math.sqrt(SEEDS - 1)


def table_of(dataset: str, target: str = "") -> str:
    """The name of the published table for these data, if the paper has one.

    >>> table_of("pacs", "art_painting")
    'pacs_art'
    """
    return f"{dataset}_{target.partition('_')[0]}" if target else dataset


def is_published(dataset: str) -> bool:
    """Whether the paper has a table of methods for `dataset`."""
    return "cells" in _tables().get(dataset, {})


def backbone_note(table: str, backbone: str, pretrained: bool) -> str:
    """A caption's clause about a backbone that is not the paper's; empty where it is, or none is published.

    >>> backbone_note("pacs_sketch", "ResNet-50 v1", True), backbone_note("pacs_sketch", "ResNet-18", True)
    ('ResNet-50 v1 (the paper: ResNet-18)', '')
    >>> backbone_note("pacs_sketch", "ResNet-18", False)
    'ResNet-18, from scratch (the paper: ResNet-18, pretrained)'
    """
    known = _tables().get(table, {})
    if "backbone" not in known:
        return ""
    paper, as_there = known["backbone"], known.get("pretrained", False)
    if pretrained != as_there:
        starts = {True: "pretrained", False: "from scratch"}
        return f"{backbone}, {starts[pretrained]} (the paper: {paper}, {starts[as_there]})"
    same = paper.lower() in backbone.lower()  # DistilBERT's files are called distilbert-base-uncased
    return "" if same else f"{backbone} (the paper: {paper})"


def target_titles(dataset: str, targets: Iterable[str]) -> dict[str, str]:
    """The title of each target, in the paper's order and words; targets that it lacks follow by name.

    >>> target_titles("pacs", ["art_painting", "sketch", "photo"])
    {'photo': 'Photo', 'art_painting': 'Art', 'sketch': 'Sketch'}
    """
    tables = list(_tables())

    def place(target: str) -> tuple[int, str]:
        table = table_of(dataset, target)
        return (tables.index(table) if table in tables else len(tables)), target

    return {t: _tables().get(table_of(dataset, t), {}).get("columns", t) for t in sorted(targets, key=place)}


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "published.toml").read_text("utf-8"))
