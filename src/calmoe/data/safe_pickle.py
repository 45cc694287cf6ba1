"""Plain values out of CIFAR-10's Python batch files, which are pickles: nothing in them is ever run.

`pickletools.genops` only decodes; the few opcodes below build dicts, lists, tuples, text, numbers and uint8
arrays. Callables are mere names here: the three that describe a NumPy array are understood, others refused.
"""

import pickletools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calmoe.errors import InputError

MARK = object()
CODEC, NDARRAY, DTYPE = "_codecs encode", "numpy ndarray", "numpy dtype"
RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
PUSHED: Mapping[str, Callable[[Any], Any]] = {  # by opcode, what its argument puts onto the stack
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"), lambda argument: argument),
    # Python 2's str
    **dict.fromkeys(("SHORT_BINSTRING", "BINSTRING"), lambda argument: argument.encode("latin-1")),
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "MARK": lambda _: MARK,
    "EMPTY_DICT": lambda _: {},
    "EMPTY_LIST": lambda _: [],
    "EMPTY_TUPLE": lambda _: (),
}
PUTS, GETS = ("BINPUT", "LONG_BINPUT"), ("BINGET", "LONG_BINGET")
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
IGNORED = ("PROTO", "STOP")
MOST_BYTES = 2**30  # of a file; CIFAR-10's have 31 MB
MOST_OPCODES = 1_000_000  # CIFAR-10's have some 50,000


@dataclass(frozen=True)
class Name:
    """A callable that the file names."""

    path: str


@dataclass(frozen=True)
class Pending:
    """An array or a dtype that the file has announced and not yet described."""

    kind: str


class Refused(Exception):
    """The file asks for something that plain data does not need."""


def read_plain(path: Path) -> Any:
    """The value in the file `path`, if it is made of plain data and uint8 arrays only."""
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path} has more than {MOST_BYTES:,} bytes: get the official file")
    content = path.read_bytes()
    try:
        return _interpret(content)
    except Refused as refusal:
        raise InputError(
            f"{path} is not a plain data file: {refusal}; nothing in it was run, get the official file"
        ) from None
    except Exception:  # whatever damage leads to
        raise InputError(f"{path} is damaged or truncated: delete it and download it again") from None


def _interpret(content: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    operations: Iterator[Any] = pickletools.genops(content)
    for count, (opcode, argument, _) in enumerate(operations):
        if count == MOST_OPCODES:
            raise Refused(f"it has more than {MOST_OPCODES:,} opcodes")
        name = opcode.name
        if name in PUSHED:
            stack.append(PUSHED[name](argument))
        elif name == "GLOBAL":
            stack.append(_known(argument))
        elif name in PUTS:
            memo[argument] = stack[-1]
        elif name in GETS:
            stack.append(memo[argument])
        elif name not in IGNORED:
            _change(stack, name)
    (value,) = stack
    return value


def _change(stack: list[Any], name: str) -> None:
    """Make one value of those on top of the stack, as the opcode of this name says."""
    if name in TUPLES:
        stack[-TUPLES[name] :] = [tuple(stack[-TUPLES[name] :])]
    elif name == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif name == "APPEND":
        value = stack.pop()
        stack[-1].append(value)
    elif name == "APPENDS":
        values = _since_mark(stack)
        stack[-1].extend(values)
    elif name == "SETITEM":
        key, value = stack.pop(-2), stack.pop()
        stack[-1][_key(key)] = value
    elif name == "SETITEMS":
        values = _since_mark(stack)
        stack[-1].update(zip(map(_key, values[::2]), values[1::2], strict=True))
    elif name == "REDUCE":
        arguments = stack.pop()
        stack.append(_described(stack.pop(), arguments))
    elif name == "BUILD":
        state = stack.pop()
        stack.append(_built(stack.pop(), state))
    else:
        raise Refused(f"it uses {name}")


def _since_mark(stack: list[Any]) -> list[Any]:
    """What was pushed after the last mark, taken off the stack with the mark."""
    start = next(i for i in range(len(stack) - 1, -1, -1) if stack[i] is MARK)
    values = stack[start + 1 :]
    del stack[start:]
    return values


def _key(value: Any) -> str | bytes:
    """A dict's key, which must be text: looking up nested tuples may take the whole stack, or for ever."""
    if not isinstance(value, str | bytes):
        raise Refused(f"it has a key of {type(value).__name__}")
    return value


def _known(path: str) -> Name:
    if path not in (CODEC, NDARRAY, DTYPE, *RECONSTRUCT):
        raise Refused(f"it names {path.replace(' ', '.')!r}")
    return Name(path)


def _described(callable_: Any, arguments: tuple[Any, ...]) -> Any:
    """What the named callable would give for these arguments, without calling anything."""
    path = callable_.path
    if path == CODEC and arguments[1] == "latin1":
        return arguments[0].encode("latin-1")
    if path in RECONSTRUCT and arguments[0] == Name(NDARRAY):
        return Pending("array")
    if path == DTYPE and arguments[0] in ("u1", b"u1"):
        return Pending("uint8")
    raise Refused(f"it asks for {path.replace(' ', '.')} of something other than uint8 arrays")


def _built(target: Any, state: tuple[Any, ...]) -> Any:
    """A uint8 array from NumPy's own state (version, shape, dtype, Fortran order, bytes)."""
    if target == Pending("uint8"):
        return target
    _, shape, dtype, fortran, content = state
    if target != Pending("array") or dtype != Pending("uint8"):
        raise Refused("it sets the state of something other than a uint8 array")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")
