"""Downloads that resume, are verified before they get their name, and say what to do when they fail."""

import hashlib
import http.client
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
from rich.progress import DownloadColumn, Progress, TimeRemainingColumn

from calmoe.data import cifar10h
from calmoe.data.agreement import HARD_BELOW
from calmoe.errors import InputError
from calmoe.progress_bar import progress_bar

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
CIFAR10H_URL = "https://github.com/jcpeterson/cifar-10h/raw/master/data/cifar10h-counts.npy"
CHUNK = 1 << 18
TIMEOUT = 30.0
NETWORK_ERRORS = (URLError, http.client.HTTPException, ConnectionError, TimeoutError)


def download(
    url: str,
    to: Path,
    md5: str | None = None,
    progress: Progress | None = None,
    check: Callable[[Path], bool] | None = None,
) -> Path:
    """Fetch `url` to the file `to`, which appears only once its md5 and `check` are right.

    A download that was cut stays in `NAME.part`, and the next call continues it.
    """
    if to.is_file() and _is_right(to, md5, check):
        return to
    part = to.with_name(to.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        _fetch(url, part, to, progress)
        if not _is_right(part, md5, check):
            part.unlink()
            raise InputError(
                f"{url} did not give the expected file (wrong checksum or content), so it was removed: "
                f"run the command again, or fetch it by hand and put it at {to}"
            )
        os.replace(part, to)
    except OSError as error:
        raise InputError(f"cannot write {part}: {error.strerror or error}") from None
    return to


def fetch_cifar10h(to: Path) -> Path:
    """Fetch CIFAR-10 (binary layout) and CIFAR-10H's counts into the folder `to`; correct files stay."""
    with progress_bar(DownloadColumn(), TimeRemainingColumn()) as progress:
        if not _has_images(to):
            archive = download(CIFAR10_URL, to / CIFAR10_URL.rpartition("/")[2], CIFAR10_MD5, progress)
            _unpack(archive, to)
            archive.unlink()
        download(CIFAR10H_URL, to / cifar10h.COUNTS, progress=progress, check=are_cifar10h_counts)
    return to


def are_cifar10h_counts(path: Path) -> bool:
    """Whether `path` holds CIFAR-10H: 10,000 x 10 counts, about 511,400 votes, 327 images under 0.7."""
    try:
        counts = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError):
        return False
    if counts.shape != (10_000, 10) or counts.dtype.kind not in "iuf":
        return False
    if not ((counts >= 0) & (counts == np.round(counts))).all():
        return False
    votes = counts.sum(axis=1)
    if votes.min() <= 0 or abs(votes.sum() - 511_400) > 1_000:
        return False
    return int((counts.max(axis=1) / votes < HARD_BELOW).sum()) == 327


def _fetch(url: str, part: Path, to: Path, progress: Progress | None) -> None:
    """Append to `part` what is missing of `url`."""
    start = part.stat().st_size if part.exists() else 0
    by_hand = f"fetch it by hand, put it at {to}, and run the command again"
    try:
        with urlopen(Request(url, headers={"Range": f"bytes={start}-"}), timeout=TIMEOUT) as response:
            _append(response, part, start if response.status == 206 else 0, progress, to.name)
    except HTTPError as error:
        if error.code == 416 and start:  # nothing is missing: the check decides
            return
        raise InputError(f"cannot download {url} (HTTP {error.code} {error.reason}): {by_hand}") from None
    except NETWORK_ERRORS as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(f"cannot download {url} ({reason}): try again to resume, or {by_hand}") from None


def _append(response: Any, part: Path, start: int, progress: Progress | None, name: str) -> None:
    """Write the response's body into `part` from byte `start` on; a body that ends early is an error."""
    length = response.headers.get("Content-Length")
    total = start + int(length) if length else None
    task = progress.add_task(name, total=total, completed=start) if progress else None
    with part.open("ab" if start else "wb") as stream:
        while chunk := _read(response):
            stream.write(chunk)
            if progress and task is not None:
                progress.advance(task, len(chunk))
        if total is not None and stream.tell() < total:
            raise ConnectionError(f"the connection was cut after {stream.tell():,} of {total:,} bytes")


def _read(response: Any) -> bytes:
    """The next piece of the body; any failure here is the network's, not the disk's."""
    try:
        return response.read(CHUNK)
    except OSError as error:
        raise ConnectionError(str(error)) from None


def _is_right(path: Path, md5: str | None, check: Callable[[Path], bool] | None) -> bool:
    with path.open("rb") as stream:
        if md5 is not None and hashlib.file_digest(stream, "md5").hexdigest() != md5:
            return False
    return check is None or check(path)


def _has_images(to: Path) -> bool:
    try:
        cifar10h.check_images(to / cifar10h.BINARY)
    except InputError:
        return False
    return True


def _unpack(archive: Path, to: Path) -> None:
    """Unpack the archive's batch files beside their place, verify them, and move them there one by one."""
    folder = to / cifar10h.BINARY
    try:
        with tempfile.TemporaryDirectory(dir=to, prefix=".unpacking-") as temporary:
            with tarfile.open(archive) as tar:
                tar.extractall(temporary, filter="data")
            unpacked = Path(temporary) / cifar10h.BINARY
            cifar10h.check_images(unpacked)
            folder.mkdir(exist_ok=True)
            for path in unpacked.iterdir():
                os.replace(path, folder / path.name)
    except tarfile.TarError as error:
        raise InputError(f"cannot unpack {archive} ({error}): delete it and run the command again") from None
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from None
