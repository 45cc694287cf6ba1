"""Seals: a JSON document that carries its own digest, and a `done.json` that vouches for its folder."""

import hashlib
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from calmoe.errors import InputError
from calmoe.files import digest_of, is_name, legible, open_regular, write_json
from calmoe.validation import read_document

MARK = "done.json"
LARGEST = 16 * 2**30  # bytes of a file that is sealed
SMALL = 2**20


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write `value` with its digest."""
    write_json(path, {**value, "digest": digest_of(value)})


def read_sealed(path: Path) -> dict[str, Any]:
    """What `write_sealed` wrote; an InputError if anything in it has changed since."""
    try:
        value = read_document(path)
    except InputError as error:
        raise InputError(f"{legible(path)} is damaged") from error
    if not isinstance(value, dict) or value.pop("digest", None) != digest_of(value):
        raise InputError(f"{legible(path)} is damaged")
    return value


def seal(folder: Path, names: Iterable[str], **facts: Any) -> None:
    """Mark the folder done: `done.json` holds the digest of every named file."""
    files = {name: file_digest(folder / name) for name in sorted(names)}
    write_sealed(folder / MARK, {**facts, "files": files})


def read_seal(folder: Path, names: Collection[str] = (), **facts: Any) -> dict[str, Any] | None:
    """The folder's mark, if it is intact, states these facts, and every file it names is as it was.

    It must name the files `names`, and none that lies elsewhere.
    """
    try:
        mark = read_sealed(folder / MARK)
        files = mark.get("files")
        if not isinstance(files, dict) or not files.keys() >= {*names}:
            return None
        whole = all(is_name(n) and file_digest(f"{folder}/{n}") == digest for n, digest in files.items())
    except (OSError, InputError):
        return None
    return mark if whole and all(mark.get(name) == value for name, value in facts.items()) else None


def file_digest(path: str | Path) -> str:
    """The SHA-256 of a file; links are refused."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > LARGEST:
            raise InputError(f"{path} is larger than any file that calmoe seals")
        if size < SMALL:  # `file_digest` takes longer to make its buffer than to read
            return hashlib.sha256(stream.read()).hexdigest()
        return hashlib.file_digest(stream, "sha256").hexdigest()
