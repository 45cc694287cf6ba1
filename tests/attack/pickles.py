"""Hostile pickles: code to run, depth to crash on, sizes to choke on. What runs leaves a file `canary`."""

import io
import pickle
from random import Random
from typing import Any

from attack.damage import damaged

DEPTH = 300_000
CODE = (
    b"cposix\nsystem\n(S'touch canary'\ntR.",
    b'cbuiltins\nexec\n(S\'open("canary", "w")\'\ntR.',
    b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0ctouch canary\x85R.",
    b"cos\nsystem\n(S'touch canary'\nR.",
    b"(S'touch canary'\niposix\nsystem\n.",
)
OPCODES = (
    *(code[:-1] for code in CODE),
    *(bytes([opcode]) for opcode in b"}])(tsuaeRb02.N\x85\x86\x87\x88"),
    *(b"I7\n", b"L9999999999L\n", b"J\xff\xff\xff\x7f", b"\x8a\xff" + b"\xff" * 255, b"F1e999\n", b"Pid\n"),
    *(b"h\0", b"j\xff\xff\xff\x7f", b"r\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 8, b"B\xff\xff\xff\x7f"),
    *(b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n"),
    b"X\4\0\0\0u\xff\xffx",
    b"}" + b")" + b"\x85" * DEPTH + b"Ns",
    b"]" * 3000 + b"a" * 2999,
)


def damaged_pickle(data: bytes, random: Random) -> bytes:
    """Of a sound pickle."""
    if random.random() < 0.03:
        return random.choice(CODE)
    return damaged(data, random, tokens=OPCODES)


class Strict(pickle.Unpickler):
    """Reads what describes a NumPy array and plain values; all else is refused."""

    NAMES = ("_reconstruct", "ndarray", "dtype", "encode")

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] not in ("numpy", "_codecs") or name not in self.NAMES:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


def read_pickle(data: bytes) -> Any:
    """The value, by Python's own reader."""
    return Strict(io.BytesIO(data), encoding="bytes").load()
