"""Train a network on images or texts by the recipe for them, with early stopping."""

import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from torch import Tensor

from calmoe.calibration import CalibrationWarning, Temperature
from calmoe.calibration.temperature import CLAMP
from calmoe.data import ShiftDataset, Split
from calmoe.data.domains import MEAN, STD
from calmoe.data.image_cache import decode
from calmoe.data.text import token_ids
from calmoe.errors import InputError, check_known
from calmoe.methods import METHODS, Method
from calmoe.metrics import nll
from calmoe.mixture import MixtureClassifier
from calmoe.models.architecture import Architecture
from calmoe.models.inputs import Inputs, dataset_inputs
from calmoe.models.network_model import NetworkModel, with_weights
from calmoe.own_data.baselines import (
    LINEAR,
    base_rate,
    baseline_row,
    fit_baseline,
    shrunk_images,
    word_features,
)
from calmoe.own_data.parts import Labelled
from calmoe.own_data.scores import Row, scores
from calmoe.own_data.spec import PATIENCE, SHARP, TEXT_SHARP, NetworkSettings, TrainSpec
from calmoe.predictions import Predictions
from calmoe.progress_bar import Lines, progress_bar
from calmoe.render.console import say
from calmoe.text_encoders import PADDING, encoder_folder
from calmoe.training.building import check_model, check_weights, make_backbone, make_head
from calmoe.training.following import follow
from calmoe.training.ranks import present
from calmoe.training.settings import ModelSettings, Stage, TrainingSettings
from calmoe.training.trainer import Trainer

SIZE, PRETRAINED_SIZE = 64, 224
CIFAR_BELOW, THREE_STAGES_BELOW = 48, 128  # pixels: a fourth stage would see 3 x 3 cells or fewer
IMAGE_EPOCHS, TEXT_EPOCHS, SCRATCH_TEXT_EPOCHS = 30, 10, 60
FROM_SCRATCH = 1e-3  # the learning rate of networks that begin with random weights
ENCODER_PATIENCE = 2  # epochs; a pretrained encoder is best after a few and then learns its texts by heart
CHECKS = 15  # of the validation log loss, at most, in a training


class Prepared(NamedTuple):
    """All rows as tensors, and how they and the network are to be treated.

    The dataset's texts end where the longest does; `rows` have the width that the finished model reads.
    """

    rows: Tensor
    dataset: ShiftDataset
    model: ModelSettings
    training: TrainingSettings


def radius(settings: NetworkSettings, texts: bool) -> float:
    """How far sharp steps look: not as far on texts, whose encoder is only to be adapted."""
    return (TEXT_SHARP if texts else SHARP) if settings.rho is None else settings.rho


def patience(settings: NetworkSettings, learning_rate: float, texts: bool) -> int:
    """How many epochs without a lower validation log loss end the training."""
    adapted = texts and learning_rate < FROM_SCRATCH
    return settings.patience or (ENCODER_PATIENCE if adapted else PATIENCE)


def method_of(settings: NetworkSettings, texts: bool) -> Method:
    """One expert or a mixture, by sharp steps or by plain ones."""
    one, several = ("recommended", "sharp") if radius(settings, texts) else ("single", "vanilla")
    return METHODS[one if (settings.experts or 1) == 1 else several]


def train_network(
    data: Labelled, spec: TrainSpec, device: torch.device, console: Console
) -> tuple[NetworkModel, list[Row]]:
    """The trained model, and what it and the baseline say of the parts that were held out."""
    prepared = prepare(data, spec)
    say(chosen(prepared), console, soft_wrap=True)
    ranks = present()
    ranks.check_batch(prepared.training.batch)
    ranks.order("begin")
    trainer = Trainer(prepared.dataset, prepared.model, prepared.training, device, ranks=ranks)
    weights, epoch = _train(trainer, spec, prepared.training, console)
    model = _finished(data, spec, prepared, weights)
    model.card.settings["epochs"] = epoch
    validation = _answered(model, prepared.rows, data, data.parts.validation)
    model.card.scores["validation"] = scores(validation, data.rare)
    ours = {part: _answered(model, prepared.rows, data, at) for part, at in data.judged.items()}
    baselines = [base_rate(data), _linear(data, prepared.rows, spec.seed)]
    ours_is = _title(method_of(spec.network, data.source.kind == "texts"))
    return model, [Row(ours_is, ours, ours=True), *baselines]


def follow_network(data: Labelled, spec: TrainSpec, device: torch.device) -> None:
    """What every rank but the first does: its share of the training, nothing else."""
    prepared = prepare(data, spec)
    follow(Trainer(prepared.dataset, prepared.model, prepared.training, device, ranks=present()))


def _title(method: Method) -> str:
    if method.gradient == "sharp":
        return "Mixture of experts, sharp steps" if method.head == "mixture" else "Network, sharp steps"
    return "Mixture of experts" if method.head == "mixture" else "Network"


def chosen(prepared: Prepared) -> str:
    """What is trained, where the data decided and where the user did: one line."""
    model, training = prepared.model, prepared.training
    *_, longest = prepared.dataset.input_shape
    if prepared.dataset.images:
        what = f"{model.backbone} on images of {longest} x {longest} pixels"
    else:
        what = f"{Path(model.weights).name} on texts of at most {longest} tokens"
    return (
        f"network: {what}, at most {training.epochs} epochs in batches of {training.batch}, "
        f"learning rate {training.learning_rate:g}"
    )


def prepare(data: Labelled, spec: TrainSpec) -> Prepared:
    """Images or texts as tensors; a network that cannot be built for them is refused."""
    settings, source = spec.network, data.source
    if source.kind == "texts":
        model = ModelSettings(
            backbone="encoder", weights=spec.encoder, pooling="mean", experts=settings.experts or 1
        )
        check_weights(model, ())
        check_model(model, (128,), (method_of(settings, texts=True).head,), len(data.classes))
        rows = token_ids(source.texts, spec.encoder)
        trained_on = rows[:, : _longest(rows)]
        mean: tuple[float, ...] = ()
        std: tuple[float, ...] = ()
    else:
        model, size = _image_model(settings)
        rows = trained_on = _decoded([*source.files], size)
        head = method_of(settings, texts=False).head
        check_model(model, tuple(rows.shape[1:]), (head,), len(data.classes))
        if settings.weights:
            check_weights(model, tuple(rows.shape[1:]))
        mean, std = (MEAN, STD) if settings.weights else _statistics(rows[torch.from_numpy(data.parts.train)])
    everything = Split(inputs=trained_on, labels=torch.from_numpy(data.codes), groups={})
    validation = everything.take(data.parts.validation)
    dataset = ShiftDataset(
        name=source.name,
        train=everything.take(data.parts.train),
        validation=validation,
        test=validation.take([0]),  # what is scored is scored by the finished model
        class_names=tuple(map(str, data.classes)),
        mean=mean,
        std=std,
        crop_padding=rows.shape[-1] // 8 if source.kind == "images" else 0,
        flip=source.kind == "images",
    )
    return Prepared(rows, dataset, model, _training(dataset, model, settings))


def _image_model(settings: NetworkSettings) -> tuple[ModelSettings, int]:
    backbone = settings.backbone or "resnet18"
    check_known("backbone for images", backbone, ("mlp", "resnet18", "resnet34", "resnet50"))
    size = settings.size or (PRETRAINED_SIZE if settings.weights else SIZE)
    fresh = not settings.weights
    model = ModelSettings(
        backbone=backbone,
        experts=settings.experts or 1,
        weights=settings.weights,
        stem="cifar" if fresh and size < CIFAR_BELOW else "imagenet",
        stages=3 if fresh and size < THREE_STAGES_BELOW else 4,
    )
    return model, size


def _longest(rows: Tensor) -> int:
    """How many tokens the longest text has: training need not look beyond."""
    return max(1, int((rows != PADDING).sum(dim=1).max()))


def _training(dataset: ShiftDataset, model: ModelSettings, settings: NetworkSettings) -> TrainingSettings:
    """The recommended recipe; an average is over a tenth of the steps at most."""
    rows, rate = len(dataset.train), settings.learning_rate or _learning_rate(model, dataset)
    texts = TEXT_EPOCHS if rate < FROM_SCRATCH else SCRATCH_TEXT_EPOCHS
    epochs = settings.epochs or (texts if dataset.tokens else IMAGE_EPOCHS)
    batch = settings.batch or max(8, min(32 if dataset.tokens else 128, rows // 10))
    steps = epochs * math.ceil(rows / batch)
    return TrainingSettings(
        epochs=epochs,
        warmup=0,
        batch=batch,
        learning_rate=rate,
        weight_decay=settings.weight_decay,
        rho=radius(settings, dataset.tokens),
        sharp_every=settings.sharp_every,
        average=max(0.0, min(settings.average, 1 - 10 / steps)),
        views=settings.views or len(dataset.views),
        batch_norm=settings.batch_norm or TrainingSettings.batch_norm,
        sharding=settings.sharding or TrainingSettings.sharding,
    )


def _learning_rate(model: ModelSettings, dataset: ShiftDataset) -> float:
    """Small where pretrained weights are only to be adapted."""
    if model.backbone == "encoder":
        backbone = make_backbone(model, dataset.input_shape)
        size = sum(parameter.numel() for parameter in backbone.parameters())
        return 2e-5 if size > 50_000_000 else 5e-5 if size > 5_000_000 else FROM_SCRATCH
    return 1e-4 if model.weights else FROM_SCRATCH


def _train(
    trainer: Trainer, spec: TrainSpec, settings: TrainingSettings, console: Console
) -> tuple[dict[str, Tensor], int]:
    """The weights with the lowest validation log loss, and their epoch."""
    method = method_of(spec.network, trainer.dataset.tokens)
    every = max(1, settings.epochs // CHECKS)
    most = patience(spec.network, settings.learning_rate, trainer.dataset.tokens)
    state = trainer.initial_state(method.head, spec.seed)
    best, best_epoch, kept = math.inf, 0, dict(state.tensors)
    lines = Lines(console)
    with progress_bar(MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("epochs", total=settings.epochs)
        while state.epoch < settings.epochs:
            end = min(state.epoch + every, settings.epochs)
            stage = Stage.of(method, 0, end)
            state = trainer.train(stage, spec.seed, state, watch=lambda *_: bar.advance(task))
            final = trainer.averaged(state, method.head, spec.seed) if settings.average else state
            validation = trainer.predict(final, method.head)["validation"]
            loss = nll(validation.output.log_probs, validation.known_labels)
            bar.update(task, description=f"epochs  validation log loss {loss:.3f}")
            lines.offer(f"epoch {end} of at most {settings.epochs}: validation log loss {loss:.3f}")
            if loss < best:
                best, best_epoch, kept = loss, end, dict(final.tensors)
            elif end - best_epoch >= most:
                break
    prefix = "model."
    weights = {name.removeprefix(prefix): t for name, t in kept.items() if name.startswith(prefix)}
    return weights, best_epoch


def _finished(
    data: Labelled, spec: TrainSpec, prepared: Prepared, weights: dict[str, Tensor]
) -> NetworkModel:
    """The model with its temperature, fitted on validation rows with all views pooled."""
    settings, dataset = prepared.model, prepared.dataset
    input_shape = tuple(prepared.rows.shape[1:])
    with torch.device("cpu" if settings.backbone == "encoder" else "meta"):
        backbone = make_backbone(settings, input_shape)
        head = method_of(spec.network, dataset.tokens).head
        made_head = make_head(settings, head, backbone.out_features, dataset.num_classes)
    network = with_weights(MixtureClassifier(backbone, made_head), weights)
    encoder = encoder_folder(spec.encoder) if dataset.tokens else None
    architecture = Architecture.of(settings, network, input_shape)
    inputs: Inputs = dataset_inputs(dataset, prepared.training.views)
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


def _linear(data: Labelled, rows: Tensor, seed: int) -> Row:
    """Logistic regression on words, or on shrunk images."""
    fit = data.parts.fit
    if data.source.kind == "texts":
        texts = data.source.texts
        vectorizer = word_features([texts[i] for i in fit])
        features = vectorizer.transform(texts)
    else:
        features = shrunk_images(rows.numpy())
    model = fit_baseline(LINEAR, features[fit], data.codes[fit], seed)
    judged = {part: features[at] for part, at in data.judged.items()}
    what = "words" if data.source.kind == "texts" else "pixels"
    return baseline_row(f"{LINEAR} on {what}", model, judged, data)


def _decoded(files: list[Path], size: int) -> Tensor:
    """uint8 [N, 3, size, size], channels last in memory."""
    with (
        ThreadPoolExecutor() as threads,
        progress_bar(MofNCompleteColumn(), TimeRemainingColumn(), transient=True) as bar,
    ):
        task = bar.add_task("images", total=len(files))
        pixels = np.empty((len(files), size, size, 3), np.uint8)
        for i, image in enumerate(threads.map(lambda file: decode(file, size), files)):
            pixels[i] = image
            bar.advance(task)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def _statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, for pixels in [0, 1]."""
    pixels = images.permute(1, 0, 2, 3).flatten(1).double() / 255
    means = [round(float(value), 4) for value in pixels.mean(dim=1)]
    stds = [max(0.01, round(float(value), 4)) for value in pixels.std(dim=1)]
    return tuple(means), tuple(stds)


def check_encoder(spec: TrainSpec) -> None:
    """Refuse texts without a model that reads them."""
    if not spec.encoder:
        raise InputError("texts need a model that reads them: --encoder DIR, such as a folder of DistilBERT")
