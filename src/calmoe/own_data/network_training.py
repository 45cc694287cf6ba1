"""Train a network on prepared images or texts, with early stopping, and finish it with a temperature."""

import math
import warnings

import numpy as np
import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from torch import Tensor

from calmoe.calibration import CalibrationWarning, Temperature
from calmoe.calibration.temperature import CLAMP
from calmoe.methods import Method
from calmoe.metrics import nll
from calmoe.mixture import MixtureClassifier
from calmoe.models.architecture import Architecture
from calmoe.models.card import Card
from calmoe.models.inputs import Inputs, dataset_inputs
from calmoe.models.network_model import NetworkModel, with_weights
from calmoe.own_data.parts import Labelled
from calmoe.own_data.prepared import Prepared
from calmoe.own_data.recipe import Recipe
from calmoe.own_data.scores import Row, scores
from calmoe.predictions import Predictions
from calmoe.progress_bar import Lines, progress_bar
from calmoe.text_encoders import encoder_folder
from calmoe.training.building import make_backbone, make_head
from calmoe.training.following import follow
from calmoe.training.ranks import present
from calmoe.training.settings import Stage
from calmoe.training.trainer import Trainer

CHECKS = 15  # of the validation log loss, at most, in a training


def train_network(
    data: Labelled, prepared: Prepared, seed: int, device: torch.device, console: Console
) -> tuple[NetworkModel, Row]:
    """The trained model, and what it says of the parts that were held out."""
    recipe, ranks = prepared.recipe, present()
    ranks.check_batch(recipe.training.batch)
    ranks.order("begin")
    trainer = Trainer(prepared.dataset, recipe.model, recipe.training, device, ranks=ranks)
    weights, epoch = _train(trainer, recipe, seed, console)
    model = _finished(data, prepared, weights)
    validation = _answered(model, prepared.rows, data, data.parts.validation)
    model.card = Card(
        settings=prepared.used | {"best_epoch": epoch},
        scores={"validation": scores(validation, data.rare)},
    )
    answers = {part: _answered(model, prepared.rows, data, at) for part, at in data.judged.items()}
    return model, Row.of(_title(recipe.method), answers, data.rare, ours=True)


def follow_network(prepared: Prepared, device: torch.device) -> None:
    """What every rank but the first does: its share of the training, nothing else."""
    recipe = prepared.recipe
    follow(Trainer(prepared.dataset, recipe.model, recipe.training, device, ranks=present()))


def _title(method: Method) -> str:
    if method.gradient == "sharp":
        return "Mixture of experts, sharp steps" if method.head == "mixture" else "Network, sharp steps"
    return "Mixture of experts" if method.head == "mixture" else "Network"


def _train(trainer: Trainer, recipe: Recipe, seed: int, console: Console) -> tuple[dict[str, Tensor], int]:
    """The weights with the lowest validation log loss, and their epoch."""
    method, settings = recipe.method, recipe.training
    every = max(1, settings.epochs // CHECKS)
    state = trainer.initial_state(method.head, seed)
    best, best_epoch, kept = math.inf, 0, dict(state.tensors)
    lines = Lines(console, at_once=True)
    with progress_bar(MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("epochs", total=settings.epochs)
        while state.epoch < settings.epochs:
            end = min(state.epoch + every, settings.epochs)
            stage = Stage.of(method, 0, end)
            state = trainer.train(stage, seed, state, watch=lambda *_: bar.advance(task))
            final = trainer.averaged(state, method.head, seed) if settings.average else state
            validation = trainer.predict(final, method.head)["validation"]
            loss = nll(validation.output.log_probs, validation.known_labels)
            bar.update(task, description=f"epochs  validation log loss {loss:.3f}")
            lines.offer(f"epoch {end} of at most {settings.epochs}: validation log loss {loss:.3f}")
            if loss < best:
                best, best_epoch, kept = loss, end, dict(final.tensors)
            elif end - best_epoch >= recipe.patience:
                break
    prefix = "model."
    weights = {name.removeprefix(prefix): t for name, t in kept.items() if name.startswith(prefix)}
    return weights, best_epoch


def _finished(data: Labelled, prepared: Prepared, weights: dict[str, Tensor]) -> NetworkModel:
    """The model with its temperature, fitted on validation rows with all views pooled."""
    settings, dataset = prepared.recipe.model, prepared.dataset
    input_shape = tuple(prepared.rows.shape[1:])
    with torch.device("cpu" if settings.backbone == "encoder" else "meta"):
        backbone = make_backbone(settings, input_shape)
        head = make_head(settings, prepared.recipe.method.head, backbone.out_features, dataset.num_classes)
    network = with_weights(MixtureClassifier(backbone, head), weights)
    encoder = encoder_folder(settings.weights) if dataset.tokens else None
    architecture = Architecture.of(settings, network, input_shape)
    inputs: Inputs = dataset_inputs(dataset, prepared.recipe.training.views)
    made = NetworkModel(network, architecture, inputs, data.classes, encoder=encoder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        output = made.deployed.answer(prepared.rows[torch.from_numpy(data.parts.validation)])
        labels = torch.from_numpy(data.codes[data.parts.validation])
        fitted = Temperature().fit(output.log_probs, labels)
    made.deployed.temperature = float(np.clip(fitted.temperature_, *CLAMP))
    return made


def _answered(model: NetworkModel, rows: Tensor, data: Labelled, at: np.ndarray) -> Predictions:
    output = model.deployed.answer(rows[torch.from_numpy(at)])
    part, names = data.source.take(at), {"classes": list(map(str, data.classes))}
    labels = torch.from_numpy(data.codes[at])
    return Predictions(output=output, labels=labels, groups=part.groups, metadata=names)
