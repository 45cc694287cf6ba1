"""Datasets with a shift, by name: `load_dataset("digits")`. A dataset is a module with a `CARD`."""

from pathlib import Path

from calmoe.data import cifar10h, civilcomments, digits, domains, hatexplain, pacs
from calmoe.data.card import DatasetCard
from calmoe.data.shift import PROTOCOLS, ShiftDataset, Split, check_protocol
from calmoe.errors import InputError, check_known

__all__ = [
    "DATASETS",
    "PROTOCOLS",
    "DatasetCard",
    "ShiftDataset",
    "Split",
    "check_protocol",
    "load_dataset",
]

DATASETS: dict[str, DatasetCard] = {
    "digits": digits.CARD,
    "cifar10h": cifar10h.CARD,
    "pacs": pacs.CARD,
    "domains": domains.CARD,
    "civilcomments": civilcomments.CARD,
    "hatexplain": hatexplain.CARD,
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
    card = DATASETS[name]
    if target and not card.has_targets:
        raise InputError(f"{name} has no domains to choose a target from: leave out the target")
    options = {"target": target} if target else {}
    options |= {"encoder": encoder} if card.is_text else {}
    dataset = card.load(data, protocol, **options)
    if dataset.name not in (name, f"{name}-{target}"):
        raise InputError(f"the dataset {name} calls itself {dataset.name!r}: give it its own name")
    return dataset
