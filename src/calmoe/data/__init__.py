"""Datasets with a shift, by name: `load_dataset("digits")`."""

from collections.abc import Callable
from pathlib import Path

from calmoe.data import cifar10h, digits
from calmoe.data.shift import PROTOCOLS, ShiftDataset, Split, check_protocol
from calmoe.errors import check_known

__all__ = ["DATASETS", "PROTOCOLS", "ShiftDataset", "Split", "check_protocol", "load_dataset"]

DATASETS: dict[str, Callable[[Path | None, str], ShiftDataset]] = {
    "digits": digits.load,
    "cifar10h": cifar10h.load,
}


def load_dataset(name: str, data: Path | None = None, protocol: str = "corrected") -> ShiftDataset:
    """The dataset `name`, read from the folder `data`, split as `protocol` says.

    >>> load_dataset("digits").num_classes
    10
    """
    check_known("dataset", name, DATASETS)
    return DATASETS[name](data, protocol)
