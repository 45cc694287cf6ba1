"""`calmoe train --compare`: the paper's methods on the same rows, each after its own temperature."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn

from calmoe.data import ShiftDataset, Split
from calmoe.experiments.evaluation import as_method_reads, fitted_temperature
from calmoe.experiments.export import rescaled
from calmoe.methods import METHODS, source
from calmoe.models.table_model import TableModel
from calmoe.own_data.parts import HELD_OUT, SHIFT, Labelled
from calmoe.own_data.prepared import Prepared
from calmoe.own_data.scores import Row
from calmoe.own_data.settings import NUM_EXPERTS, NetworkSettings
from calmoe.progress_bar import progress_bar
from calmoe.training.checkpoints import TrainingState
from calmoe.training.settings import ModelSettings, Stage, TrainingSettings
from calmoe.training.trainer import Trainer

COMPARED = ("single", "vanilla", "mocae", "fgr", "robust", "robust_filtered", "fgr_robust")
TABLE_EPOCHS, WARMUP = 30, 0.4  # of the epochs, as in the paper
WARM = "warm-up"  # the state that all mixtures begin with


class Field(NamedTuple):
    """What all methods are trained with: the rows, and how their networks are built and trained."""

    dataset: ShiftDataset
    network: ModelSettings
    training: TrainingSettings


def table_field(model: TableModel, data: Labelled, settings: NetworkSettings) -> Field:
    """The table in numbers, as `model` has it."""
    parts, features = data.parts, model.estimator.preparation_.transform(data.source.columns)
    everything = Split(inputs=torch.from_numpy(features).float(), labels=torch.from_numpy(data.codes))
    dataset = ShiftDataset(
        name=data.source.name,
        train=everything.take(parts.train),
        validation=everything.take(parts.validation),
        test=everything.take(_scored(data)),
        class_names=tuple(map(str, data.classes)),
    )
    network = ModelSettings(backbone="mlp", hidden=(128,), experts=settings.experts or NUM_EXPERTS)
    epochs = settings.epochs or TABLE_EPOCHS
    return Field(dataset, network, TrainingSettings(epochs=epochs, warmup=round(WARMUP * epochs)))


def network_field(prepared: Prepared, data: Labelled, settings: NetworkSettings) -> Field:
    """Images or texts as they are prepared, without the recipe's average and views."""
    everything = Split(inputs=prepared.rows, labels=torch.from_numpy(data.codes))
    recipe = prepared.recipe
    return Field(
        replace(prepared.dataset, test=everything.take(_scored(data))),
        replace(recipe.model, experts=settings.experts or NUM_EXPERTS),
        replace(recipe.training, warmup=round(WARMUP * recipe.training.epochs), average=0.0, views=1),
    )


def compare(field: Field, data: Labelled, seed: int, device: torch.device, console: Console) -> list[Row]:
    """A row a method of the paper."""
    trainer = Trainer(*field, device)
    states: dict[str, TrainingState] = {}
    rows = []
    with progress_bar(MofNCompleteColumn(), console=console, transient=True) as bar:
        task = bar.add_task("the paper's methods", total=len(COMPARED))
        for name in COMPARED:
            state = _trained(trainer, states, source(name), seed, field.training)
            predictions = trainer.predict(state, METHODS[source(name)].head)
            pair = (predictions["validation"], predictions["test"])
            validation, test, _ = as_method_reads(name, *pair, "corrected")
            scaled = rescaled(test, fitted_temperature(validation, "corrected"))
            count = len(data.parts.held_out)
            parts = {HELD_OUT: scaled.take(np.arange(count))}
            if len(data.parts.shift):
                parts[SHIFT] = scaled.take(np.arange(count, len(scaled)))
            rows.append(Row.of(METHODS[name].title, parts, data.rare))
            bar.advance(task)
    return rows


def _scored(data: Labelled) -> np.ndarray:
    """All rows that are scored, the shift last."""
    return np.concatenate([data.parts.held_out, data.parts.shift])


def _trained(
    trainer: Trainer, states: dict[str, TrainingState], name: str, seed: int, settings: TrainingSettings
) -> TrainingState:
    """The method's last state; mixtures share their warm-up, and MoCaE has Vanilla's."""
    method = METHODS[name]
    if name not in states:
        start = settings.warmup if method.head == "mixture" else 0
        if start and WARM not in states:
            stage = Stage.of(METHODS["vanilla"], 0, start)
            states[WARM] = trainer.train(stage, seed, trainer.initial_state("mixture", seed))
        begin = states[WARM] if start else trainer.initial_state(method.head, seed)
        states[name] = trainer.train(Stage.of(method, start, settings.epochs), seed, begin)
    return states[name]
