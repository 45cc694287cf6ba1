"""Texts as rows of token ids, for the encoder that will read them; tokenised once, then read from a cache."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from calmoe.errors import InputError
from calmoe.files import CACHE, write_whole
from calmoe.text_encoders import (
    PADDING,
    encoder_folder,
    files_digest,
    load_tokenizer,
    reading,
    tokenizer_files,
    transformers,
)

LENGTH = 128  # tokens of a row, as in the paper: longer texts are cut, shorter ones filled up
CHUNK = 10_000
LEAST_TRAINING = 10  # rows


def token_ids(texts: Sequence[str], encoder: str, cache: Path | None = None) -> Tensor:
    """Ids [N, 128], int32, by the tokenizer of `encoder`, a folder or a hub name; PADDING after a text's end.

    The folder `cache` keeps them for the next time with the same texts and the same tokenizer.
    """
    if not encoder:
        raise InputError(
            "text needs an encoder: give a folder with a model and its tokenizer, or its name on the Hugging "
            "Face hub, with --set weights=DIR"
        )
    folder = encoder_folder(encoder)
    files = tokenizer_files(folder)
    with transformers():
        library = metadata.version("transformers")
    contents = [hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest(), files_digest(files)]
    key = hashlib.sha256(json.dumps([*contents, LENGTH, library]).encode()).hexdigest()[:32]
    kept = cache is not None and not (cache / CACHE).is_symlink()  # a link may lead out of the data's folder
    cached = cache / CACHE / f"tokens-{key}.safetensors" if cache is not None and kept else None
    ids = _read(cached, len(texts), folder) if cached is not None else None
    if ids is None:
        ids = _tokenise(texts, folder)
        if cached is not None:
            _write(cached, ids)
    return ids


def check_rows(path: Path, rows: dict[str, int]) -> None:
    """Refuse splits, by name, with too few rows: training needs 10, every other split one."""
    least = {name: LEAST_TRAINING if name == "train" else 1 for name in rows}
    if any(rows[name] < least[name] for name in rows):
        given, needed = (
            ", ".join(f"{n} of {name}" for name, n in counts.items()) for counts in (rows, least)
        )
        raise InputError(f"{path} has too few rows by split, {given}: it needs at least {needed}")


def text_notes(texts: Sequence[str]) -> tuple[str, ...]:
    """A note on how many texts are empty; they are rows like the others.

    >>> text_notes(["good", " "])
    ('1 of 2 texts is empty',)
    """
    empty = sum(not text.strip() for text in texts)
    return (f"{empty} of {len(texts)} texts {'is' if empty == 1 else 'are'} empty",) if empty else ()


def check_classes(path: Path, labels: np.ndarray, names: Sequence[str]) -> None:
    """Refuse training rows of one class only: nothing can be learned from them."""
    present = [names[label] for label in np.unique(labels)]
    if len(present) < 2:
        raise InputError(
            f"{path}: all {len(labels)} training rows are {present[0]}; it takes {' and '.join(names)} ones"
        )


def _tokenise(texts: Sequence[str], folder: Path) -> Tensor:
    tokenizer = load_tokenizer(folder)
    with reading(f"the tokenizer in {folder}"):
        ids = torch.full((len(texts), LENGTH), PADDING, dtype=torch.int32)
        for start in range(0, len(texts), CHUNK):
            part = list(texts[start : start + CHUNK])
            rows = tokenizer(part, truncation=True, max_length=LENGTH)["input_ids"]
            for row, tokens in zip(ids[start : start + CHUNK], rows, strict=True):
                row[: len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
    return ids


def _write(path: Path, ids: Tensor) -> None:
    """Keep the ids for the next time, if the folder can be written."""
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        write_whole(path, safetensors.torch.save({"ids": ids}, {"sha256": _digest(ids)}))


def _read(path: Path, rows: int, folder: Path) -> Tensor | None:
    """Cached ids of the folder's tokenizer; None where there are none, or where the file is damaged."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            ids, digest = file.get_tensor("ids"), (file.metadata() or {}).get("sha256")
    except (OSError, safetensors.SafetensorError):
        return None
    if ids.shape != (rows, LENGTH) or ids.dtype != torch.int32 or _digest(ids) != digest:
        return None
    known = max(load_tokenizer(folder).get_vocab().values())
    return ids if rows == 0 or (ids.min() >= PADDING and ids.max() <= known) else None


def _digest(ids: Tensor) -> str:
    return hashlib.sha256(ids.numpy().tobytes()).hexdigest()
