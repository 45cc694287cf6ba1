"""Damage that knows the container: the tensors of a safetensors file, the members of a zip, a parquet's end.

A damaged container is mostly put together again soundly, with lengths and checksums that fit: what reaches
the reader behind the container's own library is hostile too.
"""

import io
import json
import re
import struct
import zipfile
from random import Random
from typing import Any

from attack.damage import NUMBERS, damaged, damaged_value, written

DTYPES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "U16": 2,
    "U32": 4,
    "U64": 8,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "C64": 8,
}
NAMES = (
    *("probs", "log_probs", "routing", "log_routing", "expert_probs", "expert_log_probs", "label", "labels"),
    *("group.hard", "group.", "hard", "", "é", "a\0b", "../x", "x" * 300, "fc.weight", "__metadata__"),
)
SIZES = (0, 1, 2, 3, 5, 255, 1000, 10**6, 2**31, 2**32, 2**62, 2**63, -1)


def split_safetensors(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the buffer after it."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join_safetensors(header: dict[str, Any] | bytes, buffer: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + buffer


def damaged_safetensors(data: bytes, random: Random, other: bytes = b"") -> bytes:
    """Of a sound safetensors file."""
    fate = random.random()
    if fate < 0.35:
        return damaged(data, random, other)
    header, buffer = split_safetensors(data)
    if fate < 0.5:  # the header alone: offsets, shapes and types that do not fit
        return join_safetensors(written(damaged_value(header, random), random), buffer)
    if fate < 0.55:
        length = random.choice((*SIZES[:8], len(data), len(data) - 8)) % 2**64
        return struct.pack("<Q", length) + data[8:]
    if fate < 0.6:
        return join_safetensors(_doubled(header, random), buffer)
    parts = {name: [dict(entry), buffer[slice(*entry["data_offsets"])]] for name, entry in _tensors(header)}
    _damage_tensor(parts, random)
    return _together(parts, _damaged_note(header.get("__metadata__"), random))


def _tensors(header: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, entry) for name, entry in header.items() if name != "__metadata__"]


def _doubled(header: dict[str, Any], random: Random) -> bytes:
    """A name twice."""
    text, name = json.dumps(header), random.choice(list(header))
    entry = damaged_value(header[name], random)
    return text.replace("{", "{" + written({name: entry}, random).decode("latin-1")[1:-1] + ", ", 1).encode(
        "latin-1", "replace"
    )


def _damage_tensor(parts: dict[str, list[Any]], random: Random) -> None:
    name = random.choice(list(parts))
    entry, content = parts[name]
    fate = random.random()
    if fate < 0.3:
        entry["dtype"] = random.choice(list(DTYPES))
        parts[name][1] = content[: len(content) // DTYPES[entry["dtype"]] * DTYPES[entry["dtype"]]]
        if random.random() < 0.7:  # as many numbers as before, of the new type
            wanted = DTYPES[entry["dtype"]] * _product(entry["shape"])
            parts[name][1] = (content * 9 + bytes(wanted))[:wanted]
    elif fate < 0.45:
        shape = entry["shape"]
        entry["shape"] = random.choice(
            ([*shape, 1], [1, *shape], shape[::-1], [_product(shape)], [0, *shape[1:]], [])
        )
        parts[name][1] = content[: DTYPES[entry["dtype"]] * _product(entry["shape"])]
    elif fate < 0.6:
        parts[random.choice(NAMES)] = parts.pop(name)
    elif fate < 0.7:
        parts.pop(name)
    elif fate < 0.85:
        parts[name][1] = damaged(content, random)[: len(content)].ljust(len(content), b"\0")
    else:
        word = struct.pack("<d", random.choice((float("nan"), float("inf"), -1.0, 1e300, 0.0)))
        filled = word if entry["dtype"] == "F64" else struct.pack("<q", random.choice(SIZES[:8]))
        parts[name][1] = (filled * len(content))[: len(content)]


def _product(shape: list[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _damaged_note(metadata: Any, random: Random) -> Any:
    """What calmoe writes into the metadata is JSON within JSON."""
    if not metadata or random.random() < 0.5:
        return metadata
    changed = dict(metadata)
    for name in changed:
        try:
            note = json.loads(changed[name])
        except ValueError:
            continue
        changed[name] = written(damaged_value(note, random), random).decode(errors="replace")
    return changed


def _together(parts: dict[str, list[Any]], metadata: Any) -> bytes:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    buffer = b""
    for name, (entry, content) in parts.items():
        header[name] = {**entry, "data_offsets": [len(buffer), len(buffer) + len(content)]}
        buffer += content
    return join_safetensors(header, buffer)


# --- zip and npy

DESCRIPTIONS = (
    *(
        "<f8",
        "<f4",
        "<f2",
        ">f8",
        "<i8",
        "<i4",
        "|i1",
        "|u1",
        "<u8",
        "|b1",
        "<c16",
        "<c8",
        "|O",
        "|S4",
        "<U2",
    ),
    *("<M8[s]", "<m8[s]", "|V8", "<f16", "f8,i4", "(2,)f8", "", "x"),
)


def damaged_npy(data: bytes, random: Random) -> bytes:
    """Of a sound .npy file: its header, which is a Python literal, or anything."""
    length = int.from_bytes(data[8:10], "little")
    header, content = data[10 : 10 + length].decode("latin-1"), data[10 + length :]
    if random.random() < 0.4 or not re.match(r"{'descr': '.*', 'fortran_order': .*\(.*\)", header):
        return damaged(data, random)  # or it is damaged already
    fate = random.random()
    if fate < 0.35:
        start, end = header.index(": '") + 3, header.index("', ")
        header = header[:start] + random.choice(DESCRIPTIONS) + header[end:]
    elif fate < 0.6:
        start, end = header.index("(") + 1, header.index(")")
        sizes = ", ".join(str(random.choice(SIZES)) for _ in range(random.choice((0, 1, 2, 3))))
        header = header[:start] + sizes + "," * ("," not in sizes) + header[end:]
    elif fate < 0.7:
        header = header.replace("False", random.choice(("True", "0", "None", "[]", "f()")))
    elif fate < 0.8:
        header = header.replace("(", "(" * random.choice((2, 100, 3000)), 1)
    else:
        header = damaged(header.encode("latin-1"), random).decode("latin-1")
    text = header.encode("latin-1")[:60_000]
    return data[:8] + struct.pack("<H", len(text)) + text + content


def damaged_zip(data: bytes, random: Random, other: bytes = b"") -> bytes:
    """Of a sound npz file."""
    fate = random.random()
    if fate < 0.3:
        return damaged(data, random, other)
    if fate < 0.4:
        return _damaged_directory(data, random)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = [(name, file.read(name)) for name in file.namelist()]
    for _ in range(random.choice((1, 1, 2))):
        _damage_member(members, random)
    packed = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packed) as file:
        for name, content in members:
            entry = zipfile.ZipInfo(name or "x")
            entry.compress_type = packed
            file.writestr(entry, content)
    return stream.getvalue()


def _damage_member(members: list[tuple[str, bytes]], random: Random) -> None:
    place = random.randrange(len(members))
    name, content = members[place]
    fate = random.random()
    if fate < 0.6:
        members[place] = name, damaged_npy(content, random)
    elif fate < 0.8:
        renamed = random.choice(
            (name.removesuffix(".npy"), f"../{name}", f"/{name}", f"{name}.npy", f"x/{name}", "x\0.npy")
        )
        members[place] = random.choice((renamed, f"{random.choice(NAMES)[:20]}.npy")), content
    elif fate < 0.9:
        members.append((name, random.choice(members)[1]))
    elif len(members) > 1:
        del members[place]


def _damaged_directory(data: bytes, random: Random) -> bytes:
    """A field of one of the zip's own records: sizes, offsets, methods, counts."""
    signature = random.choice((b"PK\3\4", b"PK\1\2", b"PK\5\6"))
    starts = [i for i in range(len(data)) if data.startswith(signature, i)]
    if not starts:
        return data
    place = random.choice(starts) + random.randrange(4, 40)
    value = random.choice((b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\1\0", b"\x08\0", b"\x63\0"))
    return data[:place] + value + data[place + len(value) :]


# --- parquet


def damaged_parquet(data: bytes, random: Random, other: bytes = b"") -> bytes:
    """Mostly of the footer, which says where everything is."""
    if random.random() < 0.4:
        return damaged(data, random, other)
    length = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - length], data[-8 - length : -8]
    if random.random() < 0.2:
        return data[:-8] + random.choice((b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\1\0\0\0")) + b"PAR1"
    footer = damaged(
        footer, random, tokens=(b"\x15", b"\x18", b"\xff\xff\xff\xff\x0f", b"\x19\xfc", *NUMBERS[:4])
    )
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"
