"""scikit-learn's 1,797 real 8x8 digits: nothing to download, small enough for any laptop.

No crowd labelled these images, so the agreement of an image's 15 nearest training neighbours with its label
stands in for human agreement. It depends on pixels and labels only, on none of our models. An image is hard
when agreement < 0.7, as in CIFAR-10H; half of the images are test, so that well over 60 of them are hard.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from calmoe.data.agreement import agreement_columns
from calmoe.data.card import DatasetCard
from calmoe.data.shift import ShiftDataset, Split, check_protocol
from calmoe.data.splits import last_rows_holdout, stratified_holdout

MEAN, STD = (0.3061,), (0.3759,)  # of the training rows
NEIGHBOURS = 15
SEED = 0


def load(data: Path | None = None, protocol: str = "corrected") -> ShiftDataset:
    """The digits; `data` is not needed. The test rows and their agreement are the same under both protocols.

    `corrected` validates on a stratified fifth of the training pool: a tenth would be 90 images with about
    3 errors, too few to fit a temperature. `published` validates on the pool's last tenth, in stored order.
    """
    augmented = check_protocol(protocol) == "published"
    pixels, labels = _stored()
    pool, test = stratified_holdout(labels, 0.5, SEED)
    train, validation = (
        last_rows_holdout(len(pool), 0.1) if augmented else stratified_holdout(labels[pool], 0.2, SEED)
    )
    images = torch.from_numpy((pixels * 255 / 16).round().astype(np.uint8).reshape(-1, 1, 8, 8))
    everything = Split(inputs=images, labels=torch.from_numpy(labels))
    return ShiftDataset(
        name="digits",
        train=everything.take(pool[train]),
        validation=everything.take(pool[validation]),
        test=replace(everything.take(test), groups=agreement_columns(_agreement())),
        class_names=tuple("0123456789"),
        mean=MEAN,
        std=STD,
        crop_padding=1,
        flip=False,
        hard="hard",
        protocol=protocol,
        validation_augmented=augmented,
        notes=() if data is None else (f"{data} is not read: the digits come with scikit-learn",),
    )


@cache
def _stored() -> tuple[np.ndarray, np.ndarray]:
    """Pixels from 0 to 16, and labels; read once, and never written to."""
    from sklearn.datasets import load_digits  # takes a second, and no other dataset needs it

    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels.astype(np.int64)  # pixels are whole numbers, and floats that hold them are exact


@cache
def _agreement() -> np.ndarray:
    """Of the test rows."""
    pixels, labels = _stored()
    pool, test = stratified_holdout(labels, 0.5, SEED)
    return neighbour_agreement(pixels[pool], labels[pool], pixels[test], labels[test])


def neighbour_agreement(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> np.ndarray:
    """Share of a test row's nearest training rows (Euclidean) with its label; ties go to earlier rows."""
    distances = (train**2).sum(1) - 2 * test @ train.T  # less the test row's own norm: the same order
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :NEIGHBOURS]
    return (train_labels[nearest] == test_labels[:, None]).mean(axis=1)


CARD = DatasetCard(
    load=load,
    get_it="digits comes with scikit-learn: there is nothing to download, `calmoe run digits`",
    hard="Hard on digits: images of whose 15 nearest training images, in pixels, less than 70 % bear their "
    "label. That share is what the figures call agreement; it stands in for people's.",
)
