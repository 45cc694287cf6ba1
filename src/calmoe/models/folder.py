"""The model folder: safetensors and JSON, self-contained, written whole or not at all.

model.json           kind, classes, architecture, preparation of inputs, temperatures
model.safetensors    weights
encoder/             a text encoder: configuration, trained weights, tokenizer
experts/             scikit-learn's models, as skops files
calibrator.json      what repairs its probabilities, if anything does
taught.safetensors   what recognises the rows that it was trained on, if `calmoe train` made it
card.json, README.md what it was trained on, its scores; for programs and for people
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch

from calmoe.backbones import Encoder
from calmoe.calibration import Calibrator
from calmoe.errors import InputError, about, shown
from calmoe.files import inside, legible, write_json, write_whole
from calmoe.models.architecture import Architecture
from calmoe.models.card import Card
from calmoe.models.folders import CALIBRATOR, load_calibrated_moe, load_mixture_of_models
from calmoe.models.inputs import TextInputs, inputs_as_dict, read_inputs
from calmoe.models.model import Model
from calmoe.models.network_model import NetworkModel, with_weights
from calmoe.models.saved import exactly, read_classes
from calmoe.models.table_model import TableModel
from calmoe.models.taught import Taught
from calmoe.tensor_files import read_tensors
from calmoe.text_encoders import CONFIG, TOKENIZER, tokenizer_files
from calmoe.text_encoders import WEIGHTS as ENCODER_WEIGHTS
from calmoe.validation import items, number, read_document, table, whole

FORMAT, NETWORK = "calmoe.model/1", "network"
MODEL, WEIGHTS, CARD, README, ENCODER, TAUGHT = (
    "model.json",
    "model.safetensors",
    "card.json",
    "README.md",
    "encoder",
    "taught.safetensors",
)
INSIDE = "backbone.model."  # the encoder's weights in those of the network
KEYS = ("format", "kind", "classes", "architecture", "inputs", "temperature", "expert_temperatures")


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A folder beside `folder` to write into, which becomes it at the end; after an error nothing is left."""
    place = Path(folder)
    if os.path.lexists(place) and (place.is_symlink() or not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{legible(place)} is there already: name another folder, or move it elsewhere")
    made = [path for path in place.parents if not path.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    temporary.mkdir()
    try:
        yield temporary
        os.replace(temporary, place)  # an empty folder is replaced too
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for path in made:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise


def save_network(model: NetworkModel, folder: str | Path) -> None:
    """Write a network's folder."""
    with new_folder(folder) as place:
        write_network(model, place)


def save_table_model(model: TableModel, folder: str | Path) -> None:
    """Write an estimator's folder."""
    with new_folder(folder) as place:
        write_table_model(model, place)


def write_model(model: Model, place: Path) -> None:
    """Write any model into an empty folder."""
    if isinstance(model, NetworkModel):
        write_network(model, place)
    elif isinstance(model, TableModel):
        write_table_model(model, place)
    else:
        raise InputError(f"a {type(model).__name__} has no folder")


def write_table_model(model: TableModel, place: Path) -> None:
    model.estimator.save(place)
    _write_card(model, place)


def write_network(model: NetworkModel, place: Path) -> None:
    weights = {name: tensor.detach().cpu() for name, tensor in model.network.state_dict().items()}
    if isinstance(model.network.backbone, Encoder):
        _write_encoder(model, {n: t for n, t in weights.items() if n.startswith(INSIDE)}, place / ENCODER)
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith(INSIDE)}
    alone = {name: tensor.clone().contiguous() for name, tensor in weights.items()}
    write_whole(place / WEIGHTS, safetensors.torch.save(alone))
    described = {
        "format": FORMAT,
        "kind": NETWORK,
        "classes": model.classes,
        "architecture": model.architecture.as_dict(),
        "inputs": inputs_as_dict(model.inputs),
        "temperature": model.temperature,
        "expert_temperatures": model.expert_temperatures,
    }
    write_json(place / MODEL, described)
    _write_card(model, place)


def load_folder(folder: str | Path) -> Model:
    """The model in a folder that calmoe wrote; an InputError says what is wrong with any other."""
    place = Path(folder)
    if not (place / MODEL).is_file():
        raise InputError(f"{legible(place)} is no model folder: it has no {MODEL}")
    saved = read_document(place / MODEL)
    with about(legible(place / MODEL)):
        table("", saved, ("format", "kind"))
        if saved["format"] != FORMAT:
            raise InputError(f"format must be {FORMAT!r}, not {shown(saved['format'])}: update calmoe")
    model = _read_model(place, saved, read_card(place))
    model.taught = _read_taught(place)
    path = inside(place, CALIBRATOR)
    if not path.is_file():
        return model
    with about(legible(path)):
        return model.with_calibrator(Calibrator.from_dict(read_document(path)))


def _read_model(place: Path, saved: dict[str, Any], card: Card) -> Model:
    match saved["kind"]:
        case "network":
            return _read_network(place, saved, card)
        case "MixtureOfModels":
            return TableModel(load_mixture_of_models(place, ()), card)
        case "CalibratedMoEClassifier":
            return TableModel(load_calibrated_moe(place), card)
    raise InputError(f"{legible(place / MODEL)}: kind {shown(saved['kind'])} is not known: update calmoe")


def _read_network(place: Path, saved: dict[str, Any], card: Card) -> NetworkModel:
    with about(legible(place / MODEL)):
        exactly("", saved, KEYS)
        classes = read_classes(saved["classes"])
        architecture = Architecture.from_dict(saved["architecture"])
        inputs = read_inputs(saved["inputs"])
        if inputs.shape != architecture.shape or architecture.is_encoder != isinstance(inputs, TextInputs):
            raise InputError("inputs and architecture do not fit each other")
        experts = whole("num_experts", architecture.head["num_experts"], least=1)
        temperature = number("temperature", saved["temperature"], above=0)
        temperatures = saved["expert_temperatures"]
        if temperatures is not None:
            temperatures = items("expert_temperatures", temperatures, least=experts, most=experts)
            temperatures = [number("expert_temperatures", each, above=0) for each in temperatures]
        if architecture.head["num_classes"] != len(classes):
            raise InputError(f"{len(classes)} classes do not fit the head")
        encoder = _checked_encoder(place) if architecture.is_encoder else None
        path = _present(place, WEIGHTS)
        network = architecture.build(encoder)
    with about(legible(path)):
        weights, _ = read_tensors(path)
        if architecture.is_encoder:
            weights |= {n: t for n, t in network.state_dict().items() if n.startswith(INSIDE)}
        with_weights(network, weights)
    return NetworkModel(
        network,
        architecture,
        inputs,
        classes,
        temperature=temperature,
        expert_temperatures=temperatures,
        card=card,
        encoder=encoder,
    )


def _write_encoder(model: NetworkModel, weights: dict[str, Any], place: Path) -> None:
    """The encoder as transformers stores it: its trained weights, its configuration, its tokenizer."""
    if model.encoder is None:
        raise InputError("the model has no tokenizer: give encoder=, a folder with the encoder's files")
    place.mkdir()
    for path in tokenizer_files(model.encoder):
        write_whole(place / path.name, path.read_bytes())
    if not (place / CONFIG).is_file():
        write_whole(place / CONFIG, (model.encoder / CONFIG).read_bytes())
    named = {name.removeprefix(INSIDE): tensor.clone().contiguous() for name, tensor in weights.items()}
    write_whole(place / ENCODER_WEIGHTS, safetensors.torch.save(named, {"format": "pt"}))


def _checked_encoder(place: Path) -> Path:
    """The folder of the encoder; none of its files may be a link."""
    folder = inside(place, ENCODER)
    if not folder.is_dir():
        raise InputError(f"the folder {ENCODER} is missing beside it: copy the whole model folder")
    known = {*TOKENIZER, CONFIG, ENCODER_WEIGHTS}
    for path in sorted(folder.iterdir()):
        if path.name not in known or inside(folder, path.name).is_dir():
            raise InputError(f"{ENCODER}/{path.name} is no file of an encoder: remove it")
    return folder


def _write_card(model: Model, place: Path) -> None:
    if model.calibrator is not None:
        model.calibrator.save(place / CALIBRATOR)
    if model.taught is not None:
        model.taught.save(place / TAUGHT)
    write_json(place / CARD, model.card.as_dict())
    write_whole(place / README, model.card.markdown(model.kind, model.classes).encode())


def read_card(place: Path) -> Card:
    """The card; an empty one for a folder that an estimator's own `save` wrote."""
    path = inside(place, CARD)
    if not path.is_file():
        return Card()
    with about(legible(path)):
        return Card.from_dict(read_document(path))


def _read_taught(place: Path) -> Taught | None:
    """What recognises the rows of training; None for a folder of an older calmoe, or an estimator's."""
    path = inside(place, TAUGHT)
    if not path.is_file():
        return None
    with about(legible(path)):
        return Taught.load(path)


def _present(place: Path, name: str) -> Path:
    path = inside(place, name)
    if not path.is_file():
        raise InputError(f"{name} is missing beside it: copy the whole model folder")
    return path
