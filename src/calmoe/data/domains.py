"""Images in folders, DIR/domain/class/image: train on all domains but one, test on that one.

PACS, Office-Home, VLCS, TerraIncognita and DomainNet come in this layout. Rows are stored domain by domain
and class by class, both by name: the order in which the paper's code reads them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from calmoe.data.card import DatasetCard
from calmoe.data.image_cache import decoded
from calmoe.data.image_folders import (
    NO_IMAGES,
    Layout,
    deeper,
    empty_folders,
    find_images,
    image_folder,
    layout_notes,
    unpacked,
)
from calmoe.data.shift import ShiftDataset, Split, check_protocol
from calmoe.data.splits import last_rows_holdout, stratified_holdout
from calmoe.errors import InputError, check_known

SIZE = 224
HELD_OUT = 0.1
FEWEST_IMAGES = 10  # images to train and validate on: the last tenth of fewer is none
SEED = 0
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's


def load(data: Path | None, protocol: str = "corrected", target: str = "", size: int = SIZE) -> ShiftDataset:
    """Any dataset of at least two domains; a domain need not have every class."""
    root = image_folder("domains", data)
    layout = find_images(root)
    if len(layout) < 2:
        names, empty = ", ".join(layout) or "none", empty_folders(root)
        raise InputError(
            f"{root} needs at least two domains, in folders DIR/domain/class/image: found {names}"
            + (deeper(root) or (f"; {empty[0]} {NO_IMAGES}" if empty else ""))
        )
    return leave_one_out("domains", root, layout, protocol, target, size)


def leave_one_out(
    name: str, root: Path, layout: Layout, protocol: str, target: str, size: int
) -> ShiftDataset:
    """Train and validate on all domains but `target`, test on all of `target`.

    `corrected` validates on a tenth of every class in every domain, `published` on the last tenth of rows.
    """
    augmented = check_protocol(protocol) == "published"
    classes = _checked_classes(name, root, layout, target)
    sources = [domain for domain in layout if domain != target]
    labels = {domain: _labels(images, classes) for domain, images in layout.items()}
    pool, origin = np.concatenate([labels[d] for d in sources]), _origin([len(labels[d]) for d in sources])
    few = f"{root} has too few images for validation: {len(pool)} outside of {target}"
    if len(pool) < FEWEST_IMAGES:
        raise InputError(f"{few}, at least {FEWEST_IMAGES} are needed")
    train, validation = (
        last_rows_holdout(len(pool), HELD_OUT)
        if augmented
        else stratified_holdout(origin * len(classes) + pool, HELD_OUT, SEED)
    )
    if not len(validation):
        raise InputError(f"{few}, each alone in its class and domain: at least two are needed there")
    pixels, seen = _decoded_parts(root, layout, sources, (train, validation), size)
    tested, digests = decoded(root, target, _files(layout, target), size)

    def split(rows: np.ndarray, pixels: np.ndarray) -> Split:
        return Split(
            inputs=_tensor(pixels),
            labels=torch.from_numpy(pool[rows]),
            groups={"domain": np.array(sources)[origin[rows]], "class": np.array(classes)[pool[rows]]},
        )

    return ShiftDataset(
        name=f"{name}-{target}",
        train=split(train, pixels[0]),
        validation=split(validation, pixels[1]),
        test=Split(
            inputs=_tensor(tested),
            labels=torch.from_numpy(labels[target]),
            groups={"class": np.array(classes)[labels[target]]},
        ),
        class_names=tuple(classes),
        mean=MEAN,
        std=STD,
        crop_padding=size // 8,
        flip=True,
        protocol=protocol,
        validation_augmented=augmented,
        notes=(*layout_notes(root, layout), *_seen_before(target, digests, seen)),
    )


def _checked_classes(name: str, root: Path, layout: Layout, target: str) -> list[str]:
    """The classes of all domains, by name; refused where nothing can be trained for the target."""
    if not target:
        raise InputError(f"{name} needs a domain to test on: give --target, one of {', '.join(layout)}")
    if target in empty_folders(root):
        raise InputError(f"{root / target} {NO_IMAGES}: give another --target, one of {', '.join(layout)}")
    check_known(f"domain of {root}", target, layout)
    classes = sorted({label for images in layout.values() for label in images})
    if len(classes) < 2:
        raise InputError(
            f"{root} needs at least two classes, in folders DIR/domain/class: found {classes[0]}"
        )
    learned = {label for domain, images in layout.items() if domain != target for label in images}
    _check_learnable(root, target, layout, learned)
    return classes


def _check_learnable(root: Path, target: str, layout: Layout, learned: set[str]) -> None:
    """Refuse a target with a class that no other domain has: it cannot be learned."""
    unknown = [label for label in layout[target] if label not in learned]
    if unknown:
        named = f"class{'es' * (len(unknown) > 1)} {', '.join(unknown[:5])}{', …' * (len(unknown) > 5)}"
        raise InputError(
            f"only the target has {named}, in {root / target}, which cannot be learned: rename or remove "
            "what is not a class of the other domains; names are case-sensitive"
        )


def _labels(images: dict[str, list[Path]], classes: list[str]) -> np.ndarray:
    return np.repeat([classes.index(name) for name in images], [len(files) for files in images.values()])


def _origin(counts: list[int]) -> np.ndarray:
    """The domain's number for every row of the pool."""
    return np.repeat(np.arange(len(counts)), counts)


def _files(layout: Layout, domain: str) -> list[Path]:
    return [file for files in layout[domain].values() for file in files]


def _decoded_parts(
    root: Path, layout: Layout, sources: Sequence[str], parts: Sequence[np.ndarray], size: int
) -> tuple[list[np.ndarray], dict[str, set[str]]]:
    """The pixels of each part's rows, [n, H, W, C], and by domain the digests of its files.

    A domain at a time, each image copied once: all of them may fill the memory.
    """
    pixels = [np.empty((len(rows), size, size, 3), np.uint8) for rows in parts]
    seen: dict[str, set[str]] = {}
    first = 0
    for domain in sources:
        images, digests = decoded(root, domain, _files(layout, domain), size)
        seen[domain] = set(digests)
        for rows, into in zip(parts, pixels, strict=True):
            start, end = np.searchsorted(rows, [first, first + len(images)])
            np.take(images, rows[start:end] - first, axis=0, out=into[start:end], mode="clip")
        first += len(images)
    return pixels, seen


def _seen_before(target: str, digests: list[str], seen: dict[str, set[str]]) -> Iterator[str]:
    """A note on images of the target that a source domain has as well.

    >>> next(_seen_before("photo", ["1", "2"], {"clipart": {"2"}, "sketch": {"3"}})).partition(" (")[0]
    '1 of 2 images of photo is also in clipart'
    """
    shared = {domain: files for domain, files in seen.items() if not files.isdisjoint(digests)}
    if shared:
        count = sum(any(digest in files for files in shared.values()) for digest in digests)
        yield (
            f"{count} of {len(digests)} images of {target} {'is' if count == 1 else 'are'} also in "
            f"{', '.join(shared)} (the same file, byte for byte): results on them are not of an unseen domain"
        )


def _tensor(pixels: np.ndarray) -> torch.Tensor:
    """[N,H,W,C] in memory, as the trainer wants it, seen as [N,C,H,W]."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


CARD = DatasetCard(load=load, get_it=unpacked("domains"))
