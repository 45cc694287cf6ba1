"""Attack: run and sweep folders, damaged as they are and resealed, under every command that reads them."""

import gzip
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from attack.commands import call
from attack.damage import damaged, damaged_json
from attack.figures import Progress, Tally
from attack.forging import OTHER_TARGETS, forge, injure
from attack.running import Lost, Target, Wrong
from attack.running import attack as run_attack
from attack.watching import unchanged
from calmoe.errors import InputError
from calmoe.experiments.run import Run
from calmoe.experiments.sealing import MARK, read_sealed, seal, write_sealed
from calmoe.experiments.store import RESULTS, SPEC
from calmoe.predictions import Predictions
from calmoe.report import curves, write
from calmoe.report.curves_file import read_curves
from calmoe.report.sources import run_curves

SMALL = [f"--set={setting}" for setting in ("epochs=2", "warmup=1", "hidden=[4]", "experts=2")]
ROWS = 24
DECOYS = {
    "mine.png": b"mine",
    "results.jsonl": b"mine",
    ".notes.0123456789abcdef": b"mine",
    "figures/mine.png": b"mine",
    "report.html": b"mine",
    "victim": b"mine",
}

Files = dict[str, bytes]


class Seeds(NamedTuple):
    """Files by path of a run, of the same run under PACS's name, of a sweep; an export of the run."""

    run: Files
    pacs: Files
    sweep: Files
    exported: Files


# --- the seeds


def prepare(folder: Path) -> Seeds:
    """The seeds; trained once, wherever they are asked for first."""
    return _trained()


@cache
def _trained() -> Seeds:
    with tempfile.TemporaryDirectory() as folder:
        return _train(Path(folder))


def _train(folder: Path) -> Seeds:
    """A run and a sweep on digits of two epochs, cut to a few rows."""
    run, sweep, pacs = folder / "run", folder / "sweep", folder / "pacs"
    call(["run", "digits", "--methods=vanilla,robust", "--seeds=42", f"--out={run}", *SMALL])
    call(["sweep", "eta", "digits", "--values=1,2", "--seeds=42", f"--out={sweep}", *SMALL])
    for path in (run, sweep):
        _cut(path)
    call(["run", "digits", "--only-report", f"--out={run}"])
    call(["sweep", "eta", "digits", "--only-report", f"--out={sweep}"])
    call(["export", str(run), f"--to={folder / 'exported'}"])
    shutil.copytree(run, pacs)
    record = read_sealed(pacs / SPEC)
    record["spec"] |= {"dataset": "pacs", "target": "sketch"}
    write_sealed(pacs / SPEC, record | {"protocols": ["corrected", "published"]})
    call(["run", "pacs", "--target=sketch", "--only-report", f"--out={pacs}"])
    return Seeds(*(_files(path) for path in (run, pacs, sweep, folder / "exported")))


def _cut(folder: Path) -> None:
    """Keep a few rows of every node's predictions, and no weights: cases are read thousands of times."""
    for mark in folder.glob(f"nodes/*/{MARK}"):
        facts = read_sealed(mark)
        names = [name for name in facts.pop("files") if not name.startswith("model.")]
        for path in mark.parent.glob("*.safetensors"):
            if path.stem in ("validation", "validation_augmented", "test"):
                Predictions.load(path).take(range(ROWS)).save(path)
            elif path.stem == "model":
                path.unlink()
        seal(mark.parent, names, **facts)


def _files(folder: Path) -> Files:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _write(files: Files, folder: Path) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


# --- the commands


def without_figures() -> None:
    """Reports in milliseconds: drawing takes seconds, and tells nothing of reading."""
    write.figures = lambda *_, **__: ({}, {}, {})
    write.overview_figures = lambda *_, **__: ({}, {})
    curves.TEMPERATURES = np.array([0.5, 1.0, 2.0])


def attempt(random: Random, seeds: Seeds, folder: Path) -> None:
    """Damage a folder and let a command read it; it changes nothing but its own files."""
    without_figures()
    kind = random.choice(("run", "run", "pacs", "sweep"))
    files = getattr(seeds, kind)
    here = folder / "deep" / "er"
    run = _write(files, here / kind)
    damage = random.choice((injure, forge))
    damage(run, random)
    _write(DECOYS, here / "own")
    before = _results(run)
    arguments, written = _command(kind, run, here, random)
    try:
        with unchanged(folder, lambda path: _may_change(path, f"deep/er/{kind}", written)):
            call(arguments)
    except InputError:
        if _results(run) != before:
            raise Lost(len(before)) from None
        raise
    if damage is injure:
        _check_injured(arguments, files, _results(run), seeds, here / "new")


def _results(run: Path) -> bytes:
    return (run / RESULTS).read_bytes() if (run / RESULTS).is_file() else b""


def _command(kind: str, run: Path, here: Path, random: Random) -> tuple[list[str], str]:
    """A command over the folder, and where it may write beside the folder's own results."""
    new = str(here / "new")
    dataset = {"run": ["run", "digits"], "pacs": ["run", "pacs"], "sweep": ["sweep", "eta", "digits"]}[kind]
    second = _second(run, here, random) if random.random() < 0.5 else []
    commands: list[tuple[list[str], str]] = [
        ([*dataset, "--only-report", f"--out={run}"], "results"),
        ([*dataset, "--dry-run", f"--out={run}", *SMALL[: random.choice((0, 4))]], ""),
        (["export", str(run), f"--to={new}", *random.choice(([], ["--scaled"]))], "new"),
        (["compare", str(run), *random.choice(([], ["--dataset=pacs_sketch"]))], ""),
        (["report", str(run), *second, f"--to={new}"], "new"),
        (["report", str(run), f"--to={here / 'own'}"], "own"),
    ]
    chosen, written = random.choices(commands, weights=(20, 4, 25, 15, 12, 4))[0]
    return ([*chosen, "--target=sketch"], written) if chosen[:2] == ["run", "pacs"] else (chosen, written)


def _second(run: Path, here: Path, random: Random) -> list[str]:
    """A copy of the run whose target is another, so that the report is over two."""
    second = here / "second"
    shutil.copytree(run, second)
    try:
        record = read_sealed(second / SPEC)
        record["spec"]["target"] = random.choice((*OTHER_TARGETS, str(here / "escaped")))
        write_sealed(second / SPEC, record)
    except Exception:  # its record is damaged too much: as it is
        pass
    return [str(second)]


def _may_change(path: str, run: str, written: str) -> bool:
    if written == "results":
        return path in (f"{run}/{RESULTS}", f"{run}/{MARK}", f"{run}/.lock")
    if written == "new":
        return path == "deep/er/new" or path.startswith("deep/er/new/")
    if written == "own":  # a report among files that are not its own
        name = path.removeprefix("deep/er/own/")
        return name not in DECOYS and path.startswith("deep/er/own/")
    return path == f"{run}/.lock"


def _check_injured(arguments: list[str], files: Files, results: bytes, seeds: Seeds, new: Path) -> None:
    """Damage is told or mended, never used: rows are a subset of the old ones, exports are the old ones."""
    if "--only-report" in arguments and not set(results.splitlines()) <= set(files[RESULTS].splitlines()):
        raise Wrong("damage changed the results: other rows")
    if arguments[0] == "export" and files is seeds.run and "--scaled" not in arguments:
        for name, content in _files(new).items():
            if name.endswith(".safetensors") and content != seeds.exported[name]:
                raise Wrong(f"damage changed an export: {name}")


# --- curves


def _curves(folder: Path) -> list[Any]:
    return [json.loads(json.dumps(run_curves(Run.open(_write(prepare(folder).run, folder / "run")))))]


def attempt_curves(random: Random, seeds: list[Any], folder: Path) -> None:
    value = random.choice(seeds)
    data = (
        damaged_json(value, random) if random.random() < 0.6 else damaged(json.dumps(value).encode(), random)
    )
    if random.random() < 0.5:
        packed = gzip.compress(data)
        path, data = folder / "curves.json.gz", packed if random.random() < 0.3 else damaged(packed, random)
    else:
        path = folder / "curves.json"
    path.write_bytes(data)
    with unchanged(folder):
        loaded = read_curves(path)
    given = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    if loaded != given and json.dumps(loaded) != json.dumps(given):
        raise Wrong("other curves than the file's")


TARGETS = [
    Target("run-folders", 3000, prepare, attempt),
    Target("curves", 1500, _curves, attempt_curves),
]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Every reader of a run's folder."""
    return run_attack(TARGETS, scale, seed, progress)
