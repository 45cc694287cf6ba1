"""An npz archive as arrays by name: each member's size is compared with its header before it is read."""

import math
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from calmoe.errors import InputError, shown
from calmoe.formats.budget import CELL, Budget


def read(path: Path, budget: Budget) -> dict[str, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise InputError("not a readable npz file: write named arrays with np.savez")
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive)
            for name, member in members.items():
                _check(name, member, archive, budget)
            return {name: _array(member, archive) for name, member in members.items()}
    except InputError:
        raise
    except Exception as error:  # damage may raise anything: zlib.error, BadZipFile, TokenError, …
        reason = " ".join(str(error).split())
        raise InputError(f"not a readable npz file of plain arrays ({reason})") from None


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in members:
            raise InputError(f"two members are named {shown(name)}: keep one")
        members[name] = member
    return members


def _check(name: str, member: zipfile.ZipInfo, archive: zipfile.ZipFile, budget: Budget) -> None:
    """Refuse a member that is no plain array, or not as long as its header says, before it takes memory."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # NumPy writes no others
        raise InputError(f"member {shown(name)} is packed as np.savez never does: write it with np.savez")
    with archive.open(member) as stream:
        if stream.read(len(npy.MAGIC_PREFIX)) != npy.MAGIC_PREFIX:
            raise InputError(f"member {shown(name)} is no NumPy array: write named arrays with np.savez")
        if tuple(stream.read(2)) != (1, 0):  # later versions are for headers of more than 64 KiB
            raise InputError(f"array {shown(name)} has too long a header: save it as plain numbers")
        shape, _, dtype = npy.read_array_header_1_0(stream)
        length = member.file_size - stream.tell()
    if dtype.hasobject:
        raise InputError(f"array {shown(name)} holds Python objects: save it .astype(str) or .astype(float)")
    cells = math.prod(shape)
    if min(shape, default=1) < 0 or cells * dtype.itemsize != length:
        raise InputError(
            f"array {shown(name)} is not as long as its header says ({length:,} bytes): write the file again"
        )
    budget.spend(cells * max(CELL, dtype.itemsize))


def _array(member: zipfile.ZipInfo, archive: zipfile.ZipFile) -> np.ndarray:
    with archive.open(member) as stream:
        return npy.read_array(stream, allow_pickle=False)
