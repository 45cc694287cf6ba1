"""Datasets with a shift, by name: `load_dataset("digits")`."""

import inspect
from collections.abc import Callable
from pathlib import Path

from calmoe.data import cifar10h, civilcomments, digits, domains, hatexplain, pacs
from calmoe.data.shift import PROTOCOLS, ShiftDataset, Split, check_protocol
from calmoe.errors import InputError, check_known

__all__ = [
    "DATASETS",
    "PROTOCOLS",
    "ShiftDataset",
    "Split",
    "check_protocol",
    "is_text",
    "load_dataset",
    "needs_folder",
]

DATASETS: dict[str, Callable[..., ShiftDataset]] = {
    "digits": digits.load,
    "cifar10h": cifar10h.load,
    "pacs": pacs.load,
    "domains": domains.load,
    "civilcomments": civilcomments.load,
    "hatexplain": hatexplain.load,
}


def needs_folder(name: str) -> bool:
    """Whether the dataset is read from files of the user's.

    >>> needs_folder("pacs"), needs_folder("digits")
    (True, False)
    """
    return inspect.signature(DATASETS[name]).parameters["data"].default is inspect.Parameter.empty


def is_text(name: str) -> bool:
    """Whether the dataset's rows are token ids, for a text encoder.

    >>> is_text("hatexplain"), is_text("digits")
    (True, False)
    """
    return "encoder" in inspect.signature(DATASETS[name]).parameters


def load_dataset(
    name: str, data: Path | None = None, protocol: str = "corrected", target: str = "", encoder: str = ""
) -> ShiftDataset:
    """The dataset `name`, read from the folder `data`, split as `protocol` says.

    `target` is the domain to test on, for datasets that have several. `encoder` is the model whose tokenizer
    cuts texts, a folder or a hub name; datasets without texts do not look at it.

    >>> load_dataset("digits").num_classes
    10
    """
    check_known("dataset", name, DATASETS)
    takes = inspect.signature(DATASETS[name]).parameters
    if target and "target" not in takes:
        raise InputError(f"{name} has no domains to choose a target from: leave out the target")
    options = {"target": target} if target else {}
    options |= {"encoder": encoder} if is_text(name) else {}
    return DATASETS[name](data, protocol, **options)
