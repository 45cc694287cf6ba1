"""Datasets with a shift, by name: `load_dataset("digits")`. A dataset is a module with a `CARD`."""

from pathlib import Path

from calmoe.data import cifar10h, civilcomments, digits, domains, hatexplain, pacs
from calmoe.data.card import DatasetCard, check_card
from calmoe.data.shift import PROTOCOLS, ShiftDataset, Split, check_protocol
from calmoe.errors import InputError, refusal
from calmoe.registry import Registry, cause

__all__ = [
    "DATASETS",
    "PROTOCOLS",
    "DatasetCard",
    "ShiftDataset",
    "Split",
    "check_protocol",
    "load_dataset",
]

DATASETS = Registry(
    "dataset",
    "calmoe.datasets",
    {
        "digits": digits.CARD,
        "cifar10h": cifar10h.CARD,
        "pacs": pacs.CARD,
        "domains": domains.CARD,
        "civilcomments": civilcomments.CARD,
        "hatexplain": hatexplain.CARD,
    },
    check_card,
)


def load_dataset(
    name: str, data: Path | None = None, protocol: str = "corrected", target: str = "", encoder: str = ""
) -> ShiftDataset:
    """The dataset `name`, read from the folder `data`, split as `protocol` says.

    `target` is the domain to test on, for datasets that have several. `encoder` is the model whose tokenizer
    cuts texts, a folder or a hub name; datasets without texts do not look at it.

    >>> load_dataset("digits").num_classes
    10
    """
    card = DATASETS.here(name)
    if target and not card.has_targets:
        raise InputError(f"{name} has no domains to choose a target from: leave out the target")
    options = {"target": target} if target else {}
    options |= {"encoder": encoder} if card.is_text else {}
    dataset = _loaded(name, card, data, protocol, options)
    if dataset.name not in (name, f"{name}-{target}"):
        raise InputError(f"the dataset {name} calls itself {dataset.name!r}: give it its own name")
    return dataset


def _loaded(
    name: str, card: DatasetCard, data: Path | None, protocol: str, options: dict[str, str]
) -> ShiftDataset:
    """What the card loads; a mistake in a plug-in's code is one line."""
    origin = DATASETS.origin(name)
    if origin is None:
        return card.load(data, protocol, **options)
    try:
        dataset = card.load(data, protocol, **options)
    except (InputError, OSError):
        raise
    except Exception as error:
        raise InputError(f"the dataset {name!r} of {origin.where} does not load: {cause(error)}") from None
    if type(dataset) is not ShiftDataset:  # a subclass may hold what its fingerprint does not know
        raise refusal(f"what the dataset {name!r} of {origin.where} loads", "a ShiftDataset", dataset)
    return dataset
