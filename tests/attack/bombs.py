"""Attack: small files and short options that ask for gigabytes, and must be refused before they get them."""

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from attack.commands import call
from attack.figures import Progress, Tally
from attack.options import nothing_trains
from attack.prediction_files import calmoe_safetensors, columns
from attack.running import Target
from attack.running import attack as run_attack
from calmoe.data.safe_pickle import read_plain
from calmoe.predictions import Predictions
from calmoe.report.curves_file import read_curves

CHUNK = 1 << 26
CHUNKS = 20  # 1.3 GB
SEEDS = ",".join(map(str, range(100_000)))


def _npz() -> bytes:
    """A megabyte that unpacks to more than one gigabyte of probabilities."""
    header, stream = io.BytesIO(), io.BytesIO()
    shape = (CHUNK * CHUNKS // 16, 2)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with (
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open("probs.npy", "w") as member,
    ):
        member.write(header.getvalue())
        for _ in range(CHUNKS):
            member.write(bytes(CHUNK))
    return stream.getvalue()


def _parquet() -> bytes:
    """A few kilobytes of one value, many million times."""
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    rows = pyarrow.table({name: np.full(CHUNK // 8, 0.5) for name in ("prob_0", "prob_1")})
    with pyarrow.parquet.ParquetWriter(stream, rows.schema, compression="zstd") as writer:
        for _ in range(CHUNKS // 2):
            writer.write_table(rows)
    return stream.getvalue()


def _csv(name: str) -> bytes:
    return f"prob_0,{name},label\n0.5,0.5,0\n".encode()


def _prepare(folder: Path) -> dict[str, bytes]:
    """Files by name."""
    nested = b"\x80\x02}" + b")" + b"\x85" * 3_000_000 + b"Ns."
    return {
        "packed.npz": _npz(),
        "packed.parquet": _parquet(),
        "wide.csv": _csv("prob_3000000000"),
        "wider.csv": _csv(f"prob_{'9' * 30}"),
        "widest.csv": _csv(f"prob_{'7' * 5000}"),
        "experts.csv": _csv("expert_99999_prob_99999"),
        "curves.json.gz": gzip.compress(b" " * CHUNK, 1) * CHUNKS,
        "data_batch_1": nested,
        "small.safetensors": calmoe_safetensors(folder)[1],
        "large.csv": _long_csv(),
    }


def _long_csv() -> bytes:
    """A sound file of a few hundred rows, so that an audit gets to its options."""
    names, rows = list(columns(True)), list(zip(*columns(True).values(), strict=True)) * 40
    cells = [",".join(f'"{value}"'.replace('"old"', "old") for value in row) for row in rows]
    return "\n".join([",".join(names), *cells]).encode()


def _read(load: Callable[[Path], Any], name: str) -> Callable[[], Any]:
    return lambda: load(Path(name))


def _call(*arguments: str) -> Callable[[], Any]:
    return lambda: call(arguments)


def _set(setting: str) -> Callable[[], Any]:
    return _call("run", "digits", "--dry-run", f"--set={setting}")


BOMBS: tuple[Callable[[], Any], ...] = (
    *(_read(Predictions.load, f"packed.{kind}") for kind in ("npz", "parquet")),
    *(_read(Predictions.load, f"{name}.csv") for name in ("wide", "wider", "widest", "experts")),
    _read(read_curves, "curves.json.gz"),
    _read(read_plain, "data_batch_1"),
    *(_set(f"{name}=1000000000") for name in ("experts", "router_hidden", "batch", "epochs")),
    *(
        _set(setting)
        for setting in ("hidden=[1000000000]", "hidden=[100000, 100000]", "gamma=1e300", "seeds=[]")
    ),
    _call("run", "digits", "--dry-run", f"--seeds={SEEDS}"),
    _call("run", "digits", "--dry-run", f"--set=seeds=[{SEEDS}]"),
    _call("sweep", "eta", "digits", "--dry-run", f"--values={SEEDS}"),
    _call("audit", "large.csv", "--bins=100000"),
    _call("audit", "large.csv", "--bins=99999999999999999999"),
    _call("audit", "small.safetensors", "--seed=99999999999999999999"),
)


def attempt(random: Random, seeds: dict[str, bytes], folder: Path) -> None:
    nothing_trains()
    for name, content in seeds.items():
        (folder / name).write_bytes(content)
    random.choice(BOMBS)()


TARGETS = [Target("bombs", 100, _prepare, attempt)]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """All of them, most likely: a hundred draws of two dozen."""
    return run_attack(TARGETS, scale, seed, progress)
