"""The work that a .pth file asks for, counted before torch builds anything from it.

torch runs no code of a file (weights_only), but it builds tuples in tuples and looks them up in dicts: a
few bytes, nested deeply or shared widely, take the interpreter's stack or run for ever.
"""

import mmap
import pickletools
import zipfile
from pathlib import Path
from typing import Any

MOST_STEPS = 2_000_000  # a ResNet-50's file takes 45,000
ZIP = b"PK\x03\x04"
LEGACY_PICKLES = 5  # in files from before torch 1.6: magic number, version, system, tensors, their storages
GROW = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD")  # what is below the values on the stack


class Excessive(ValueError):
    """The file asks for more than any weights do, or is not what was packed."""


def check_effort(path: Path) -> None:
    """Refuse a file whose pickles build more than weights need, or that unpacks to more than its length."""
    with path.open("rb") as stream:
        start = stream.read(len(ZIP))
        if start != ZIP:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                for _ in range(LEGACY_PICKLES):
                    _check_pickle(content)
            return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > path.stat().st_size:
            raise Excessive("it unpacks to more than its length")
        if (damaged := archive.testzip()) is not None:
            raise Excessive(f"{damaged} is not what was packed")
        for member in members:
            if member.filename.endswith(".pkl"):
                _check_pickle(archive.read(member))


def _check_pickle(content: Any) -> None:
    """Add up the sizes of all that the opcodes take from the stack; a shared value counts at every use."""
    stack: list[int] = []  # the sizes of what lies there
    marks: list[int] = []
    memo: dict[Any, int] = {}
    steps = 0
    for opcode, argument, _ in pickletools.genops(content):
        name = opcode.name
        steps += 1
        if name == "MARK":
            marks.append(len(stack))
        elif name.endswith("PUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name.endswith("GET"):
            stack.append(memo[argument])
        elif name in ("POP", "POP_MARK"):
            raise Excessive("it throws away what it has built")
        else:
            operands = opcode.stack_before[name in GROW :]
            sliced = pickletools.stackslice in operands
            start = marks.pop() if sliced else len(stack) - len(operands)
            size = sum(stack[start:])
            steps += size
            del stack[start:]
            if name in GROW:
                size += stack.pop()
            stack += [1 + size] * len(opcode.stack_after)
        if steps > MOST_STEPS:
            raise Excessive("it builds more than weights need")
