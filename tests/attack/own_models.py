"""Attack: model folders, each with one file damaged, missing, strange or a link, under `calmoe predict`."""

import io
import json
import random as randomness
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from attack.commands import call
from attack.containers import damaged_safetensors, damaged_zip
from attack.damage import damaged, damaged_json, damaged_value
from attack.figures import Progress, Tally
from attack.own_data import Files, quickly_drawn, read_folder, sound_file, told, trained_models, write_folder
from attack.running import Foreign, Target, Wrong
from attack.running import attack as run_attack
from calmoe.predictions import Predictions

SAFE = ("README.md", "report.html", "held_out.safetensors")  # that prediction does not read
HOSTILE = (
    {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode", "content": "touch canary"},
    {"__class__": "eval", "__module__": "builtins", "__loader__": "TypeNode"},
    {"__class__": "Popen", "__module__": "subprocess", "__loader__": "ObjectNode", "content": {}},
    {"__class__": "dict", "__module__": "builtins", "__loader__": "NoSuchNode"},
)


class Seed(NamedTuple):
    """A model's files, new data for it by path, what it is given, and what it says of them."""

    model: Files
    data: Files
    given: str
    probs: np.ndarray


@cache
def seeds() -> list[Seed]:
    """Models of tables, texts and images, and their sound predictions."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        quickly_drawn()
        table = {"new.csv": sound_file()}
        given = [(files, table, "new.csv") for files in trained_models().values()]
        given += [_texts(place / "texts"), _images(place / "images")]
        return [_said(*each, place / f"said-{i}") for i, each in enumerate(given)]


def _said(model: Files, data: Files, given: str, folder: Path) -> Seed:
    write_folder(model, folder / "model")
    write_folder(data, folder)
    call(["predict", str(folder / "model"), str(folder / given), f"--out={folder}/p.safetensors"])
    return Seed(model, data, given, Predictions.load(folder / "p.safetensors").output.probs.numpy())


def _texts(folder: Path) -> tuple[Files, Files, str]:
    from encoders import save_encoder

    folder.mkdir()
    encoder, chance = save_encoder(folder / "encoder"), randomness.Random(0)
    words = [("yes", "good"), ("no", "awful")]
    rows = [{"late": label, "t": f"you are {word}"} for label, word in chance.choices(words, k=40)]
    data = "\n".join(map(json.dumps, rows)).encode()
    (folder / "new.jsonl").write_bytes(data)
    options = ("--label=late", "--text=t", f"--encoder={encoder}", "--set=epochs=1")
    call(["train", str(folder / "new.jsonl"), *options, f"--out={folder}/model"])
    return read_folder(folder / "model"), {"new.jsonl": data}, "new.jsonl"


def _images(folder: Path) -> tuple[Files, Files, str]:
    from image_folders import write_images

    write_images(folder / "photos", domains=("photo", "sketch"), count=5, side=8)
    small = [f"--set={setting}" for setting in ("backbone=mlp", "size=8", "epochs=1")]
    call(["train", str(folder / "photos"), *small, f"--out={folder}/model"])
    data = {f"photos/{name}": content for name, content in read_folder(folder / "photos").items()}
    return read_folder(folder / "model"), data, "photos"


# --- damage


def _changed(name: str, data: bytes, random: Random) -> bytes:
    if name.endswith(".json") and random.random() < 0.8:
        return damaged_json(json.loads(data), random)
    if name.endswith(".safetensors") and random.random() < 0.8:
        return damaged_safetensors(data, random)
    if name.endswith(".skops"):
        return damaged_zip(data, random) if random.random() < 0.4 else _rewritten(data, random)
    return damaged(data, random)


def _rewritten(data: bytes, random: Random) -> bytes:
    """A sound archive whose schema says something else, such as a type that would do harm."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member == "schema.json":
                schema = json.loads(content)
                content = json.dumps(_poisoned(schema, random)).encode(errors="replace")
            elif random.random() < 0.2:
                content = damaged(content, random)
            new.writestr(member, content)
    return stream.getvalue()


def _poisoned(schema: Any, random: Random) -> Any:
    if random.random() < 0.5:
        return damaged_value(schema, random)
    node, inside = schema, schema.get("content", {})
    while isinstance(inside, dict) and inside and random.random() < 0.8:
        key = random.choice(list(inside))
        if not isinstance(inside[key], dict):
            break
        node, inside = inside[key], inside[key].get("content", {})
    node.update(random.choice(HOSTILE))
    return schema


def _damage(model: Path, files: Files, random: Random) -> str:
    """One file is not as it was; its name."""
    weights = [3 if name in ("model.json", "model.safetensors") else 1 for name in files]
    name = random.choices(list(files), weights)[0]
    path, kind = model / name, random.random()
    if kind < 0.05:
        path.unlink()
    elif kind < 0.1:
        path.unlink()
        path.symlink_to(random.choice(("/etc/passwd", "/dev/zero", "../victim", "nowhere", ".")))
    elif kind < 0.13:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(_changed(name, files[name], random))
    return name


def attempt(random: Random, given: list[Seed], folder: Path) -> None:
    """Probabilities are probabilities; where nothing that counts was damaged, they are the sound ones."""
    seed = random.choice(given)
    write_folder(seed.data, folder)
    (folder / "victim").write_bytes(b"mine")
    name = _damage(write_folder(seed.model, folder / "model"), seed.model, random)
    out = random.choice(("p.safetensors", "p.safetensors", "p.csv"))
    told(["predict", "model", seed.given, f"--out={out}"], folder, out)
    if list(folder.rglob("canary")):
        raise Foreign("a model's file ran code")
    probs = Predictions.load(folder / out).output.probs.numpy()
    if not np.isfinite(probs).all() or np.abs(probs.sum(axis=1) - 1).max() > 1e-4:
        raise Wrong("probabilities do not add up")
    harmless = name in (*SAFE, "card.json", "taught.safetensors")
    if harmless and out.endswith(".safetensors") and np.abs(probs - seed.probs).max() > 1e-6:
        raise Wrong(f"other probabilities, though only {name} is damaged")


TARGETS = [Target("model-folders", 2500, lambda folder: seeds(), attempt)]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Model folders."""
    return run_attack(TARGETS, scale, seed, progress)
