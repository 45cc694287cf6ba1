"""Attack: tables of one's own under `calmoe init`, `train` and `predict`, and the specs of `calmoe init`.

Every table has forty rows before its damage: the attack in full reads more than 100,000 of them.
"""

import io
import json
import os
import tempfile
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from attack.commands import call
from attack.damage import damaged, damaged_value
from attack.figures import Progress, Tally
from attack.own_readings import check_table
from attack.own_tables import (
    CELLS,
    GROUP,
    HEADERS,
    LABEL,
    NAMES,
    as_csv,
    hostile_file,
    hostile_rows,
    sound_rows,
)
from attack.running import Target, Wrong
from attack.running import attack as run_attack
from attack.watching import unchanged
from calmoe.errors import InputError
from calmoe.own_data.spec import read_spec
from calmoe.own_data.tables import read_table
from calmoe.predictions import Predictions

QUICK = ("--model=network", "--set=epochs=1")
Files = dict[str, bytes]

# --- seeds


class Sound(Random):
    """Chooses the first of everything: a file without any damage."""

    def random(self) -> float:
        return 0.999

    def choice(self, seq: Sequence[Any]) -> Any:
        return seq[0]


def sound_file(rows: int = 40) -> bytes:
    return as_csv(sound_rows(Random(1), rows), Sound(1)).data


@cache
def trained_models() -> dict[str, Files]:
    """The files of two models for tables, by name; trained wherever they are asked for first."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "table.csv")
        data.write_bytes(sound_file(120))
        options = (f"--label={LABEL}", f"--group={GROUP}")
        quickly_drawn()
        call(["train", str(data), *options, *QUICK, f"--out={folder}/network"])
        call(["train", str(data), *options, f"--out={folder}/mixture"])
        return {name: read_folder(Path(folder, name)) for name in ("network", "mixture")}


def read_folder(folder: Path) -> Files:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def write_folder(files: Files, folder: Path) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def quickly_drawn() -> None:
    """Figures become pictures of one pixel: drawing takes half a second, and tells nothing of reading."""
    stream = io.BytesIO()
    Image.new("RGB", (1, 1)).save(stream, "PNG")
    Figure.savefig = lambda _, file, **__: file.write(stream.getvalue())  # type: ignore[method-assign]


# --- commands


def told(arguments: Sequence[str], folder: Path, output: str) -> None:
    """Run a command that may write `output` and nothing else, and leaves no part of it where it refuses."""
    try:
        with unchanged(folder, lambda path: path == output or path.startswith(f"{output}/")):
            call(arguments)
    except InputError:
        if os.path.lexists(folder / output):
            raise Wrong("a refusal leaves files behind") from None
        raise
    if not (folder / output).exists():
        raise Wrong(f"it says that it wrote {output}, and did not")


def _maybe(random: Random, option: str, usual: str, odd: Sequence[str], share: float) -> list[str]:
    if random.random() > share:
        return []
    value = usual if random.random() < 0.8 else random.choice(odd)
    return [f"{option}={value}"]


def _options(random: Random) -> list[str]:
    """A label and a few other options, mostly sensible."""
    cells = [cell for cell in CELLS if "\0" not in cell and len(cell) < 1000]
    names = [*NAMES, *(name for name in HEADERS if "\0" not in name)]
    shifts = [
        f"region={random.choice(cells)}",
        f"{random.choice(names)}={random.choice(cells)}",
        "region",
        "=",
    ]
    return [
        *([f"--label={LABEL}"] if random.random() < 0.95 else [f"--label={random.choice(names)}"]),
        *_maybe(random, "--group", GROUP, names, 0.5),
        *_maybe(random, "--group", "town", names, 0.1),
        *_maybe(random, "--drop", "code", names, 0.2),
        *_maybe(random, "--shift", "region=north", shifts, 0.2),
        *_maybe(random, "--expect-shift", "town", names, 0.1),
        *_maybe(random, "--held-out", "0.3", ("0", "0.9", "0.899", "-1", "nan", "1e-9", "x"), 0.1),
        *_maybe(random, "--seed", "7", ("-1", "4294967296", "99999999999999999999"), 0.1),
        *_maybe(random, "--text", "town", names, 0.03),
    ]


def attempt_table(random: Random, seeds: None, folder: Path) -> None:
    """A table is what another reading finds; `calmoe init` understands it, or refuses it in a line."""
    suffix, data = hostile_file(random, hostile_rows(random))
    path = folder / f"table{suffix}"
    path.write_bytes(data)
    options = _options(random)
    told(["init", str(path), *options, "--out=spec.toml"], folder, "spec.toml")
    check_table(read_table(path).columns, path)
    spec = read_spec(folder / "spec.toml")
    if spec.data.resolve() != path.resolve() or f"--label={spec.label}" not in options:
        raise Wrong("the spec names other data, or another label")
    if spec.seed and f"--seed={spec.seed}" not in options:
        raise Wrong("the spec has another seed")


def attempt_training(random: Random, seeds: None, folder: Path) -> None:
    """What trains predicts the very table that it was trained on, and the audit's reader takes it."""
    quickly_drawn()
    suffix, data = hostile_file(random, hostile_rows(random, most=2))
    path = folder / f"table{suffix}"
    path.write_bytes(data)
    quick = QUICK if random.random() < 0.5 else ()
    compare = ("--compare",) if quick and random.random() < 0.03 else ()
    told(["train", str(path), *_options(random), *quick, *compare, "--out=model"], folder, "model")
    try:
        _predict(path, folder, random)
    except InputError as error:
        raise Wrong(f"predict refuses what was trained on: {error}") from None


def _predict(path: Path, folder: Path, random: Random, *options: str) -> None:
    out = f"predictions{random.choice(('.csv', '.csv', '.parquet', '.safetensors'))}"
    told(["predict", "model", str(path), *options, f"--out={out}"], folder, out)
    rows = len(next(iter(read_table(path).columns.values())))
    if len(Predictions.load(folder / out)) != rows:
        raise Wrong("other rows than the table's")


def _models(folder: Path) -> dict[str, Files]:
    return trained_models()


def attempt_prediction(random: Random, seeds: dict[str, Files], folder: Path) -> None:
    """New tables that lack columns, or have others, or the same of other types."""
    write_folder(seeds[random.choice(list(seeds))], folder / "model")
    suffix, data = hostile_file(random, hostile_rows(random))
    path = folder / f"new{suffix}"
    path.write_bytes(data)
    options = [
        *_maybe(random, "--label", LABEL, NAMES, 0.2),
        *_maybe(random, "--group", "town", (*NAMES, "x"), 0.2),
    ]
    _predict(path, folder, random, *options)


# --- specs


def _spec(folder: Path) -> bytes:
    path = folder / "table.csv"
    path.write_bytes(sound_file())
    call(["init", str(path), f"--label={LABEL}", f"--group={GROUP}", f"--out={folder}/spec.toml"])
    return (folder / "spec.toml").read_bytes()


def attempt_spec(random: Random, seeds: bytes, folder: Path) -> None:
    """A spec of any values, or damaged in its bytes; what is read is written again as the same spec."""
    (folder / "table.csv").write_bytes(sound_file())
    path = folder / "spec.toml"
    if random.random() < 0.4:
        path.write_bytes(damaged(seeds, random))
    else:
        given = tomllib.loads(seeds.decode()) | {"text": "", "domain": "", "expect_shift": "", "encoder": ""}
        given |= {"model": "network"}
        given["network"] = {"backbone": "", "epochs": 3, "experts": 8, "batch": 8, "rho": 0.2, "average": 0}
        path.write_bytes(as_toml(damaged_value(given, random)))
    with unchanged(folder):
        spec = read_spec(path)
    told(["init", "spec.toml", "--out=again.toml"], folder, "again.toml")
    again = read_spec(folder / "again.toml")
    for name in (
        "label",
        "text",
        "groups",
        "shift",
        "drop",
        "domain",
        "held_out",
        "seed",
        "model",
        "network",
    ):
        if getattr(spec, name) != getattr(again, name):
            raise Wrong(f"{name} is another in the spec that was written")


def as_toml(table: Any) -> bytes:
    """A table as TOML, as far as its values can be written so."""
    if not isinstance(table, dict):
        return json.dumps(table).encode()
    inner = {name: value for name, value in table.items() if isinstance(value, dict)}
    lines = [f"{json.dumps(name)} = {json.dumps(v)}" for name, v in table.items() if name not in inner]
    for name, values in inner.items():
        lines += [f"[{json.dumps(name)}]", *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in values.items())]
    return "\n".join(lines).replace('"\\ue000raw\\ue000', "").replace('\\ue000raw\\ue000"', "").encode()


TARGETS = [
    Target("own-tables", 2600, lambda folder: None, attempt_table),
    Target("own-training", 1000, lambda folder: None, attempt_training),
    Target("own-predictions", 1500, _models, attempt_prediction),
    Target("own-specs", 2000, _spec, attempt_spec),
]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Own data, from the table to its predictions."""
    return run_attack(TARGETS, scale, seed, progress)
