"""Files are written whole or not at all."""

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from calmoe.errors import InputError
from calmoe.escaping import visible

CACHE = ".calmoe-cache"
"""The folder, beside a dataset's files, for what is read from them once."""

TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}")
"""The names `writing_whole` gives while it writes: what a killed process may leave behind."""


@contextmanager
def writing_whole(path: str | Path) -> Iterator[BinaryIO]:
    """A stream under a temporary name beside `path`, renamed at the end; if anything fails, it goes."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}: create it first")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as stream:  # unlike mkstemp's, its mode is what the umask allows
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_whole(path: str | Path, data: bytes) -> None:
    """Write `data` beside `path` under a temporary name, then rename: readers see all of it or none."""
    with writing_whole(path) as stream:
        stream.write(data)


def is_utf8(text: str) -> bool:
    r"""Whether it can be written: a lone surrogate, as JSON or bytes of another encoding leave it, cannot.

    >>> is_utf8("café"), is_utf8("\ud800")
    (True, False)
    """
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def legible(path: str | Path) -> str:
    r"""A path, or a command with paths, as text for pages: bytes that are not UTF-8 escaped.

    >>> print(legible(os.fsdecode(b"caf\xe9.csv")))
    caf\xe9.csv
    """
    return visible(os.fspath(path))


def write_json(path: str | Path, value: Any) -> None:
    """UTF-8; the bytes of a path that are not, as Python holds them, become JSON's \\udc80 to \\udcff."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, text.encode(errors="backslashreplace"))
