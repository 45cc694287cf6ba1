"""Damage to bytes and to values: what disks, transfers and people with bad intentions do to files."""

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
NUMBERS = (
    *(b"0 -0 -1 1 2 255 256 65536 2147483647 2147483648 4294967295 4294967296 9007199254740993".split()),
    *(b"9223372036854775807 9223372036854775808 -9223372036854775808 18446744073709551616".split()),
    *(b"1e999 -1e999 1e308 5e-324 1e-400 0.1e 1. .5 +1 00 01 1_0 0.9_0 0x10 0x1p3 1+0j nan -nan inf".split()),
    *(b"NaN Infinity -Infinity 1e5 1e05 0.5 1.0000001 3000000000 20000000".split()),
    b"9" * 31,
    b"7" * 5000,
    "١".encode(),
    "１".encode(),
)
BYTES = (0, 1, 9, 10, 13, 32, 34, 39, 44, 45, 92, 127, 128, 254, 255)
WORDS = (
    b"\0" * 8,
    b"\xff" * 8,
    b"\xff\xff\xff\x7f",
    b"\0\0\0\x80",
    (1 << 40).to_bytes(8, "little"),
    b"\1" * 4,
)
TOKENS = (
    *(b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b'"', b"'", b"\\", b",", b"\n"),
    *(b"\r", b"\r\n", b"\x1b[31m", b"\x1b]0;x\x07", b"../../escaped", b"/etc/passwd", b"=cmd|' /C calc'!A0"),
    *(b"<script>", b"\xe2\x80\xae", b"%s%n", b"{{7*7}}", b"null", b"NaN", b"true", b"[[[[", b"{}"),
)

# --- bytes


def damaged(data: bytes, random: Random, other: bytes = b"", tokens: Sequence[bytes] = TOKENS) -> bytes:
    """`data` after one to three injuries; `other` is what may be spliced into it."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        injury = random.choice(INJURIES)
        data = injury(data, random, other or data, tokens)
    return data


def _flip(data: bytes, random: Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8)) if data else 0):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, random: Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    place = random.randrange(len(data) + 1)
    value = bytes([random.choice(BYTES)]) if random.random() < 0.6 else random.choice(WORDS)
    return data[:place] + value + data[place + len(value) :]


def _truncate(data: bytes, random: Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    end = random.randrange(len(data) + 1)
    return data[:end] if random.random() < 0.8 else data[end:]


def _delete(data: bytes, random: Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _duplicate(data: bytes, random: Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    start, end = _span(data, random)
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 50)) + data[end:]


def _insert(data: bytes, random: Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(tokens) + data[place:]


def _splice(data: bytes, random: Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _renumber(data: bytes, random: Random, other: bytes, tokens: Sequence[bytes]) -> bytes:
    """One of the numbers written in it becomes an extreme one."""
    numbers = list(NUMBER.finditer(data[:20_000]))
    if not numbers:
        return data
    chosen = random.choice(numbers)
    return data[: chosen.start()] + random.choice(NUMBERS) + data[chosen.end() :]


def _span(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 4, 16, 100, 1000)))


INJURIES: Sequence[Callable[[bytes, Random, bytes, Sequence[bytes]], bytes]] = (
    *(_flip, _flip, _overwrite, _overwrite, _truncate, _delete, _duplicate, _insert, _insert),
    *(_splice, _renumber, _renumber),
)

# --- values

RAW = "\ue000raw\ue000"  # around what JSON's writer would not write
VALUES: Sequence[Any] = (
    *(None, True, False, 0, -1, 1, 2, 0.0, -0.0, 0.5, 1.5, 1e-320, 1e308, -1e308, 3.0, 10, 255, 1000),
    *(2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, 1_000_000_000),
    *("", "x", "0", "1", "1.0", "nan", "soft", "top2", "\0", "\x1b[31m", "\ud800", "../../escaped", "/tmp/x"),
    *("/dev/zero", "é" * 3, "=1+1", "<b>", "a\nb", "a" * 10_000, "digits", "pacs", "published", "robust"),
    *([], {}, [[]], [None], [1], ["x"], [1, 2, 3], [0.5, 0.5], {"": None}, {"a": {"b": []}}, [[1, 2], [3]]),
    *(float("nan"), float("inf"), float("-inf")),
    *(f"{RAW}{text}{RAW}" for text in ("1e999", "-1e999", "9" * 5000, "1_0", "0x10", "01", "'a'", "")),
    f"{RAW}{'[' * 2000}{']' * 2000}{RAW}",
    f"{RAW}{'[' * 100_000}{']' * 100_000}{RAW}",
)


def damaged_value(value: Any, random: Random) -> Any:
    """A copy of a JSON value, hostile in one to three places: of another type, size, name or depth."""
    value = json.loads(json.dumps(value))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        value = _replace(value, random)
    return value


def damaged_json(value: Any, random: Random) -> bytes:
    """A damaged value as a file."""
    return written(damaged_value(value, random), random)


def written(value: Any, random: Random) -> bytes:
    """A value as JSON; now and then with a key twice, or with bytes that are damaged."""
    text = json.dumps(value, indent=random.choice((None, 2)))
    text = re.sub(r'"\\ue000raw\\ue000(.*?)\\ue000raw\\ue000"', r"\1", text)
    if random.random() < 0.05:
        text = text.replace("{", '{"kind": 1, "temperature": 7, ', 1)
    data = text.encode()
    return damaged(data, random) if random.random() < 0.1 else data


def _replace(value: Any, random: Random) -> Any:
    if not isinstance(value, dict | list) or not value or random.random() < 0.1:
        return deepcopy(random.choice(VALUES))
    key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
    fate = random.random()
    if fate < 0.55:
        value[key] = _replace(value[key], random)
    elif fate < 0.7:
        value[key] = deepcopy(random.choice(VALUES))
    elif fate < 0.8:
        del value[key]
    elif fate < 0.88:
        value[key] = _number(value[key], random)
    elif isinstance(value, dict):
        name = random.choice(("", "x", f"{key}x", f"{key}\0", "__class__", "../x", "digest", key.upper()))
        value[name] = value.pop(key) if fate < 0.94 else deepcopy(random.choice(VALUES))
    else:
        value[key:key] = [value[key]] * random.choice((1, 2, 100))
    return value


def _number(value: Any, random: Random) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return str(value)
    return random.choice((-value, value + 1, value - 1, value * 1e6, value / 3, str(value), [value], 0))
