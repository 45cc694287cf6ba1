"""`calmoe train --compare`: the paper's methods on the same rows, each after its own temperature."""

from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn

from calmoe.data import ShiftDataset, Split
from calmoe.experiments.evaluation import as_method_reads, fitted_temperature
from calmoe.experiments.export import rescaled
from calmoe.methods import METHODS, source
from calmoe.models.model import Model
from calmoe.models.table_model import TableModel
from calmoe.own_data.network_training import prepare
from calmoe.own_data.parts import HELD_OUT, SHIFT, Labelled
from calmoe.own_data.scores import Row
from calmoe.own_data.spec import NUM_EXPERTS, TrainSpec
from calmoe.progress_bar import progress_bar
from calmoe.training.checkpoints import TrainingState
from calmoe.training.settings import ModelSettings, Stage, TrainingSettings
from calmoe.training.trainer import Trainer

COMPARED = ("single", "vanilla", "mocae", "fgr", "robust", "robust_filtered", "fgr_robust")
TABLE_EPOCHS, WARMUP = 30, 0.4  # of the epochs, as in the paper


def compare(
    model: Model, data: Labelled, spec: TrainSpec, device: torch.device, console: Console
) -> list[Row]:
    """A row a method of the paper."""
    dataset, network, training = _prepared(model, data, spec)
    trainer = Trainer(dataset, network, training, device)
    states: dict[str, TrainingState] = {}
    rows = []
    with progress_bar(MofNCompleteColumn(), console=console, transient=True) as bar:
        task = bar.add_task("the paper's methods", total=len(COMPARED))
        for name in COMPARED:
            state = _trained(trainer, states, source(name), spec.seed, training)
            predictions = trainer.predict(state, METHODS[source(name)].head)
            pair = (predictions["validation"], predictions["test"])
            validation, test, _ = as_method_reads(name, *pair, "corrected")
            scaled = rescaled(test, fitted_temperature(validation, "corrected"))
            count = len(data.parts.held_out)
            parts = {HELD_OUT: scaled.take(np.arange(count))}
            if len(data.parts.shift):
                parts[SHIFT] = scaled.take(np.arange(count, len(scaled)))
            rows.append(Row(METHODS[name].title, parts))
            bar.advance(task)
    return rows


def _trained(
    trainer: Trainer, states: dict[str, TrainingState], name: str, seed: int, settings: TrainingSettings
) -> TrainingState:
    """The method's last state; mixtures share their warm-up, and MoCaE has Vanilla's."""
    method = METHODS[name]
    if name not in states:
        start = settings.warmup if method.head == "mixture" else 0
        warm = "" if method.head == "mixture" else "single"
        if start and warm not in states:
            stage = Stage.of(METHODS["vanilla"], 0, start)
            states[warm] = trainer.train(stage, seed, trainer.initial_state("mixture", seed))
        begin = states[warm] if start else trainer.initial_state(method.head, seed)
        states[name] = trainer.train(Stage.of(method, start, settings.epochs), seed, begin)
    return states[name]


def _prepared(
    model: Model, data: Labelled, spec: TrainSpec
) -> tuple[ShiftDataset, ModelSettings, TrainingSettings]:
    """The rows to train and to score on, and the settings of the paper's networks for them."""
    parts = data.parts
    scored = np.concatenate([parts.held_out, parts.shift])
    if isinstance(model, TableModel):
        features = model.estimator.preparation_.transform(data.source.columns)
        rows = torch.from_numpy(features).float()
        network = ModelSettings(backbone="mlp", hidden=(128,), experts=spec.network.experts or NUM_EXPERTS)
        epochs = spec.network.epochs or TABLE_EPOCHS
        training = TrainingSettings(epochs=epochs, warmup=round(WARMUP * epochs))
        everything = Split(inputs=rows, labels=torch.from_numpy(data.codes))
        dataset = ShiftDataset(
            name=data.source.name,
            train=everything.take(parts.train),
            validation=everything.take(parts.validation),
            test=everything.take(scored),
            class_names=tuple(map(str, data.classes)),
        )
        return dataset, network, training
    prepared = prepare(data, spec)
    everything = Split(inputs=prepared.rows, labels=torch.from_numpy(data.codes))
    dataset = replace(prepared.dataset, test=everything.take(scored))
    epochs = prepared.training.epochs
    training = replace(prepared.training, warmup=round(WARMUP * epochs), average=0.0, views=1)
    return dataset, replace(prepared.model, experts=spec.network.experts or NUM_EXPERTS), training
