"""Images decoded once, on all cores, into a cache: for each folder of images one file [N, size, size, 3].

A cache file is named by the content of the images behind it, so a changed, added or removed image is decoded
anew; NAME.sha256 beside it (as sha256sum writes it) shows whether the cache itself is whole.
"""

import fcntl
import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from calmoe.errors import InputError
from calmoe.files import CACHE, leftovers, open_lock, write_whole, writing_whole
from calmoe.progress_bar import progress_bar

HOW = "8 bits, RGB, bilinear"  # change it with `decode`: earlier caches are then decoded anew
LOCK = ".lock"
BLOCK = 512  # images in memory at a time
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")


def decoded(root: Path, name: str, files: Sequence[Path], size: int) -> tuple[np.ndarray, list[str]]:
    """The images `files` under `root` as uint8 [N, size, size, 3], and the SHA-256 of each file.

    They go through a cache file of that `name`, in `root` or, where that cannot be written, in the user's own
    cache folder.
    """
    folders = _cache_folders(root)
    with _threads() as threads:
        digests = list(threads.map(_digest, files))
        stem = f"{name}-{size}-{_content(root, files, digests)[:16]}"
        for folder in folders:
            if (images := _whole(folder / f"{stem}.rgb", size)) is not None:
                return images, digests
        with _locked(folders) as folder:
            path = folder / f"{stem}.rgb"
            if (images := _whole(path, size)) is None:  # nobody else has written it since
                _write(path, files, size, threads, f"decoding {name}")
                _drop_others(folder, f"{name}-{size}-", stem)
                images = _whole(path, size)
    if images is None:
        raise InputError(f"{path} is not what was written there: is the disk sound?")
    return images, digests


def decode(path: Path, size: int | tuple[int, int], mode: str = "RGB") -> np.ndarray:
    """One image as [size, size, 3], or [size, size] in mode "L": resized, not cropped.

    size: one number for both sides, or (height, width).
    """
    data = path.read_bytes()
    sides = (size, size) if isinstance(size, int) else size
    try:
        with Image.open(io.BytesIO(data)) as image:
            return pixels(image, path, sides, mode)
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(f"{path} is no image: save it as one, or move it away") from None
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise InputError(f"{path} is too large, over {most:,} pixels: shrink it, or move it away") from None
    except Exception as error:  # Pillow's readers raise whatever a damaged file leads them to
        raise InputError(f"{path} is a damaged image ({error}): save it anew, or move it away") from None


def pixels(image: Image.Image, name: object, size: tuple[int, int], mode: str = "RGB") -> np.ndarray:
    """The image in this mode and size (height, width): bilinear, with Pillow's antialiasing."""
    converted = _eight_bits(image, name).convert(mode)
    return np.asarray(converted.resize((size[1], size[0]), Image.Resampling.BILINEAR))


def _eight_bits(image: Image.Image, path: object) -> Image.Image:
    """16 bits as 8, value / 257; refuses wider pixels, where nobody knows what is white."""
    mode = image.mode  # Pillow's own conversion of these cuts every value at 255
    if mode.startswith("I;16") or (mode == "I" and image.format in ("PNG", "PPM")):
        return Image.fromarray(((np.asarray(image).astype(np.int64) + 128) // 257).astype(np.uint8))
    if mode in ("I", "F"):
        kind = {"I": "32-bit", "F": "float"}[mode]
        raise InputError(f"{path} has {kind} pixels: save it with 8 or 16 bits, or move it away")
    return image


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _content(root: Path, files: Sequence[Path], digests: Sequence[str]) -> str:
    """SHA-256 over the names and the bytes of all files, and how they are decoded."""
    named = zip(digests, files, strict=True)
    lines = [f"{digest}  {path.relative_to(root).as_posix()}\n" for digest, path in named]
    return hashlib.sha256(os.fsencode("".join([f"{HOW}\n", *lines]))).hexdigest()


def _write(path: Path, files: Sequence[Path], size: int, threads: ThreadPoolExecutor, title: str) -> None:
    digest = hashlib.sha256()
    with writing_whole(path) as stream, progress_bar(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(title, total=len(files))
        for start in range(0, len(files), BLOCK):
            for image in threads.map(lambda file: decode(file, size), files[start : start + BLOCK]):
                stream.write(image.data)
                digest.update(image.data)
                bar.advance(task)
    write_whole(path.with_suffix(".sha256"), os.fsencode(f"{digest.hexdigest()}  {path.name}\n"))


def _whole(path: Path, size: int) -> np.ndarray | None:
    """The images in a cache file, if every byte is as it was written."""
    try:
        stated = path.with_suffix(".sha256").read_bytes()[:64].decode()
        stored = np.fromfile(path, np.uint8)
    except (OSError, ValueError):
        return None
    whole = hashlib.sha256(stored.data).hexdigest() == stated
    return stored.reshape(-1, size, size, 3) if whole else None


def _drop_others(folder: Path, prefix: str, stem: str) -> None:
    """Remove what was cached under the same name for other content."""
    for path in folder.iterdir():
        if path.name.startswith(prefix) and path.stem != stem and len(path.stem) == len(stem):
            path.unlink(missing_ok=True)


def _cache_folders(root: Path) -> tuple[Path, Path]:
    """The cache beside the images, and the one among the user's own caches."""
    whole = root.resolve()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    mark = hashlib.sha256(os.fsencode(whole)).hexdigest()[:12]
    return root / CACHE, caches / "calmoe" / f"{whole.name}-{mark}"


def _writable(folders: Sequence[Path]) -> Path:
    for folder in folders:
        if folder.is_symlink():  # it may lead out of the dataset's folder
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise InputError(f"cannot write decoded images to {' or '.join(map(str, folders))}: make one writable")


@contextmanager
def _locked(folders: Sequence[Path]) -> Iterator[Path]:
    """A folder where one process at a time decodes, without the half-written files of a killed one.

    After an error the folder is removed if it holds nothing but the lock.
    """
    folder, lock = _lock(folders)
    with lock:
        for path in leftovers(folder, lambda name: name.endswith((".rgb", ".sha256"))):
            path.unlink()
        try:
            yield folder
        except BaseException:
            if [path.name for path in folder.iterdir()] == [LOCK]:
                with suppress(OSError):  # another process may be at its door
                    (folder / LOCK).unlink()
                    folder.rmdir()
            raise


def _lock(folders: Sequence[Path]) -> tuple[Path, IO[bytes]]:
    """The first folder that can be written, and its lock, held; tries again if it was removed meanwhile."""
    while True:
        folder = _writable(folders)
        with suppress(FileNotFoundError):
            lock = open_lock(folder / LOCK)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(lock.fileno()), (folder / LOCK).stat()):
                    return folder, lock
            except BaseException:
                lock.close()
                raise
            lock.close()


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count())  # Pillow and hashlib let other threads run
