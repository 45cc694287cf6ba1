"""Attack: the datasets' own files: CIFAR-10 in both layouts, CIFAR-10H, HateXplain, CivilComments, images."""

import csv
import io
import json
import pickle
import re
import struct
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from attack.containers import damaged_npy
from attack.damage import NUMBERS, TOKENS, damaged, damaged_json
from attack.figures import Progress, Tally
from attack.pickles import damaged_pickle, read_pickle
from attack.readings import NUMBER
from attack.running import Target, Wrong
from attack.running import attack as run_attack
from attack.watching import unchanged
from calmoe.data import cifar10h, civilcomments, hatexplain
from calmoe.data.image_cache import decode

# --- CIFAR-10 and CIFAR-10H


def _batch() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (2, cifar10h.PIXELS), dtype=np.uint8), np.array([3, 7], np.uint8)


def _pickles(folder: Path) -> list[bytes]:
    images, labels = _batch()
    batch = {b"data": images, b"labels": labels.tolist(), b"batch_label": b"one", b"filenames": [b"a", b"b"]}
    return [pickle.dumps(batch, protocol=2), pickle.dumps({"labels": [1, 2], "data": images}, protocol=2)]


def attempt_python_batch(random: Random, seeds: list[bytes], folder: Path) -> None:
    layout = folder / cifar10h.PYTHON
    layout.mkdir()
    path = layout / "data_batch_1"
    path.write_bytes(damaged_pickle(random.choice(seeds), random))
    with unchanged(folder):
        images, labels = cifar10h.read_batch(layout, path.name)
    try:
        content = {_name(key): value for key, value in read_pickle(path.read_bytes()).items()}
    except SystemError:
        return  # NumPy's own: it trips over a state of the dtype that means nothing here
    except Exception as error:
        raise Wrong(f"loaded though malformed ({type(error).__name__}): {error}") from None
    if (
        not np.array_equal(images.reshape(len(images), -1), content["data"])
        or labels.tolist() != content["labels"]
    ):
        raise Wrong("other images or labels than the file's")


def _name(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key


def _binary(folder: Path) -> list[bytes]:
    images, labels = _batch()
    return [np.column_stack([labels, images]).tobytes()]


def attempt_binary_batch(random: Random, seeds: list[bytes], folder: Path) -> None:
    layout = folder / cifar10h.BINARY
    layout.mkdir()
    path = layout / "data_batch_1.bin"
    data = damaged(seeds[0], random)
    path.write_bytes(data)
    with unchanged(folder):
        images, labels = cifar10h.read_batch(layout, "data_batch_1")
    joined = b"".join(bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True))
    if joined != data or max(labels) > 9:
        raise Wrong("other images or labels than the file's")


def _counts(folder: Path) -> list[bytes]:
    counts = np.random.default_rng(0).integers(1, 20, (4, 10))
    files = []
    for votes in (counts, counts / counts.sum(1, keepdims=True)):
        stream = io.BytesIO()
        np.save(stream, votes)
        files.append(stream.getvalue())
    return files


def attempt_counts(random: Random, seeds: list[bytes], folder: Path) -> None:
    path = folder / random.choice((cifar10h.COUNTS, cifar10h.PROBABILITIES))
    path.write_bytes(damaged_npy(random.choice(seeds), random))
    with unchanged(folder):
        columns = cifar10h.human_columns(folder, 4)
    try:
        votes = np.lib.format.read_array(io.BytesIO(path.read_bytes()), allow_pickle=False).astype(np.float64)
    except ValueError as error:
        raise Wrong(f"loaded though malformed ({type(error).__name__}): {error}") from None
    expected = votes / votes.sum(axis=1, keepdims=True)
    loaded = np.stack([columns[f"human_{label}"] for label in range(10)], axis=1)
    if loaded.shape != (4, 10) or not np.allclose(loaded, expected, rtol=0, atol=1e-9):
        raise Wrong("other votes than the file's")


# --- HateXplain

PEOPLE = [("normal", []), ("offensive", ["Women"]), ("hatespeech", ["Women", "Islam"])]


def _posts(folder: Path) -> dict[str, Any]:
    """By file: what it holds; the lines are a list."""
    posts, divisions, lines = {}, {}, []
    for i in range(9):
        split = hatexplain.SPLITS[i % 3]
        people = [PEOPLE[(i + n) % 3] for n in range(3)]
        annotators = [{"label": label, "target": target} for label, target in people]
        tokens = ["you", f"are {i}", "é\u2028"]
        posts[f"{i}_gab"] = {"post_id": f"{i}_gab", "annotators": annotators, "post_tokens": tokens}
        divisions.setdefault(split, []).append(f"{i}_gab")
        labels, targets = ([person[part] for person in people] for part in (0, 1))
        lines.append({"text": " ".join(tokens), "labels": labels, "targets": targets, "split": split})
    return {hatexplain.POSTS: posts, hatexplain.DIVISIONS: divisions, hatexplain.LINES: lines}


def attempt_official_posts(random: Random, seeds: dict[str, Any], folder: Path) -> None:
    names = (hatexplain.POSTS, hatexplain.DIVISIONS)
    hurt = random.choice(names)
    for name in names:
        whole = json.dumps(seeds[name]).encode()
        changed = damaged_json(seeds[name], random) if random.random() < 0.7 else damaged(whole, random)
        (folder / name).write_bytes(changed if name == hurt else whole)
    with unchanged(folder):
        loaded = hatexplain.read_posts(folder)
    posts, divided = (json.loads((folder / name).read_text("utf-8-sig")) for name in names)
    split_of = {number: split for split in hatexplain.SPLITS for number in divided[split]}
    expected = [
        (
            " ".join(post["post_tokens"]),
            split_of[number],
            *zip(*map(_annotator, post["annotators"]), strict=True),
        )
        for number, post in posts.items()
        if number in split_of
    ]
    _compare_posts(loaded, expected)


def _annotator(person: dict[str, Any]) -> tuple[str, list[str]]:
    return person["label"], person["target"]


def attempt_post_lines(random: Random, seeds: dict[str, Any], folder: Path) -> None:
    lines = [json.dumps(line, ensure_ascii=False).encode() for line in seeds[hatexplain.LINES]]
    place = random.randrange(len(lines))
    if random.random() < 0.7:
        lines[place] = damaged_json(seeds[hatexplain.LINES][place], random).replace(b"\n", b" ")
    data = b"\n".join(lines)
    path = folder / hatexplain.LINES
    path.write_bytes(data if random.random() < 0.7 else damaged(data, random))
    with unchanged(folder):
        loaded = hatexplain.read_posts(folder)
    text = path.read_text("utf-8-sig")
    posts = [json.loads(line) for line in text.split("\n") if line.strip()]
    kept = [post for post in posts if post["split"] is not None]
    _compare_posts(loaded, [(p["text"], p["split"], p["labels"], p["targets"]) for p in kept])


def _compare_posts(loaded: list[hatexplain.Post], expected: list[Any]) -> None:
    found = [(p.text, p.split, list(p.labels), [set(names) for names in p.targets]) for p in loaded]
    wanted = [
        (text, split, list(labels), [set(names) for names in targets])
        for text, split, labels, targets in expected
    ]
    if found != wanted:
        raise Wrong(f"other posts than the file's: {len(found)}, not {len(wanted)}")


# --- CivilComments

COLUMNS = ["id", civilcomments.TEXT, civilcomments.SPLIT, *civilcomments.NUMBERS]


def _comments(folder: Path) -> list[bytes]:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(COLUMNS)
    for i in range(8):
        text = f'you, "{i}"\nsaid é' if i % 2 else f"plain {i}"
        scores = [round((i * 7 + n) % 11 / 10, 2) for n in range(len(civilcomments.NUMBERS))]
        writer.writerow([i, text, civilcomments.SPLITS[i % 3], *scores])
    return [stream.getvalue().encode()]


def attempt_comments(random: Random, seeds: list[bytes], folder: Path) -> None:
    path = folder / civilcomments.FILE
    path.write_bytes(damaged(seeds[0], random, tokens=(*TOKENS, *NUMBERS)))
    with unchanged(folder):
        loaded = civilcomments.read_comments(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
        header, *rows = (row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row)
        cells = [dict(zip(header, row, strict=True)) for row in rows]
        if len(set(header)) < len(header) and {*COLUMNS[1:]} & {n for n in header if header.count(n) > 1}:
            raise ValueError("a column twice")
        toxic = [_score(row[civilcomments.TOXICITY]) >= 0.5 for row in cells]
        named = {n: [_score(row[n] or "0") >= 0.5 for row in cells] for n in civilcomments.NUMBERS[1:]}
    except (ValueError, csv.Error) as error:
        raise Wrong(f"loaded though malformed ({type(error).__name__}): {error}") from None
    if loaded.texts != [row[civilcomments.TEXT] for row in cells]:
        raise Wrong(f"other texts than the file's: {len(loaded.texts)}, not {len(cells)}")
    if (
        loaded.splits.tolist() != [row[civilcomments.SPLIT] for row in cells]
        or loaded.toxic.tolist() != toxic
    ):
        raise Wrong("other splits or labels than the file's")
    if {name: column.tolist() for name, column in loaded.identities.items()} != named:
        raise Wrong("other identities than the file's")


def _score(text: str) -> float:
    if not re.fullmatch(NUMBER, text.strip()):
        raise ValueError(f"{text[:20]!a} is no number")
    return float(text)


# --- images


def _images(folder: Path) -> list[tuple[str, bytes]]:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), dtype=np.uint8)
    files = []
    for kind in ("png", "jpeg", "webp", "bmp", "gif", "tiff", "ppm"):
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, kind)
        files.append((kind, stream.getvalue()))
    return files


def _large_png(random: Random) -> bytes:
    """A few bytes that claim to be many pixels."""
    width, height = (random.choice((1, 1000, 13_000, 65_535, 2**31 - 1)) for _ in range(2))
    bits, kind = random.choice(((8, 2), (16, 0), (16, 6), (1, 0), (8, 3)))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)), (b"PLTE", b"abc")]
    parts += [(b"IDAT", zlib.compress(bytes(1 << random.choice((4, 20))))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


def attempt_image(random: Random, seeds: list[tuple[str, bytes]], folder: Path) -> None:
    kind, whole = random.choice(seeds)
    data = _large_png(random) if random.random() < 0.1 else damaged(whole, random, random.choice(seeds)[1])
    path = folder / f"image.{kind}"
    path.write_bytes(data)
    with unchanged(folder):
        pixels = decode(path, 8)
    if pixels.shape != (8, 8, 3) or pixels.dtype != np.uint8:
        raise Wrong(f"another shape: {pixels.shape} of {pixels.dtype}")


TARGETS = [
    Target("cifar-python", 4000, _pickles, attempt_python_batch),
    Target("cifar-binary", 1500, _binary, attempt_binary_batch),
    Target("cifar10h-counts", 3000, _counts, attempt_counts),
    Target("hatexplain", 3000, _posts, attempt_official_posts),
    Target("hatexplain-lines", 2000, _posts, attempt_post_lines),
    Target("civilcomments", 4000, _comments, attempt_comments),
    Target("images", 800, _images, attempt_image),
]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Every dataset's reader."""
    return run_attack(TARGETS, scale, seed, progress)
