"""Attack: prediction files of every format."""

import csv
import io
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import safetensors.numpy

from attack.containers import damaged_parquet, damaged_safetensors, damaged_zip
from attack.damage import NUMBERS, TOKENS, damaged
from attack.figures import Progress, Tally
from attack.readings import check_predictions
from attack.running import Target
from attack.running import attack as run_attack
from attack.watching import unchanged
from calmoe.predictions import Predictions

ROWS, EXPERTS, CLASSES = 6, 2, 3
CSV_NAMES = (
    *("prob_0", "prob_1", "prob_01", "prob_3", "prob_3000000000", "prob_40000000", "prob_-1", "prob_1_0"),
    *("label", "labels", "hard", "", " prob_0 ", "log_prob_0", "routing_0", "expert_0_prob_0", "prob_١"),
    *(f"prob_{'9' * 31}", f"prob_{'7' * 5000}", "expert_99999_prob_99999", "\x1b[31mx", "a\nb", 'a"b'),
)
NUMERALS = "1_0 0.9_0 0x1p3 1+0j nan inf -0 1e999 007 ١ -1 2.0 2.5 1e0 +1 % 1;2 0,9 true TRUE None N/A null"
CSV_CELLS = (
    *NUMERALS.split(),
    *("", " ", '"', '""', '"x', 'x"', '"a,b"', '"a\nb"', '"a""b"', "é", "\0", "a\0", "\ufeff", "\x1b[31m"),
    *("0.5\t", "\u2028", "\x85", "9" * 31, "7" * 5000),
)


def arrays(mixture: bool) -> dict[str, np.ndarray]:
    """Named arrays as another tool writes them."""
    generator = np.random.default_rng(0)
    experts = generator.dirichlet(np.ones(CLASSES), (ROWS, EXPERTS))
    routing = generator.dirichlet(np.ones(EXPERTS), ROWS)
    named = {"probs": np.einsum("nk,nkc->nc", routing, experts), "labels": np.arange(ROWS) % CLASSES}
    if mixture:
        named |= {"routing": routing.astype(np.float32), "expert_probs": experts}
    return named | {
        "hard": np.arange(ROWS) % 2 == 0,
        "year": np.arange(ROWS),
        "score": generator.random(ROWS),
    }


def columns(mixture: bool) -> dict[str, Any]:
    """The same as wide columns, with a column of text."""
    named = arrays(mixture)
    wide = {f"prob_{c}": named["probs"][:, c] for c in range(CLASSES)} | {"label": named["labels"]}
    if mixture:
        wide |= {f"routing_{k}": named["routing"][:, k] for k in range(EXPERTS)}
        pairs = [(k, c) for k in range(EXPERTS) for c in range(CLASSES)]
        wide |= {f"expert_{k}_prob_{c}": named["expert_probs"][:, k, c] for k, c in pairs}
    domains = np.array(['north, "old"', "süd", "east"])[named["labels"]]
    return wide | {"hard": named["hard"], "year": named["year"], "score": named["score"], "domain": domains}


def _predictions(mixture: bool) -> Predictions:
    named, wide = arrays(mixture), columns(mixture)
    parts = {name: named.get(name) for name in ("routing", "expert_probs")}
    groups = {name: wide[name] for name in ("hard", "year", "score", "domain")}
    told = {"method": "robust", "seed": 42}
    return Predictions.from_probs(named["probs"], named["labels"], **parts, groups=groups, metadata=told)


def calmoe_safetensors(folder: Path) -> list[bytes]:
    for mixture in (False, True):
        _predictions(mixture).save(folder / f"{mixture}.safetensors")
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def foreign_safetensors(folder: Path) -> list[bytes]:
    return [safetensors.numpy.save(arrays(mixture)) for mixture in (False, True)]


def npz(folder: Path) -> list[bytes]:
    with_text = arrays(True) | {"domain": columns(True)["domain"]}
    return [_npz(arrays(False), np.savez), _npz(with_text, np.savez), _npz(with_text, np.savez_compressed)]


def _npz(named: dict[str, np.ndarray], save: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, **named)
    return stream.getvalue()


def csv_files(folder: Path) -> list[bytes]:
    return [_csv(columns(mixture), **style) for mixture in (False, True) for style in ({}, {"quoting": 2})]


def _csv(wide: dict[str, Any], **style: Any) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, **style)
    writer.writerow(wide)
    writer.writerows(zip(*(values.tolist() for values in wide.values()), strict=True))
    return stream.getvalue().encode()


def parquet(folder: Path) -> list[bytes]:
    import pyarrow.parquet

    files = []
    for mixture, packed in ((False, "none"), (True, "none"), (True, "snappy")):
        stream = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns(mixture)), stream, compression=packed)
        files.append(stream.getvalue())
    return files


def damaged_csv(data: bytes, random: Random, other: bytes) -> bytes:
    """A name, a cell or the shape of the table; or anything."""
    if random.random() < 0.4:
        return damaged(data, random, other, tokens=(*TOKENS, *NUMBERS))
    ending = "\r\n" if random.random() < 0.5 else "\n"
    lines = [line.split(",") for line in data.decode().split("\r\n")]
    for _ in range(random.choice((1, 1, 2, 3))):
        row = 0 if random.random() < 0.3 else random.randrange(len(lines))
        cell = random.randrange(len(lines[row]))
        fate = random.random()
        if fate < 0.7:
            lines[row][cell] = random.choice(CSV_NAMES if row == 0 else CSV_CELLS)
        elif fate < 0.8:
            lines[row].append(random.choice(CSV_CELLS))
        elif fate < 0.9 and len(lines[row]) > 1:
            del lines[row][cell]
        else:
            lines.insert(row, random.choice(([""], [" "], lines[row], ["# a remark"], lines[0])))
    return ending.join(",".join(line) for line in lines).encode("utf-8")


def retyped_parquet(data: bytes, random: Random, other: bytes) -> bytes:
    """A sound parquet file with a column that is odd: another name, type, missing values."""
    import pyarrow
    import pyarrow.parquet

    if random.random() < 0.75:
        return damaged_parquet(data, random, other)
    names, contents = (list(part) for part in zip(*columns(random.random() < 0.5).items(), strict=True))
    contents = [pyarrow.array(values) for values in contents]
    for _ in range(random.choice((1, 1, 2))):
        place = random.randrange(len(names))
        if random.random() < 0.4:
            names[place] = random.choice(CSV_NAMES)
        else:
            contents[place] = random.choice(ODD_COLUMNS)(pyarrow)
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(contents, names=names), stream)
    return stream.getvalue()


ODD_COLUMNS = (
    lambda arrow: arrow.array([None] * ROWS),
    lambda arrow: arrow.array([1.0, None] * (ROWS // 2)),
    lambda arrow: arrow.array(["a\0", "a"] * (ROWS // 2)),
    lambda arrow: arrow.array([b"\xff"] * ROWS),
    lambda arrow: arrow.array([0, 1, 2] * (ROWS // 3)).dictionary_encode(),
    lambda arrow: arrow.array(["x", "y"] * (ROWS // 2)).dictionary_encode(),
    lambda arrow: arrow.array([[1.0]] * ROWS),
    lambda arrow: arrow.array([{"a": 1}] * ROWS),
    lambda arrow: arrow.array([1.5] * ROWS, arrow.float32()).cast(arrow.float16()),
    lambda arrow: arrow.array([1] * ROWS, arrow.timestamp("s")),
    lambda arrow: arrow.array([True] * ROWS),
    lambda arrow: arrow.array([2**63] * ROWS, arrow.uint64()),
    lambda arrow: arrow.array([-1] * ROWS),
    lambda arrow: arrow.array([1] * ROWS).cast(arrow.decimal128(30, 2)),
    lambda arrow: arrow.array([float("nan")] * ROWS),
    lambda arrow: arrow.array(["\x1b[31m", "=1+1"] * (ROWS // 2), arrow.large_string()),
)


def attempt(suffix: str, damage: Any, random: Random, seeds: list[bytes], folder: Path) -> None:
    """Damage a seed, load it, and compare; what loads can be saved and loaded again."""
    path = folder / f"predictions{suffix}"
    path.write_bytes(damage(random.choice(seeds), random, random.choice(seeds)))
    with unchanged(folder):
        predictions = Predictions.load(path)
    check_predictions(predictions, path)
    predictions.save(folder / "again.safetensors")
    Predictions.load(folder / "again.safetensors")


TARGETS = [
    Target("safetensors", 16_000, calmoe_safetensors, partial(attempt, ".safetensors", damaged_safetensors)),
    Target(
        "foreign-safetensors",
        10_000,
        foreign_safetensors,
        partial(attempt, ".safetensors", damaged_safetensors),
    ),
    Target("npz", 14_000, npz, partial(attempt, ".npz", damaged_zip)),
    Target("csv", 24_000, csv_files, partial(attempt, ".csv", damaged_csv)),
    Target("parquet", 12_000, parquet, partial(attempt, ".parquet", retyped_parquet)),
]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Every format."""
    return run_attack(TARGETS, scale, seed, progress)
