"""Model folders of both estimators: JSON, safetensors, and skops for scikit-learn's own models; no pickle."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn

from calmoe.arrays import plain
from calmoe.errors import InputError, about, shown
from calmoe.files import inside, write_json, write_whole
from calmoe.models.calibrated_moe import CalibratedMoEClassifier
from calmoe.models.choice import Trial
from calmoe.models.classifier import TableClassifier
from calmoe.models.mixture_of_models import MixtureOfModels
from calmoe.models.network import make_network
from calmoe.models.preparation import Preparation
from calmoe.models.router import Router, check_kind
from calmoe.tensor_files import read_tensors
from calmoe.validation import (
    boolean,
    check_finite,
    check_shapes,
    items,
    number,
    numbers,
    read_document,
    table,
    text,
    whole,
)

FORMAT = "calmoe.model/1"
MODEL, WEIGHTS, EXPERTS = "model.json", "model.safetensors", "experts"
CALIBRATOR = "calibrator.json"
TRUSTED = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
)
"""Types that experts may consist of, beside those that skops itself knows to be harmless."""


def save_mixture_of_models(model: MixtureOfModels, folder: str | Path) -> None:
    """Write the folder; the description comes last, so that a folder without it is known to be unfinished."""
    skops_io = _skops()
    described = _described(model) | {
        "experts": [name for name, _ in model.experts_],
        "prior": model.prior_.tolist(),
        "eta": model.eta_,
        "router": {"kind": model.router_.kind, "expert": model.router_.expert},
        "trials": [[t.kind, t.expert, t.log_loss, t.epochs] for t in model.trials_],
    }
    settings = {"objective": model.objective, "expect_shift": model.expect_shift}
    numbers = {"eta": model.eta, "etas": list(model.etas), "prepare": model.prepare, "n_jobs": model.n_jobs}
    described["settings"] = settings | numbers
    dumped = {name: _dumped(skops_io, name, expert) for name, expert in model.experts_}
    place = _new_folder(folder)
    (place / EXPERTS).mkdir()
    for name, data in dumped.items():
        write_whole(inside(place, EXPERTS, f"{name}.skops"), data)
    _write(place, model.router_, described)


def load_mixture_of_models(folder: str | Path, trusted: Collection[str]) -> MixtureOfModels:
    """Read the folder; experts of types that are neither known nor `trusted` are refused."""
    place, saved = _read(folder, "MixtureOfModels")
    with about(place / MODEL):
        names = [text("experts", name, 80) for name in items("experts", saved.get("experts"), least=1)]
        settings = table("settings", saved.get("settings"), ("objective", "expect_shift", "eta", "etas"))
        model = MixtureOfModels(
            objective=text("objective", settings["objective"]),
            eta=number("eta", settings["eta"], least=0),
            etas=tuple(number("etas", eta, least=0) for eta in items("etas", settings["etas"])),
            expect_shift=settings["expect_shift"],
            prepare=boolean("prepare", settings.get("prepare")),
            n_jobs=settings.get("n_jobs"),
        )
        _restore(model, saved)
        model.prior_ = numbers("prior", saved.get("prior"), (len(model.classes_),))
        model.eta_ = number("eta", saved.get("eta"), least=0)
        model.trials_ = [_read_trial(each) for each in items("trials", saved.get("trials"))]
        described = table("router", saved.get("router"), ("kind", "expert"))
        expert = whole("expert", described["expert"], most=len(names) - 1)
        features = len(model.preparation_.kept)
        model.router_ = Router(check_kind(described["kind"]), len(names), features, expert)
        model.choice_ = model.router_.kind
    _load_weights(model.router_, place)
    model.router_.requires_grad_(False)
    skops_io = _skops()
    model.experts_ = [(name, _loaded(skops_io, place, name, trusted)) for name in names]
    model.experts = list(model.experts_)
    return model


def save_calibrated_moe(model: CalibratedMoEClassifier, folder: str | Path) -> None:
    """Write the folder, its description last."""
    described = _described(model)
    settings = model.get_params() | {"random_state": None}
    described["settings"] = {key: plain(value) for key, value in settings.items()}
    described["temperature"] = model.temperature_
    described["validation_log_loss"] = model.validation_log_loss_
    _write(_new_folder(folder), model.network_, described)


def load_calibrated_moe(folder: str | Path) -> CalibratedMoEClassifier:
    """Read the folder."""
    place, saved = _read(folder, "CalibratedMoEClassifier")
    with about(place / MODEL):
        known = CalibratedMoEClassifier().get_params()
        settings = table("settings", saved.get("settings"), known)
        if strange := sorted(set(settings) - set(known)):
            raise InputError(f"settings.{strange[0]} is no setting of this estimator")
        hidden = [whole("hidden", width, least=1) for width in items("hidden", settings["hidden"], least=1)]
        model = CalibratedMoEClassifier(**settings | {"hidden": tuple(hidden)})
        _restore(model, saved)
        model.temperature_ = number("temperature", saved.get("temperature"), above=0)
        curve = items("validation_log_loss", saved.get("validation_log_loss"))
        model.validation_log_loss_ = [number("validation_log_loss", loss) for loss in curve]
        sizes = [whole(key, settings[key], least=1, most=2**20) for key in ("num_experts", "router_hidden")]
    weights = _tensors(place)
    stored = sum(tensor.numel() for tensor in weights.values())
    if max(hidden) * max(hidden[0], sizes[0], len(model.preparation_.kept)) > 64 * stored + 2**20:
        raise InputError(f"{place / MODEL}: the sizes do not fit the weights beside it")
    features = len(model.preparation_.kept)
    network = make_network(features, len(model.classes_), sizes[0], hidden, sizes[1]).double()
    model.network_ = network
    _load_weights(network, place)
    network.requires_grad_(False).eval()
    return model


def refuse_calibrator(folder: str | Path) -> None:
    """An estimator alone would predict without the calibrator beside it."""
    if (Path(folder) / CALIBRATOR).exists():
        raise InputError(f"{folder} carries a calibrator, which an estimator leaves out: use calmoe.load")


def _described(model: TableClassifier) -> dict[str, Any]:
    """What every model folder says."""
    if not hasattr(model, "classes_"):
        raise InputError("the model is not fitted: call fit before save")
    names = getattr(model, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "kind": type(model).__name__,
        "classes": _classes(model.classes_),
        "features": None if names is None else list(names),
        "preparation": model.preparation_.as_dict(),
    }


def _restore(model: TableClassifier, saved: Mapping[str, Any]) -> None:
    described = table("classes", saved.get("classes"), ("type", "values"))
    model.classes_ = _read_classes(described)
    model.preparation_ = Preparation.from_dict(saved.get("preparation"))
    model.n_features_in_ = len(model.preparation_.columns)
    if saved.get("features") is not None:
        names = [text("features", name) for name in items("features", saved["features"], least=1)]
        model.feature_names_in_ = np.array(names, dtype=object)


def _classes(classes: np.ndarray) -> dict[str, Any]:
    """Labels with their type: JSON has no NumPy."""
    kinds = {type(value) for value in classes.tolist()}
    if len(kinds) != 1 or not kinds <= {str, int, float, bool}:
        raise InputError("classes must be texts, numbers or booleans to be saved: fit with such labels")
    return {"type": "object" if classes.dtype == object else classes.dtype.str, "values": classes.tolist()}


def _read_classes(saved: Mapping[str, Any]) -> np.ndarray:
    values = items("classes", saved["values"], least=2)
    kind = text("type", saved["type"], 20)
    if kind != "object" and not (kind[:1] in "<>|=" and kind[1:2] in "biufU" and kind[2:].isdigit()):
        raise InputError(f"classes.type must name numbers, booleans or text, not {shown(kind)}")
    if not all(isinstance(value, str | int | float | bool) for value in values):
        raise InputError("classes.values must be texts, numbers or booleans")
    try:
        return np.array(values, dtype=object if kind == "object" else np.dtype(kind))
    except (TypeError, ValueError, OverflowError):
        raise InputError("classes.values are not of their type") from None


def _read_trial(saved: Any) -> Trial:
    kind, expert, log_loss, epochs = items("trials", saved, least=4, most=4)
    expert, epochs = (whole("trials", value) for value in (expert, epochs))
    return Trial(check_kind(kind), expert, np.empty(0), number("trials", log_loss, least=0), epochs)


def _new_folder(folder: str | Path) -> Path:
    place = Path(folder)
    if os.path.lexists(place) and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{place} is there and not an empty folder: give a new one")
    place.mkdir(parents=True, exist_ok=True)
    return place


def _write(place: Path, module: nn.Module, described: dict[str, Any]) -> None:
    weights = {name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()}
    write_whole(place / WEIGHTS, safetensors.torch.save(weights))
    write_json(place / MODEL, described)


def _read(folder: str | Path, kind: str) -> tuple[Path, dict[str, Any]]:
    place = Path(folder)
    if not (place / MODEL).is_file():
        raise InputError(f"{place} has no {MODEL}: give a folder that save wrote")
    saved = read_document(place / MODEL)
    with about(place / MODEL):
        saved = table("", saved, ("format", "kind"))
        if saved["format"] != FORMAT or saved["kind"] != kind:
            raise InputError(f"not a {kind} of the format {FORMAT}: {shown(saved['kind'])} was saved here")
    return place, saved


def _tensors(place: Path) -> dict[str, torch.Tensor]:
    path = inside(place, WEIGHTS)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file: save the model again")
    with about(path):
        return read_tensors(path)[0]


def _load_weights(module: nn.Module, place: Path) -> None:
    weights = _tensors(place)
    with about(place / WEIGHTS):
        check_shapes(weights, module.state_dict())
        check_finite(weights)
    module.load_state_dict(weights)


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise InputError("experts are saved with skops, which is not installed: pip install skops") from None
    return skops.io


def _dumped(skops_io: Any, name: str, expert: Any) -> bytes:
    try:
        return skops_io.dumps(expert)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"skops cannot save the expert {shown(name)} ({reason}): leave it out") from None


def _loaded(skops_io: Any, place: Path, name: str, trusted: Collection[str]) -> Any:
    path = inside(place, EXPERTS, f"{name}.skops")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file: save the model again")
    allowed = {*TRUSTED, *trusted}
    try:
        strange = sorted(set(skops_io.get_untrusted_types(file=path)) - allowed)
        if not strange:
            return skops_io.load(path, trusted=sorted(allowed))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: not a readable skops file ({reason}): save the model again") from None
    raise InputError(
        f"{path}: holds the types {', '.join(strange)}, which calmoe does not know: if you trust whoever "
        "wrote the folder, name them in trusted="
    )
