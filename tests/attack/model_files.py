"""Attack: heads and classifiers, a ResNet's weights, text encoders."""

import contextlib
import io
import json
import zipfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from attack.containers import damaged_safetensors, damaged_zip
from attack.damage import damaged, damaged_json
from attack.figures import Progress, Tally
from attack.pickles import CODE, damaged_pickle
from attack.readings import Malformed, read_safetensors
from attack.running import Target, Wrong
from attack.running import attack as run_attack
from attack.watching import unchanged
from calmoe.backbones.encoder import Encoder
from calmoe.backbones.resnet import ResNet
from calmoe.backbones.weights import fitting_weights
from calmoe.errors import InputError
from calmoe.mixture import MixtureClassifier, MixtureHead
from calmoe.text_encoders import load_tokenizer, transformers

# --- heads and classifiers


def _heads(folder: Path) -> list[tuple[bool, dict[str, bytes]]]:
    """Whether it is a classifier, and its files."""
    torch.manual_seed(0)
    for experts in (1, 3):
        MixtureHead(4, 3, experts, router_hidden=5).save_pretrained(folder / f"head-{experts}")
    half = MixtureClassifier(nn.Linear(2, 4), MixtureHead(4, 3, 2, 5, routing="top2")).bfloat16()
    half.save_pretrained(folder / "classifier")
    return [(path.name == "classifier", _files(path)) for path in sorted(folder.iterdir())]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def attempt_head(random: Random, seeds: Any, folder: Path) -> None:
    """The configuration and the weights are the files'; finite weights give probabilities."""
    classifier, files = random.choice(seeds)
    name = random.choice(list(files))
    if name == "config.json":
        changed = damaged_json(json.loads(files[name]), random)
    else:
        changed = damaged_safetensors(files[name], random, random.choice(seeds)[1][name])
    for each, content in (files | {name: changed}).items():
        (folder / each).write_bytes(content)
    with unchanged(folder):
        model: nn.Module = (
            MixtureClassifier.from_pretrained(folder, nn.Linear(2, 4))
            if classifier
            else MixtureHead.from_pretrained(folder)
        )
    head = model.head if isinstance(model, MixtureClassifier) else model
    config = json.loads((folder / "config.json").read_bytes())
    if head.config != config or any(isinstance(value, bool | float) for value in config.values()):
        raise Wrong(f"the configuration is not the file's: {head.config}, not {config}")
    _check_weights(model.state_dict(), folder / "model.safetensors")
    if len({tensor.dtype for tensor in model.parameters()}) > 1:
        return  # of several kinds of numbers, as a backbone may be: only its user knows what it takes
    inputs = torch.rand(2, 2 if classifier else config["in_features"])
    probs = model(inputs.to(next(model.parameters()).dtype)).probs.float()
    if _moderate(model) and not probs.isfinite().all():
        raise Wrong("finite weights give no probabilities: NaN")


def _moderate(model: nn.Module) -> bool:
    """No weight so large that finite ones overflow."""
    return all(float(weight.detach().abs().max()) < 1e4 for weight in model.parameters() if weight.numel())


def _check_weights(loaded: dict[str, Tensor], path: Path, but: str = "\0") -> None:
    """Every number is the file's, and finite."""
    stored = {name: tensor for name, tensor in _stored(path).items() if not name.startswith(but)}
    for name, tensor in loaded.items():
        if name not in stored:
            raise Wrong(f"a tensor is not the file's: {name}")
        if not tensor.double().isfinite().all():
            raise Wrong(f"NaN or infinite weights: {name}")
        if not tensor.equal(stored[name].to(tensor.dtype)):
            raise Wrong(f"another tensor than the file's: {name}")


def _stored(path: Path) -> dict[str, Tensor]:
    try:
        return read_safetensors(path.read_bytes())[0]
    except Malformed as error:
        raise Wrong(f"loaded though malformed ({error})") from None


# --- a ResNet's weights


class Tiny(ResNet):
    """The names of a ResNet, in a few hundred bytes."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.variant, self.bottleneck = "v1", True
        self.conv1, self.bn1 = nn.Conv2d(3, 2, 1, bias=False), nn.BatchNorm2d(2)


def _weights(folder: Path) -> dict[str, bytes]:
    torch.manual_seed(0)
    tensors = Tiny().state_dict() | {"fc.weight": torch.ones(2, 2), "fc.bias": torch.ones(2)}
    files = {".safetensors": safetensors.torch.save(tensors, {"variant": "v1: as published"})}
    for name, zipped in ((".pth", True), (".pt", False)):
        stream = io.BytesIO()
        torch.save(tensors, stream, _use_new_zipfile_serialization=zipped)
        files[name] = stream.getvalue()
    with contextlib.suppress(InputError):  # what fits no ResNet is compared with all of them: once here
        (folder / "other.safetensors").write_bytes(safetensors.torch.save({"other": torch.ones(1)}))
        fitting_weights(Tiny(), folder / "other.safetensors")
    return files


def attempt_safetensors_weights(random: Random, seeds: dict[str, bytes], folder: Path) -> None:
    path = folder / "weights.safetensors"
    path.write_bytes(damaged_safetensors(seeds[".safetensors"], random))
    with unchanged(folder):
        loaded = fitting_weights(Tiny(), path)
    _check_weights(loaded, path, but="fc.")


def attempt_torch_weights(random: Random, seeds: dict[str, bytes], folder: Path) -> None:
    """No second reader is at hand: what loads must be finite and, in a zip, pass its checksums."""
    suffix = random.choice((".pth", ".pth", ".pt"))
    path, whole = folder / f"weights{suffix}", seeds[suffix]
    if suffix == ".pth" and random.random() < 0.3:
        start, end = whole.index(b"\x80\x02"), whole.index(b"PK\x03\x04", 10)
        hostile = random.choice(CODE) if random.random() < 0.3 else damaged_pickle(whole[start:end], random)
        path.write_bytes(whole[:start] + hostile[: end - start].ljust(end - start, b"\0") + whole[end:])
    else:
        path.write_bytes(damaged_zip(whole, random) if suffix == ".pth" else damaged_pickle(whole, random))
    with unchanged(folder):
        loaded = fitting_weights(Tiny(), path)
    for name, tensor in loaded.items():
        if not tensor.double().isfinite().all():
            raise Wrong(f"infinite weights: {name}")
    if suffix == ".pth":
        _check_sums(path)


def _check_sums(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as file:
            member = file.testzip() or ""
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError) as error:
        raise Wrong(f"loaded though malformed ({type(error).__name__}): {error}") from None
    if "/data" in member:
        raise Wrong(f"loaded though its checksum is another: {member}")


# --- text encoders

FOREIGN_CODE = b'open("canary", "w").close()\nfrom transformers import DistilBertModel as Model\n'
AUTO_MAP = {
    "config.json": {"AutoModel": "code.Model", "AutoConfig": "code.Model"},
    "tokenizer_config.json": {"AutoTokenizer": ["code.Model", None]},
}


def _encoder(folder: Path) -> dict[str, bytes]:
    from encoders import save_encoder

    with transformers():  # silently
        return _files(save_encoder(folder))


def attempt_encoder(random: Random, seeds: dict[str, bytes], folder: Path) -> None:
    """The weights are the file's and the features finite; no code in the folder runs."""
    files = dict(seeds)
    name = random.choice(list(files))
    if name == "model.safetensors":
        files[name] = damaged_safetensors(files[name], random)
    elif name in AUTO_MAP and random.random() < 0.3:
        table = json.loads(files[name]) | {"auto_map": AUTO_MAP[name], "model_type": "own"}
        files |= {name: json.dumps(table).encode(), "code.py": FOREIGN_CODE}
    elif random.random() < 0.7:
        files[name] = damaged_json(json.loads(files[name]), random)
    else:
        files[name] = damaged(files[name], random)
    for each, content in files.items():
        (folder / each).write_bytes(content)
    with unchanged(folder):
        tokenizer = load_tokenizer(folder)
        encoder = Encoder(folder)
        ids = tokenizer(["you are a kind person ."], truncation=True, max_length=8)["input_ids"]
    stored = _stored(folder / "model.safetensors")
    known = {name: tensor for name, tensor in encoder.model.state_dict().items() if name in stored}
    _check_weights(known, folder / "model.safetensors")  # transformers renames and adds some
    with torch.no_grad():
        features = encoder.eval()(torch.tensor(ids, dtype=torch.int32))
    if _moderate(encoder) and not features.isfinite().all():
        raise Wrong("features are not finite: NaN")


TARGETS = [
    Target("heads", 6000, _heads, attempt_head),
    Target("weights-safetensors", 3000, _weights, attempt_safetensors_weights),
    Target("weights-pth", 3000, _weights, attempt_torch_weights),
    Target("encoders", 300, _encoder, attempt_encoder),
]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Every loader of trained models."""
    return run_attack(TARGETS, scale, seed, progress)
