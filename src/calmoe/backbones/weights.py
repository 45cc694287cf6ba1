"""Pretrained weights for a ResNet, under torchvision's names: a local file or one on the Hugging Face hub."""

import logging
import warnings
from functools import cache
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from calmoe.backbones.pickles import check_effort
from calmoe.backbones.resnet import BLOCKS, STAGES, ResNet
from calmoe.errors import InputError, about
from calmoe.escaping import visible
from calmoe.tensor_files import read_tensors
from calmoe.text_encoders import files_digest
from calmoe.validation import FLOATS, check_finite

HUB = "hf:"
HUB_FILE = "model.safetensors"
COUNTER = "num_batches_tracked"
LAST_LAYER = "fc."  # ImageNet's own classes


def load_pretrained(backbone: nn.Module, weights: str | Path) -> None:
    """Load the weights that `fitting_weights` gives into the backbone."""
    backbone.load_state_dict(backbone.state_dict() | fitting_weights(backbone, weights))


def fitting_weights(backbone: nn.Module, weights: str | Path) -> dict[str, Tensor]:
    """The weights without the last layer; an InputError names those that do not fit.

    `weights` is a .safetensors file, a .pth or .pt of torchvision, or "hf:owner/name" on the hub.
    """
    path = weights_file(weights)
    if not isinstance(backbone, ResNet):
        raise InputError(
            f"weights={path} needs a ResNet: choose backbone resnet18, resnet34 or resnet50, or no weights"
        )
    tensors, variant = _read(path)
    if variant and variant != backbone.variant and backbone.bottleneck:
        raise InputError(
            f"{path} is of variant {variant}, this ResNet of {backbone.variant}: set variant={variant}"
        )
    theirs = {name: tensor for name, tensor in tensors.items() if not name.startswith(LAST_LAYER)}
    for name, tensor in theirs.items():
        if tensor.dtype not in (*FLOATS, torch.int64) or tensor.layout != torch.strided:
            raise InputError(f"{path}: {name} must hold floating-point numbers, not {tensor.dtype}")
    ours = backbone.state_dict()
    counters = {name for name in ours if name.endswith(COUNTER)}  # older files have none
    problems = {
        "missing": sorted(ours.keys() - theirs.keys() - counters),
        "unexpected": sorted(theirs.keys() - ours.keys()),
        "of another shape": [
            name for name in ours if name in theirs and ours[name].shape != theirs[name].shape
        ],
    }
    if any(problems.values()):
        details = "; ".join(
            f"{len(names)} {what}: {_few(names)}" for what, names in problems.items() if names
        )
        advice = _settings_between(ours, theirs)
        raise InputError(f"{path} does not fit this ResNet's depth, stem and stages{advice} ({details})")
    with about(path):
        check_finite(theirs)
    return theirs


def _settings_between(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> str:
    """What to set for a ResNet that these weights fit; nothing if they fit none."""
    mine, needed = _settings_of(ours), _settings_of(theirs)
    wanted = [f" --set {k}={v}" for k, v in needed.items() if mine.get(k) != v]
    return f", give{''.join(wanted)}" if wanted else ""


def _settings_of(weights: dict[str, Tensor]) -> dict[str, str | int]:
    """The settings of the ResNet whose weights these are, by names and shapes."""
    shapes = _shapes(weights)
    for depth, stem, stages in product(BLOCKS, STAGES, (3, 4)):
        if shapes == _shapes_of_resnet(depth, stem, stages):
            return {"backbone": f"resnet{depth}", "stem": stem, "stages": stages}
    return {}


@cache
def _shapes_of_resnet(depth: int, stem: str, stages: int) -> dict[str, torch.Size]:
    with torch.device("meta"):
        return _shapes(ResNet(depth, stem=stem, stages=stages).state_dict())


def _shapes(weights: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in weights.items() if not name.endswith(COUNTER)}


def weights_digest(weights: str | Path) -> str:
    """SHA-256 of the file: what was trained from it does not depend on where it lies."""
    return files_digest([weights_file(weights)])


def weights_file(weights: str | Path) -> Path:
    """The local file; what is on the hub is downloaded once, into the hub's own cache."""
    if isinstance(weights, str) and weights.startswith(HUB):
        return _from_hub(weights)
    path = Path(weights).expanduser()
    if not path.is_file():
        problem = f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}"
        raise InputError(
            f"{problem}: give a .safetensors or .pth file with torchvision's names, "
            f"or {HUB}owner/name on the Hugging Face hub, such as {HUB}timm/resnet18.tv_in1k"
        )
    return path


def _from_hub(weights: str) -> Path:
    owner, _, rest = weights.removeprefix(HUB).partition("/")
    name, _, file = rest.partition("/")
    if not owner or not name:
        raise InputError(f"{weights!r} names no repository: write {HUB}owner/name or {HUB}owner/name/file")
    try:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
    except ImportError:
        raise InputError(
            f"{weights} needs huggingface_hub: pip install 'calmoe[hub]', or give a file"
        ) from None
    source = f"{owner}/{name}", file or HUB_FILE
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it would report every retry
    try:
        cached = try_to_load_from_cache(*source)
        return Path(cached if isinstance(cached, str) else hf_hub_download(*source))
    except (OSError, ValueError) as error:  # no network, no such repository or file, no such name
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(
            f"cannot get {weights} from the Hugging Face hub ({reason}): give a local file"
        ) from None


def _read(path: Path) -> tuple[dict[str, Tensor], str]:
    """All tensors by name, and the variant of ResNet where the file names it; no pickled code runs."""
    if path.suffix in (".pth", ".pt"):
        return _read_torch(path), ""
    with about(path):
        tensors, notes = read_tensors(path)
    return tensors, visible(notes.get("variant", "")).partition(":")[0]


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about foreign pickles: the message below says it all
            check_effort(path)
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # whatever a damaged or malicious file leads the reader to
        raise InputError(
            f"{path} is not a whole checkpoint of plain tensors: nothing in it was run"
        ) from None
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise InputError(f"{path} does not hold tensors by name: save the model's state_dict()")
    return content


def _few(names: list[str]) -> str:
    return visible(", ".join(names[:5]) + (", ..." if len(names) > 5 else ""))
