"""Datasets with a shift, by name: `load_dataset("digits")`."""

import inspect
from collections.abc import Callable
from pathlib import Path

from calmoe.data import cifar10h, civilcomments, digits, domains, hatexplain, pacs
from calmoe.data.shift import PROTOCOLS, ShiftDataset, Split, check_protocol
from calmoe.errors import InputError, check_known

__all__ = ["DATASETS", "PROTOCOLS", "ShiftDataset", "Split", "check_protocol", "load_dataset"]

DATASETS: dict[str, Callable[..., ShiftDataset]] = {
    "digits": digits.load,
    "cifar10h": cifar10h.load,
    "pacs": pacs.load,
    "domains": domains.load,
    "civilcomments": civilcomments.load,
    "hatexplain": hatexplain.load,
}


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
    options |= {"encoder": encoder} if "encoder" in takes else {}
    return DATASETS[name](data, protocol, **options)
