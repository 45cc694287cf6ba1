"""Carry out a spec: train what is missing, judge the predictions, write the results."""

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from calmoe.data import load_dataset
from calmoe.errors import InputError
from calmoe.experiments.environment import describe
from calmoe.experiments.plan import Node, to_do
from calmoe.experiments.plugins import changed
from calmoe.experiments.preparation import check_size, describe_run, load_data, pick_device, recorded_run
from calmoe.experiments.record import Record
from calmoe.experiments.run import Run
from calmoe.experiments.same_run import joined
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.store import RunFolder
from calmoe.experiments.sweep import Sweep
from calmoe.experiments.tensorboard_events import Events
from calmoe.experiments.watcher import TimeUp, Watcher
from calmoe.files import inside
from calmoe.methods import card
from calmoe.models.inputs import dataset_inputs, inputs_as_dict
from calmoe.predictions import Predictions
from calmoe.render.console import make_console, say, say_notes
from calmoe.threads import threads
from calmoe.training.following import follow
from calmoe.training.ranks import present
from calmoe.training.trainer import Diverged, Trainer


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended: the run, the rows of its results, and what failed or is missing, by name."""

    run: Run | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    time_up: bool = False

    @property
    def exit_code(self) -> int:
        return 3 if self.time_up else int(bool(self.failed))


def run(
    spec: RunSpec,
    out: Path,
    data: Path | None = None,
    device: str = "auto",
    *,
    sweep: Sweep | None = None,
    only_report: bool = False,
    time_limit: float | None = None,
    tensorboard: bool = False,
    console: Console | None = None,
) -> Outcome:
    """Train what `out` does not hold yet, then write the results of all it holds.

    With a sweep, every value of its setting is a run of its own, in one folder.
    """
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    console, folder = console or make_console(), RunFolder(out)
    if sweep is not None:
        sweep.variants(spec)  # bad values are refused before anything is written
    if only_report:
        recorded_run(folder, spec, sweep)
        with folder.locked():
            opened = recorded_run(folder, spec, sweep)
            return _finish(opened, spec, sweep, {}, again=True)
    check_size(spec, sweep)
    where, ranks = pick_device(device), present()
    ranks.check_batch(spec.training.batch)
    events = Events(inside(out, "tensorboard")) if tensorboard else None
    dataset = load_data(folder, spec, data, console)
    record = describe_run(spec, dataset, where.type, sweep)
    with folder.locked(), _threads(spec):
        opened = _join(folder, record, console)
        missing = to_do(opened.nodes, opened.done, opened.nodes_for(spec, sweep))
        failed: dict[str, str] = {}
        if missing:
            _warn_of_scratch(spec, console)
            say_notes(folder.add_session(describe(where)), console)
            watcher = Watcher(console, sum(node.epochs for node in missing), deadline, events)
            ranks.order("begin")
            trainer = Trainer(dataset, spec.model, spec.training, where, ranks=ranks)
            try:
                with watcher:
                    failed = train(missing, trainer, opened, watcher, spec.keep_weights)
            except TimeUp:
                say(f"time is up; run the same command to continue in {out}", console)
                return Outcome(run=opened, time_up=True)
        return _finish(opened, spec, sweep, failed)


def follow_run(spec: RunSpec, data: Path | None, device: str) -> None:
    """What every rank but the first does in a run: its share of the training, nothing else."""
    dataset = load_dataset(spec.dataset, data, spec.protocol, spec.target, spec.model.weights)
    with _threads(spec):
        follow(Trainer(dataset, spec.model, spec.training, pick_device(device), ranks=present()))


def _threads(spec: RunSpec) -> AbstractContextManager[None]:
    return threads(1 if spec.model.backbone == "mlp" else torch.get_num_threads())


def _join(folder: RunFolder, record: Record, console: Console) -> Run:
    """The folder's run with what is asked now added to its record; another run's folder is refused."""
    old = folder.record()
    whole = joined(folder.path, old, record)
    if others := changed(old.plugins if old else (), record.plugins):
        listed = ", ".join(map(str, others))
        say_notes([f"the code behind {listed} has changed: what it trains is trained again"], console)
    if whole != old:
        folder.write_record(whole)
    return Run(folder, whole)


def _warn_of_scratch(spec: RunSpec, console: Console) -> None:
    imagenet = spec.model.backbone.startswith("resnet") and spec.model.stem == "imagenet"
    if imagenet and not spec.model.weights:
        say_notes(["the backbone starts from scratch; --set weights=FILE gives it ImageNet's"], console)


def train(
    nodes: Sequence[Node], trainer: Trainer, opened: Run, watcher: Watcher, keep_weights: bool = True
) -> dict[str, str]:
    """Train the nodes in order; one that diverges is named, with the reason, and the others go on."""
    failed: dict[str, str] = {}
    for node in nodes:
        if node.parent is not None and str(node.parent) in failed:
            failed[str(node)] = "its warm-up diverged"
            continue
        try:
            _train_node(node, trainer, opened.folder, watcher, keep_weights)
            opened.note_finished(node)
        except Diverged as error:
            failed[str(node)] = str(error)
    return failed


def _train_node(
    node: Node, trainer: Trainer, folder: RunFolder, watcher: Watcher, keep_weights: bool
) -> None:
    times: dict[float, dict[str, float]] = {}

    def watch(epoch: int, entry: dict[str, float]) -> None:
        times[epoch + 1] = {"seconds": entry["seconds"]}
        watcher.epoch(node, epoch + 1, node.training.epochs, entry)

    checkpoints = folder.begin(node)
    state = folder.state(node) or trainer.initial_state(node.stage.head, node.seed)
    try:
        trainer.check_state(node.stage.head, state)
    except InputError as error:
        raise InputError(
            f"{checkpoints}: the saved state here, or its warm-up's, does not fit the model ({error})"
        ) from None
    watcher.begin(node, state.epoch)
    state = trainer.train(node.stage, node.seed, state, checkpoints, watch, node.training)
    if node.method is None:
        folder.finish_warmup(node, state)
        return
    history = [entry | times.get(entry["epoch"], {}) for entry in state.history]
    head, views = node.stage.head, node.training.views
    final = trainer.averaged(state, head, node.seed) if node.training.average else state
    predictions = trainer.predict(final, head, views)
    if card(node.method).pools_views:
        predictions = _pooled_alone(predictions)
    elif node.training.average:
        last = trainer.predict(state, head, views)
        predictions |= {f"last_{split}": last[split] for split in last if split != "validation_augmented"}
    inputs = inputs_as_dict(dataset_inputs(trainer.dataset))
    folder.finish_method(node, final, predictions, history, keep_weights, inputs)


def _pooled_alone(predictions: dict[str, Predictions]) -> dict[str, Predictions]:
    """What is pooled over views stands for the splits themselves."""
    splits = (split for split in predictions if not split.startswith("views_"))
    return {split: predictions.get(f"views_{split}", predictions[split]) for split in splits}


def _finish(
    opened: Run, asked: RunSpec, sweep: Sweep | None, failed: dict[str, str], again: bool = False
) -> Outcome:
    """Write the results of all that the folder holds, unless those there are just these already."""
    failed = dict.fromkeys(opened.untrained(asked, sweep), "not trained") | failed
    rows = None if again else opened.current_rows()
    if rows is None:
        rows = opened.evaluate()
        if not rows:
            listed = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise InputError(f"{opened.path} has no results ({listed})")
        opened.write_results(rows)
    return Outcome(run=opened, rows=rows, failed=failed)
