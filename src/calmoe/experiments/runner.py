"""Carry out a spec, or draw its plan: train what is missing, judge the predictions, write the results."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.text import Text

from calmoe.data import DATASETS, PROTOCOLS, ShiftDataset, load_dataset
from calmoe.data.text import LENGTH
from calmoe.errors import InputError
from calmoe.escaping import visible
from calmoe.experiments.environment import describe
from calmoe.experiments.plan import TRAINING_VERSION, Node, draw, to_do
from calmoe.experiments.progress import Events, TimeUp, Watcher
from calmoe.experiments.record import Record, joined, refuse_other
from calmoe.experiments.run import Run
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.store import RunFolder
from calmoe.experiments.sweep import Sweep
from calmoe.files import inside
from calmoe.methods import card, source
from calmoe.render.wording import many
from calmoe.threads import threads
from calmoe.training.trainer import Diverged, Trainer, check_model, check_together, check_weights
from calmoe.views import first_views

MOST_MODELS = 10_000
WIDTH = 150  # of the console where there is no terminal


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
    where = pick_device(device)
    events = Events(inside(out, "tensorboard")) if tensorboard else None
    dataset = _load(folder, spec, data, console)
    record = describe_run(spec, dataset, where.type, sweep)
    with folder.locked(), threads(1 if spec.model.backbone == "mlp" else torch.get_num_threads()):
        opened = _join(folder, record)
        missing = to_do(opened.nodes, opened.done, opened.nodes_for(spec, sweep))
        failed: dict[str, str] = {}
        if missing:
            _warn_of_scratch(spec, console)
            say_notes(folder.add_session(describe(where)), console)
            watcher = Watcher(console, sum(node.epochs for node in missing), deadline, events)
            trainer = Trainer(dataset, spec.model, spec.training, where)
            try:
                with watcher:
                    failed = train(missing, trainer, opened, watcher, spec.keep_weights)
            except TimeUp:
                say(f"time is up; run the same command to continue in {out}", console)
                return Outcome(run=opened, time_up=True)
        return _finish(opened, spec, sweep, failed)


def recorded_run(folder: RunFolder, spec: RunSpec, sweep: Sweep | None) -> Run:
    """The folder's run, if it is of this spec and sweep; data and device are what they were there."""
    record = folder.record()
    if record is None:
        raise InputError(f"there is no run in {folder.path}: leave out --only-report to start one")
    refuse_other(folder.path, record, replace(record, spec=spec, sweep=sweep))
    return Run(folder, record)


def show_plan(
    spec: RunSpec,
    out: Path,
    data: Path | None = None,
    device: str = "auto",
    *,
    sweep: Sweep | None = None,
    console: Console | None = None,
) -> None:
    """Draw the plan and what of it is done; only the data's cache is written.

    What a run would refuse is refused. Without the data, a folder that holds a run says what it knows.
    """
    console, folder, where = console or make_console(), RunFolder(out), pick_device(device)
    check_size(spec, sweep)
    if data is None and DATASETS[spec.dataset].needs_folder and folder.record() is not None:
        opened = recorded_run(folder, spec, sweep)
        say_notes(["data, weights, device and version were not checked: give --data DIR for that"], console)
    else:
        dataset = _load(folder, spec, data, console)
        record = describe_run(spec, dataset, where.type, sweep)
        opened = Run(folder, joined(out, folder.record(), record))
    title = f"{spec.name}, {many(len(spec.methods), 'method')} x {many(len(spec.seeds), 'seed')}"
    title += f" x {many(len(sweep.values), 'value')} of {sweep.setting}" if sweep else ""
    console.print(draw(opened.nodes_for(spec, sweep), opened.done, visible(title)))


def check_size(spec: RunSpec, sweep: Sweep | None) -> None:
    """Refuse a plan that takes longer to make than anyone waits."""
    models = len(spec.methods) * len(spec.seeds) * (1 if sweep is None else len(sweep.values))
    if models > MOST_MODELS:
        raise InputError(f"that is {models:,} models, at most {MOST_MODELS:,}: ask for fewer seeds or values")


def describe_run(spec: RunSpec, dataset: ShiftDataset, device: str, sweep: Sweep | None = None) -> Record:
    """The record of a run that begins now."""
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
    )


def _join(folder: RunFolder, record: Record) -> Run:
    """The folder's run with what is asked now added to its record; another run's folder is refused."""
    old = folder.record()
    whole = joined(folder.path, old, record)
    if whole != old:
        folder.write_record(whole)
    return Run(folder, whole)


def _load(folder: RunFolder, spec: RunSpec, data: Path | None, console: Console) -> ShiftDataset:
    """The run's data, and notes on them; a model that cannot be built for them never gets a folder.

    An encoder is tried before its tokenizer is: what is refused leaves no tokens either.
    """
    folder.check()
    model, text = spec.model, DATASETS[spec.dataset].is_text
    check_together(model.backbone, spec.dataset, text)
    heads = {card(source(name)).head for name in spec.methods} if folder.record() is None else ()
    if text and model.weights and heads:
        check_model(model, (LENGTH,), heads)
    dataset = load_dataset(spec.dataset, data, spec.protocol, spec.target, model.weights)
    first_views(dataset.name, dataset.views, spec.training.views)
    if heads and not text:
        check_model(model, dataset.input_shape, heads, dataset.num_classes)
    say_notes(dataset.notes, console)
    return dataset


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
    if node.training.average:
        last = trainer.predict(state, head, views)
        predictions |= {f"last_{split}": last[split] for split in last if split != "validation_augmented"}
    folder.finish_method(node, final, predictions, history, keep_weights)


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


def pick_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"unknown device {name!r}: give auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("there is no CUDA device here: give --device cpu or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def make_console() -> Console:
    """Standard output; wide enough for the table where it is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def say(line: str, console: Console, soft_wrap: bool = False) -> None:
    """Print a line as it is: names from files in it are no markup and cannot steer the terminal."""
    console.print(Text(visible(line)), soft_wrap=soft_wrap)


def say_notes(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        say(f"note: {note}", console, soft_wrap=True)
