"""A dataset with a shift: three splits as tensors, the hard subset, how to augment and normalise."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calmoe.errors import InputError, check_known
from calmoe.files import digest_of
from calmoe.views import View, image_views

PROTOCOLS = ("corrected", "published")
BLOCK = 1024  # rows that are hashed at a time


def check_protocol(protocol: str) -> str:
    """The name of a protocol, checked."""
    check_known("protocol", protocol, PROTOCOLS)
    return protocol


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Rows, labels [N], and columns of length N by name.

    Rows are uint8 images [N,C,H,W], float features [N,...] or int32 token ids [N,L].

    >>> split = Split(inputs=torch.zeros(3, 2), labels=torch.tensor([0, 1, 1]))
    >>> len(split), len(split.take(split.labels == 1))
    (3, 2)
    """

    inputs: Tensor
    labels: Tensor
    groups: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.inputs.dtype not in (torch.uint8, torch.float32, torch.int32):
            raise InputError(
                f"rows must be uint8 images, float32 features or int32 tokens: got {self.inputs.dtype}"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != (len(self.inputs),):
            raise InputError(
                f"labels must be one int64 per row: got {self.labels.dtype} {list(self.labels.shape)} "
                f"for {len(self.inputs)} rows"
            )
        for name, column in self.groups.items():
            if column.shape != (len(self),) or column.dtype.kind not in "biufU":
                raise InputError(
                    f"group column {name!r} must hold one bool, number or string per row: "
                    f"got {column.dtype} {list(column.shape)} for {len(self)} rows"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Sequence[int] | np.ndarray | Tensor) -> "Split":
        """The rows at `indices` (or where a mask is true), in that order."""
        rows = torch.as_tensor(indices, device=self.labels.device)
        picked = rows.cpu().numpy()
        return Split(
            inputs=self.inputs[rows],
            labels=self.labels[rows],
            groups={name: column[picked] for name, column in self.groups.items()},
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ShiftDataset:
    """Train, validation and test, with the named hard subset of test; mean and std are for pixels in [0, 1].

    `validation_augmented` says that the protocol judges validation through the training augmentation, as the
    paper's does. It is part of the fingerprint and changes nothing here: models predict both ways.
    `one_training` says that both protocols train on the same rows: one run may be judged under each.
    `notes` tell the user how the data were read, a line each; they are not part of a fingerprint.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    crop_padding: int = 0
    flip: bool = False
    hard: str | None = None
    protocol: str = "corrected"
    validation_augmented: bool = False
    one_training: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_protocol(self.protocol)
        if self.hard is not None:
            column = self.test.groups.get(self.hard)
            if column is None or column.dtype.kind != "b":
                raise InputError(f"hard={self.hard!r} must name a boolean column of the test split's groups")
        for name, split in self.splits.items():
            if len(split) and not 0 <= int(split.labels.min()) <= int(split.labels.max()) < self.num_classes:
                raise InputError(f"{self.name}: a {name} label is outside 0..{self.num_classes - 1}")

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def images(self) -> bool:
        """Whether the inputs are uint8 images, to be augmented and normalised."""
        return self.train.inputs.dtype == torch.uint8

    @property
    def tokens(self) -> bool:
        """Whether the inputs are token ids, for a text encoder."""
        return self.train.inputs.dtype == torch.int32

    @property
    def views(self) -> tuple[View, ...]:
        """The copies that a prediction may pool: shifted, and mirrored where training mirrors too."""
        return image_views(self.input_shape[2], self.flip) if self.images else (View(),)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one row: (C, H, W) for images."""
        return tuple(self.train.inputs.shape[1:])

    def fingerprint(self) -> str:
        """SHA-256 over all contents and settings: the same on every machine and device."""
        return self._fingerprints[0]

    def training_fingerprint(self) -> str:
        """SHA-256 over what training sees: protocols that train on the same rows share it."""
        return self._fingerprints[1]

    @cached_property
    def _fingerprints(self) -> tuple[str, str]:
        splits = {name: _split_digest(split) for name, split in self.splits.items()}
        training = {
            "classes": self.class_names,
            "augmentation": [self.mean, self.std, self.crop_padding, self.flip],
            "train": splits["train"],
        }
        settings = [self.name, self.hard, self.protocol, self.validation_augmented]
        return digest_of([training, settings, splits]), digest_of(training)


def _split_digest(split: Split) -> str:
    columns = {"": split.inputs.cpu().numpy(), " labels": split.labels.cpu().numpy(), **split.groups}
    return digest_of({name: _array_digest(array) for name, array in columns.items()})


def _array_digest(array: np.ndarray) -> list[Any]:
    """Type, shape and SHA-256 of the rows; a block at a time, since images may lie in memory as [N,H,W,C]."""
    little = array.dtype.newbyteorder("<")
    digest = hashlib.sha256()
    for start in range(0, len(array), BLOCK):
        block = np.ascontiguousarray(array[start : start + BLOCK]).astype(little, copy=False)
        digest.update(block.reshape(-1).view(np.uint8).data)
    return [little.str, list(array.shape), digest.hexdigest()]
