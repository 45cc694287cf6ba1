"""A run's trained models as models that predict: `calmoe.load`."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import torch

from calmoe.data import cifar10h, digits, domains
from calmoe.errors import InputError, about
from calmoe.experiments.evaluation import fitted_temperature, read, used_reading
from calmoe.experiments.plan import Node, leaves
from calmoe.experiments.run import Planned, Run
from calmoe.experiments.store import SPEC, WEIGHTS
from calmoe.files import inside, legible
from calmoe.methods import card as method_card
from calmoe.methods import source
from calmoe.mixture import MixtureClassifier
from calmoe.models.architecture import Architecture
from calmoe.models.card import Card
from calmoe.models.folder import load_folder
from calmoe.models.inputs import ImageInputs, Inputs, TextInputs, read_inputs
from calmoe.models.model import Model
from calmoe.models.network_model import NetworkModel, with_weights
from calmoe.predictions import Predictions
from calmoe.tensor_files import read_tensors
from calmoe.text_encoders import encoder_folder
from calmoe.training.building import make_backbone, make_head
from calmoe.training.settings import ModelSettings
from calmoe.validation import parse_json

NOTE = "calmoe"  # in the header of a node's weights
KNOWN: Mapping[str, Inputs] = {  # for runs whose weights do not say it yet
    "digits": ImageInputs(shape=(1, 8, 8), mean=digits.MEAN, std=digits.STD),
    "cifar10h": ImageInputs(shape=(3, 32, 32), mean=cifar10h.MEAN, std=cifar10h.STD, mirrors=True),
    **{
        name: ImageInputs(
            shape=(3, domains.SIZE, domains.SIZE), mean=domains.MEAN, std=domains.STD, mirrors=True
        )
        for name in ("pacs", "domains")
    },
    **{name: TextInputs() for name in ("civilcomments", "hatexplain")},
}


def load(folder: str | Path, method: str = "", seed: int | None = None, *, scaled: bool = True) -> Model:
    """The model in a model folder, or the model of a run with this method and seed.

    Args:
        folder: A model folder, or a run's.
        method: A run's method; may be left out where the run has only one.
        seed: A run's seed; may be left out where the run has only one.
        scaled: With the temperature that the run's validation rows choose; a model folder always has its own.

    Returns:
        A model with `predict`, `predict_proba` and `predictions`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> from calmoe import CalibratedMoEClassifier
        >>> X, y = np.arange(80.0).reshape(40, 2), np.repeat(["no", "yes"], 20)
        >>> with TemporaryDirectory() as folder:
        ...     CalibratedMoEClassifier(max_epochs=1, random_state=0).fit(X, y).save(f"{folder}/model")
        ...     load(f"{folder}/model").classes
        ['no', 'yes']
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"there is no folder {legible(place)}: give a model folder, or a run's")
    if not (place / SPEC).is_file():
        if method or seed is not None:
            raise InputError(f"{legible(place)} is no run: leave out method and seed")
        return load_folder(place)
    return load_from_run(place, method, seed, scaled)


def load_from_run(
    folder: Path, method: str = "", seed: int | None = None, scaled: bool = True
) -> NetworkModel:
    """The trained model of a run; method and seed may be left out where the run has only one."""
    run = Run.open(folder)
    if run.sweep:
        raise InputError(f"{legible(folder)} is a sweep, with several models of a method and seed")
    planned = _chosen(run, method, seed)
    node = leaves(run.nodes)[source(planned.method), planned.seed]
    path = inside(run.folder.node(node.key), WEIGHTS)
    if not path.is_file():
        raise InputError(
            f"{legible(folder)} kept no weights of {planned.method}: train with --set keep_weights=true"
        )
    with about(legible(path)):
        tensors, notes = read_tensors(path)
        inputs = _inputs(run.spec.dataset, notes, node.training.views)
        settings = run.spec.model
        encoder = encoder_folder(settings.weights) if isinstance(inputs, TextInputs) else None
        predictions = run.folder.predictions(node.key)
        classes = [str(name) for name in predictions["test"].metadata["classes"]]
        architecture = _architecture(settings, node, inputs, len(classes))
        network = with_weights(architecture.build(encoder), tensors)
    temperature, temperatures = _temperatures(planned.method, run.spec.protocol, predictions, scaled)
    return NetworkModel(
        network,
        architecture,
        inputs,
        classes,
        temperature=temperature,
        expert_temperatures=temperatures,
        card=_card(run, planned, node, predictions),
        encoder=encoder,
    )


def _chosen(run: Run, method: str, seed: int | None) -> Planned:
    """The finished model that is meant; predictions from elsewhere have none."""
    trained = {(source(name), seed) for name in run.spec.methods for seed in run.spec.seeds}
    finished = [m for m in run.finished() if (source(m.method), m.seed) in trained]
    fitting = [m for m in finished if method in ("", m.method) and seed in (None, m.seed)]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(f"{m.method} {m.seed}" for m in finished[:12]) + (", …" if len(finished) > 12 else "")
    if not fitting:
        asked = " ".join(filter(None, [method, f"seed {seed}" * (seed is not None)])) or "model"
        raise InputError(f"{legible(run.path)} has no finished {asked}: it has {known or 'none'}")
    raise InputError(f"{legible(run.path)} has several models: give method and seed, one of {known}")


def _inputs(dataset: str, notes: Mapping[str, str], views: int) -> Inputs:
    """How the run's rows are prepared: as the weights' header says, else as the dataset is known to be."""
    if NOTE in notes:
        inputs = read_inputs(parse_json(notes[NOTE].encode()))
    elif dataset in KNOWN:
        inputs = KNOWN[dataset]
    else:
        raise InputError(f"nothing says how {dataset} is prepared: train the run again with this calmoe")
    if not isinstance(inputs, ImageInputs):
        return inputs
    return replace(inputs, views=len(replace(inputs, views=views).pooled))  # ALL_VIEWS becomes their number


def _architecture(settings: ModelSettings, node: Node, inputs: Inputs, classes: int) -> Architecture:
    with torch.device("cpu" if settings.backbone == "encoder" else "meta"):
        backbone = make_backbone(settings, inputs.shape)
    with torch.device("meta"):
        model = MixtureClassifier(
            backbone, make_head(settings, node.stage.head, backbone.out_features, classes)
        )
    return Architecture.of(settings, model, inputs.shape)


def _temperatures(
    method: str, protocol: str, predictions: Mapping[str, Predictions], scaled: bool
) -> tuple[float, list[float] | None]:
    """The mixture's temperature and, for MoCaE, the experts': as the run's results have them."""
    validation, _, temperatures = read(method, protocol, predictions, used_reading(predictions))
    temperature = fitted_temperature(validation, protocol).temperature_ if scaled else 1.0
    if temperature <= 0:
        raise InputError(f"the published solver ended at T = {temperature:g}: load with scaled=False")
    return temperature, temperatures


def _card(run: Run, planned: Planned, node: Node, predictions: Mapping[str, Predictions]) -> Card:
    """What the run's folder says of the model; scores are the run's own."""
    protocol, session = run.spec.protocol, (run.folder.sessions() or [{}])[-1]
    row = next(
        (
            row
            for row in run.rows
            if (row["method"], row["seed"], row["protocol"]) == (planned.method, planned.seed, protocol)
        ),
        {},
    )
    names = {"accuracy": "accuracy", "log_loss": "nll_ts", "ece": "ece_ts", "brier": "brier_ts"}
    scores: dict[str, float | None] = {"rows": len(predictions["test"])} | {
        t: row.get(f"{used_reading(predictions)}{n}") for t, n in names.items()
    }
    settings = asdict(run.spec.model) | {
        n: node.training.value(n) for n in node.training.__dataclass_fields__
    }
    plain = (str, bool, int, float)
    return Card(
        dataset=" ".join(filter(None, [run.spec.dataset, run.spec.target])),
        method=method_card(planned.method).title,
        rows=0,
        digest=run.record.training_fingerprint,
        seed=planned.seed,
        settings={name: value for name, value in settings.items() if isinstance(value, plain)},
        scores={
            "test": {"rows": len(predictions["test"])} | {n: v for n, v in scores.items() if v is not None}
        },
        calmoe=str(session.get("calmoe") or ""),
        commit=str(session.get("commit") or ""),
        date=str(session.get("date") or ""),
    )
