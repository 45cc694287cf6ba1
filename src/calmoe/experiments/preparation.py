"""Before a run trains, or its plan is drawn: load its data, pick its device, refuse what cannot run."""

from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from calmoe.data import DATASETS, PROTOCOLS, ShiftDataset, load_dataset
from calmoe.data.text import LENGTH
from calmoe.errors import InputError
from calmoe.experiments.plan import TRAINING_VERSION
from calmoe.experiments.plugins import check_here, plugins_of
from calmoe.experiments.record import Record
from calmoe.experiments.run import Run
from calmoe.experiments.same_run import refuse_other
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.store import RunFolder
from calmoe.experiments.sweep import Sweep
from calmoe.launch import launch
from calmoe.methods import card, source
from calmoe.render.console import say_notes
from calmoe.training.building import check_model, check_together, check_weights
from calmoe.training.checks import check_backbone, check_objective
from calmoe.views import first_views

MOST_MODELS = 100_000


def recorded_run(folder: RunFolder, spec: RunSpec, sweep: Sweep | None) -> Run:
    """The folder's run, if it is of this spec and sweep; data and device are what they were there."""
    record = folder.record()
    if record is None:
        raise InputError(f"there is no run in {folder.path}: leave out --only-report to start one")
    refuse_other(folder.path, record, replace(record, spec=spec, sweep=sweep))
    return Run(folder, record)


def check_size(spec: RunSpec, sweep: Sweep | None) -> None:
    """Refuse a plan that takes longer to make than anyone waits."""
    models = len(spec.methods) * len(spec.seeds) * (1 if sweep is None else len(sweep.points))
    if models > MOST_MODELS:
        raise InputError(f"that is {models:,} models, at most {MOST_MODELS:,}: ask for fewer seeds or points")


def describe_run(spec: RunSpec, dataset: ShiftDataset, device: str, sweep: Sweep | None = None) -> Record:
    """The record of a run that begins now; a sweep with a point that cannot be built here is refused."""
    if sweep is not None:
        _check_points(spec, dataset, sweep)
    return Record(
        spec=spec,
        device=device,
        training_version=TRAINING_VERSION,
        fingerprint=dataset.fingerprint(),
        training_fingerprint=dataset.training_fingerprint(),
        protocols=tuple(PROTOCOLS) if dataset.one_training else (spec.protocol,),
        hard=dataset.hard,
        weights=check_weights(spec.model, dataset.input_shape) if spec.model.weights else "",
        sweep=sweep,
        plugins=plugins_of(spec),
    )


def _check_points(spec: RunSpec, dataset: ShiftDataset, sweep: Sweep) -> None:
    variants = sweep.variants(spec).values()
    heads = {card(source(name)).head for name in spec.methods}
    for views in {variant.training.views for variant in variants}:
        first_views(dataset.name, dataset.views, views)
    for model in {variant.model for variant in variants} - {spec.model}:
        check_backbone(model, dataset.input_shape)
        check_model(model, dataset.input_shape, heads, dataset.num_classes)


def load_data(folder: RunFolder, spec: RunSpec, data: Path | None, console: Console) -> ShiftDataset:
    """The run's data, and notes on them; a model that cannot be built for them never gets a folder.

    An encoder is tried before its tokenizer is: what is refused leaves no tokens either.
    """
    folder.check()
    check_here(spec)
    for method in {source(name) for name in spec.methods}:
        check_objective(method, spec.training)
    model, text = spec.model, DATASETS[spec.dataset].is_text
    check_together(model.backbone, spec.dataset, text)
    heads = {card(source(name)).head for name in spec.methods} if folder.record() is None else ()
    if text and model.weights and heads:
        check_model(model, (LENGTH,), heads)
    dataset = load_dataset(spec.dataset, data, spec.protocol, spec.target, model.weights)
    first_views(dataset.name, dataset.views, spec.training.views)
    check_backbone(model, dataset.input_shape)
    if heads and not text:
        check_model(model, dataset.input_shape, heads, dataset.num_classes)
    say_notes(dataset.notes, console)
    return dataset


def pick_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"unknown device {name!r}: give auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("there is no CUDA device here: give --device cpu or auto")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    launched, there = launch(), torch.cuda.device_count()
    if launched and launched.local >= there:
        raise InputError(
            f"rank {launched.rank} has no GPU of its own, there are {there} here: start as many ranks, "
            "or give --device cpu"
        )
    return torch.device("cuda")  # of several, that of this rank
