"""CIFAR-10 in both official layouts, with CIFAR-10H's human labels for the test images.

Both protocols train on the first 90 % of the rows in stored order (CIFAR-10's order is random), so one set of
trained models serves both; they differ in whether validation passes through the training augmentation.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from calmoe.data.agreement import agreement_columns
from calmoe.data.card import DatasetCard, given_folder
from calmoe.data.safe_pickle import read_plain
from calmoe.data.shift import ShiftDataset, Split, check_protocol
from calmoe.data.splits import last_rows_holdout
from calmoe.errors import InputError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS = 3 * 32 * 32
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST_BATCH = "test_batch"
COUNTS, PROBABILITIES = "cifar10h-counts.npy", "cifar10h-probs.npy"
GET_IT = "get it with `calmoe data cifar10h --to DIR`"
MD5 = {
    BINARY: {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    PYTHON: {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
}


OFFICIAL_ROWS = 10_000


def load(data: Path | None, protocol: str = "corrected") -> ShiftDataset:
    """CIFAR-10H from the folder `data`; a note names a batch that differs from the official one."""
    augmented = check_protocol(protocol) == "published"
    root = given_folder("cifar10h", data, GET_IT)
    folder = find_images(root)
    batches = {name: read_batch(folder, name) for name in BATCHES}
    _refuse_cut(folder, {name: len(labels) for name, (_, labels) in batches.items()})
    pool = _joined(list(batches.values()))
    test = _joined([read_batch(folder, TEST_BATCH)])
    train, validation = last_rows_holdout(len(pool), 0.1)
    return ShiftDataset(
        name="cifar10h",
        train=pool.take(train),
        validation=pool.take(validation),
        test=replace(test, groups=human_columns(root, len(test))),
        class_names=CLASSES,
        mean=MEAN,
        std=STD,
        crop_padding=4,
        flip=True,
        hard="hard",
        protocol=protocol,
        one_training=True,
        validation_augmented=augmented,
        notes=_notes(folder, len(pool) + len(test)),
    )


def _notes(folder: Path, rows: int) -> tuple[str, ...]:
    """A note on files as long as CIFAR-10's that differ from it; shorter ones are the user's own. 0.4 s."""
    if rows != OFFICIAL_ROWS * len(MD5[folder.name]):
        return ()
    try:
        check_images(folder)
    except InputError as error:
        return (f"{error}, if it is to be CIFAR-10's",)
    return ()


def _refuse_cut(folder: Path, rows: dict[str, int]) -> None:
    """Refuse a short batch among batches as long as CIFAR-10's: it was cut at the end of a row."""
    short = [name for name, count in rows.items() if count != OFFICIAL_ROWS]
    if short and OFFICIAL_ROWS in rows.values():
        raise InputError(
            f"{folder / short[0]} has {rows[short[0]]:,} rows instead of {OFFICIAL_ROWS:,}: "
            f"delete it and {GET_IT}"
        )


def find_images(data: Path) -> Path:
    """The folder in `data` with the batch files: the binary layout if it is there, else the Python one."""
    if not data.is_dir():
        raise InputError(f"there is no folder {data}: give the one with {BINARY}/ in it, or {GET_IT}")
    for layout in (BINARY, PYTHON):
        if (data / layout).is_dir():
            return data / layout
    for unfinished in sorted(data.glob("cifar-10-*.tar.gz*")):
        raise InputError(f"{unfinished} is not unpacked: finish with `calmoe data cifar10h --to {data}`")
    raise InputError(f"{data} has neither {BINARY}/ nor {PYTHON}/: {GET_IT}")


def check_images(folder: Path) -> None:
    """Compare every batch file in a layout's folder with its official checksum."""
    for name, md5 in MD5[folder.name].items():
        with _present(folder / name).open("rb") as stream:
            if hashlib.file_digest(stream, "md5").hexdigest() != md5:
                raise InputError(f"{folder / name} differs from the official file: delete it and {GET_IT}")


def read_batch(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [N,3,32,32] and labels [N] of one batch file, both uint8."""
    read = _read_binary if folder.name == BINARY else _read_python
    path = _present(folder / (name + ".bin" if folder.name == BINARY else name))
    images, labels = read(path)
    if len(labels) and labels.max() >= len(CLASSES):
        raise InputError(f"{path} has a label {labels.max()} where 0..9 are possible: delete it and {GET_IT}")
    return images.reshape(-1, 3, 32, 32), labels


def _read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one label byte and 3,072 pixel bytes."""
    rows, rest = divmod(path.stat().st_size, 1 + PIXELS)
    if rest or not rows:
        raise InputError(
            f"{path} is truncated: {path.stat().st_size:,} bytes are not whole rows of {1 + PIXELS:,}; "
            f"delete it and {GET_IT}"
        )
    table = np.fromfile(path, np.uint8).reshape(rows, 1 + PIXELS)
    return table[:, 1:], table[:, 0]


def _read_python(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A dict with `data`, uint8 [N, 3072], and `labels`, a list of N numbers."""
    content = read_plain(path)
    named = {_text(key): value for key, value in content.items()} if isinstance(content, dict) else {}
    images, labels = named.get("data"), named.get("labels")
    if not (isinstance(images, np.ndarray) and isinstance(labels, list)):
        raise InputError(f"{path} is not a CIFAR-10 batch: it has no `data` and `labels`; {GET_IT}")
    whole = all(type(label) is int and 0 <= label < 256 for label in labels)
    if images.shape != (len(labels), PIXELS) or not labels or not whole:
        raise InputError(f"{path} is damaged: its `data` and `labels` do not match; delete it and {GET_IT}")
    return images, np.array(labels, np.uint8)


def human_columns(data: Path, rows: int) -> dict[str, np.ndarray]:
    """The test images' columns: agreement = max(counts) / sum(counts), and the humans' distribution."""
    votes = _read_votes(data, rows)
    distribution = votes / votes.sum(axis=1, keepdims=True)
    humans = {f"human_{label}": distribution[:, label] for label in range(len(CLASSES))}
    return {**agreement_columns(distribution.max(axis=1)), **humans}


def _read_votes(data: Path, rows: int) -> np.ndarray:
    """CIFAR-10H's counts [N,10], or its probabilities where there are no counts."""
    path = data / COUNTS
    if not path.exists() and (data / PROBABILITIES).exists():
        path = data / PROBABILITIES
    _present(path)
    try:
        stored = np.lib.format.open_memmap(path, mode="r")  # a shape that the file cannot hold is refused
    except Exception:  # damage may raise anything
        raise InputError(f"{path} is not a whole .npy file of numbers: delete it and {GET_IT}") from None
    if stored.shape != (rows, len(CLASSES)) or stored.dtype.kind not in "iuf":
        raise InputError(f"{path} must hold {rows} x 10 numbers, one row per test image: got {stored.shape}")
    votes = np.array(stored, np.float64)
    if not (np.isfinite(votes).all() and (votes >= 0).all() and (votes.sum(axis=1) > 0).all()):
        raise InputError(f"{path} has a negative number or a row without votes: delete it and {GET_IT}")
    return votes


def _joined(batches: list[tuple[np.ndarray, np.ndarray]]) -> Split:
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return Split(inputs=torch.from_numpy(images), labels=torch.from_numpy(labels.astype(np.int64)))


def _present(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path} is missing: {GET_IT}")
    return path


def _text(key: object) -> object:
    return key.decode("latin-1") if isinstance(key, bytes) else key


def fetch(to: Path) -> Path:
    """Download images and votes into the folder `to`, verified."""
    from calmoe.data.download import fetch_cifar10h  # it reads this module

    return fetch_cifar10h(to)


CARD = DatasetCard(
    load=load,
    get_it=GET_IT,
    fetch=fetch,
    hard="Hard on CIFAR-10H: images on which less than 70 % of the people asked agree. That share is what "
    "the figures call agreement.",
)
