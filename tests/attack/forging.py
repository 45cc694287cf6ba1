"""Damage to run folders: as a disk does it, and as somebody does who knows how seals are made."""

import hashlib
import json
from pathlib import Path
from random import Random

from attack.containers import damaged_safetensors
from attack.damage import damaged, damaged_json, damaged_value
from calmoe.experiments.sealing import MARK, read_sealed, seal, write_sealed
from calmoe.experiments.store import ENVIRONMENT, HISTORY, RESULTS, SPEC

OTHER_TARGETS = (
    *("../../escaped", "..", ".", "/", "a/b", "~", "\x1b[31mred", "=cmd|' /C calc'!A0", "<script>", "|"),
    *("a\nb", " ", "figures", "tables", "\0", "\ud800", "%", "report.html", "photo", "x" * 300),
)


def injure(folder: Path, random: Random) -> None:
    """One file of the folder, as a disk would."""
    path = random.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    data = path.read_bytes()
    if path.suffix == ".json" and random.random() < 0.5:
        path.write_bytes(damaged_json(json.loads(data), random))
    elif random.random() < 0.1:
        path.unlink()
    else:
        path.write_bytes(damaged(data, random))


def forge(folder: Path, random: Random) -> None:
    """One file of the folder, as somebody would who knows how seals are made."""
    kind = random.choice((_forge_spec, _forge_spec, _forge_target, _forge_environment, _forge_mark))
    random.choice((kind, _forge_results, _forge_history, _forge_predictions, _forge_state))(folder, random)


def _forge_sealed(path: Path, random: Random) -> None:
    value = damaged_value(read_sealed(path), random)
    try:
        write_sealed(path, json.loads(json.dumps(value)))
    except TypeError:  # no table any more: it cannot be sealed
        path.write_bytes(json.dumps(value).encode())


def _forge_spec(folder: Path, random: Random) -> None:
    _forge_sealed(folder / SPEC, random)


def _forge_target(folder: Path, random: Random) -> None:
    record = read_sealed(folder / SPEC)
    name = random.choice((*OTHER_TARGETS, str(folder.parent / "escaped")))
    changed = {random.choice(("target", "target", "protocol", "dataset")): name}
    write_sealed(folder / SPEC, record | {"spec": record["spec"] | {"dataset": "domains"} | changed})


def _forge_environment(folder: Path, random: Random) -> None:
    _forge_sealed(folder / ENVIRONMENT, random)


def _forge_mark(folder: Path, random: Random) -> None:
    path = random.choice([folder / MARK, *sorted(folder.glob(f"nodes/*/{MARK}"))])
    if random.random() < 0.5:
        _forge_sealed(path, random)
        return
    mark = read_sealed(path)
    names = ("/dev/zero", "/dev/stdin", "../../victim", "/proc/self/mem", "", ".", "nodes", "x\0", "a" * 300)
    write_sealed(path, mark | {"files": {random.choice(names): random.choice(list(mark["files"].values()))}})


def _forge_results(folder: Path, random: Random) -> None:
    rows = [json.loads(line) for line in (folder / RESULTS).read_text().splitlines()]
    row = random.randrange(len(rows))
    lines = [json.dumps(each).encode() for each in rows]
    lines[row] = damaged_json(rows[row], random).replace(b"\n", b" ")
    (folder / RESULTS).write_bytes(b"\n".join(lines) + b"\n")
    seal(folder, [RESULTS], rows=len(rows))


def _node(folder: Path, random: Random, pattern: str) -> Path:
    return random.choice(sorted(folder.glob(f"nodes/*/{pattern}")))


def _reseal(path: Path, old: str | None = None) -> None:
    """The node's mark again, over its file as it is now; `old` is the name that it had."""
    facts = read_sealed(path.parent / MARK)
    names = {path.name if name == old else name for name in facts.pop("files")}
    seal(path.parent, names, **facts)


def _forge_history(folder: Path, random: Random) -> None:
    path = _node(folder, random, HISTORY)
    path.write_bytes(damaged_json(json.loads(path.read_bytes()), random))
    _reseal(path)


def _forge_predictions(folder: Path, random: Random) -> None:
    path = _node(folder, random, "[tv]*.safetensors")
    path.write_bytes(damaged_safetensors(path.read_bytes(), random))
    _reseal(path)


def _forge_state(folder: Path, random: Random) -> None:
    path = _node(folder, random, "state-*.safetensors")
    data = damaged_safetensors(path.read_bytes(), random)
    digest = hashlib.sha256(data).hexdigest()[:32]
    path.unlink()
    renamed = path.with_name(f"{path.stem.rpartition('-')[0]}-{digest}.safetensors")
    renamed.write_bytes(data)
    _reseal(renamed, path.name)
