"""Files, written whole or not at all, and only inside the folder that is meant."""

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from calmoe.errors import InputError, shown
from calmoe.escaping import visible

CACHE = ".calmoe-cache"
"""The folder, beside a dataset's files, for what is read from them once."""

TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}", re.DOTALL)
"""The names `writing_whole` gives while it writes: what a killed process may leave behind."""

LONGEST = 255 - len("..") - 16  # bytes of a name: its temporary name is that much longer


@contextmanager
def writing_whole(path: str | Path) -> Iterator[BinaryIO]:
    """A stream under a temporary name beside `path`, renamed at the end or, if anything fails, removed."""
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


def check_new(out: Path, endings: Sequence[str], what: str) -> None:
    """Refuse, before the work, a file that cannot be written, or is there."""
    if out.suffix not in endings:
        raise InputError(f"{legible(out)}: calmoe writes {what} as {', '.join(endings)}: end the name so")
    if not out.parent.is_dir():
        raise InputError(f"{legible(out)}: there is no folder {legible(out.parent)}: create it first")
    if os.path.lexists(out):
        raise InputError(f"{legible(out)} is there already: move it elsewhere, or give another --out")


def file_digest(path: Path) -> str:
    """SHA-256 of a file of any size."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def unfinished(name: str) -> str:
    """The final name behind a temporary name that `writing_whole` gave; "" for any other name.

    >>> unfinished(".audit.json.0123456789abcdef"), unfinished(".bashrc")
    ('audit.json', '')
    """
    temporary = TEMPORARY.fullmatch(name)
    return temporary[1] if temporary else ""


def leftovers(folder: Path, ours: Callable[[str], bool]) -> Iterator[Path]:
    """The half-written files of a killed process, if their final names are `ours`."""
    for path in sorted(folder.iterdir()):
        if ours(unfinished(path.name)) and path.is_file() and not path.is_symlink():
            yield path


def inside(folder: Path, *names: str) -> Path:
    """The path of these names in `folder`. Names that come from a file's content become paths only here.

    It refuses what may lead out of the folder, a name of several parts or a link, and what no file system
    takes as a name.

    >>> inside(Path("report"), "tables", "corrected.tex").as_posix()
    'report/tables/corrected.tex'
    >>> inside(Path("report"), "../../escaped")
    Traceback (most recent call last):
    calmoe.errors.InputError: '../../escaped' is no name for a file or folder in report
    """
    path = folder
    for name in names:
        if path != folder and os.path.lexists(path) and not path.is_dir():
            raise InputError(f"{legible(path)} is in the way: there must be a folder, or nothing")
        if not is_name(name):
            raise InputError(f"{shown(name)} is no name for a file or folder in {legible(folder)}")
        path = path / name
        if path.is_symlink():
            raise InputError(
                f"{legible(path)} is a link, which may lead out of its folder: put the file itself "
                "there, or link the whole folder"
            )
    return path


def is_name(name: str) -> bool:
    r"""Whether a file or folder can have this name without leaving the folder that it is put into.

    >>> [is_name(name) for name in ("sketch", "../sketch", "/sketch", "..", "", "\0", "s" * 256)]
    [True, False, False, False, False, False, False]
    """
    named = isinstance(name, str) and name not in ("", ".", "..") and not {"/", "\0"} & set(name)
    return named and is_utf8(name) and len(name.encode()) <= LONGEST


def open_regular(path: str | Path) -> BufferedReader:
    """Open a file on disk for reading; refuse links, and devices and pipes, which may have no end."""
    return _open(path, os.O_RDONLY)


def open_lock(path: Path) -> BufferedReader:
    """Open the file to lock, and create it if need be; refuse links and what is no file."""
    return _open(path, os.O_RDWR | os.O_CREAT)


def hold(handle: int, busy: str) -> None:
    """Lock an open file; where another process holds the lock, raise an InputError that says `busy`."""
    import fcntl  # Windows has none

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(busy) from None


def _open(path: str | Path, flags: int) -> BufferedReader:
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise InputError(f"{legible(path)} is a link and not a file") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{legible(path)} is no regular file")
    return os.fdopen(handle, "rb")


def is_utf8(text: str) -> bool:
    r"""Whether UTF-8 has the text: it has no lone surrogates, which JSON or bytes of other encodings leave.

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


def json_bytes(value: Any) -> bytes:
    """JSON in UTF-8; bytes of a path that are not UTF-8 become JSON's \\udc80 to \\udcff."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_whole(path, json_bytes(value))


def digest_of(value: Any) -> str:
    """The SHA-256 of a JSON document, whatever the order of its keys.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
