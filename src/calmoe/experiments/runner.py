"""Carry out a spec: train what is missing, judge the predictions, write the results."""

import math
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from calmoe.data import load_dataset
from calmoe.errors import InputError
from calmoe.experiments.engines.local import Local
from calmoe.experiments.engines.work import Engine, Work
from calmoe.experiments.plugins import changed
from calmoe.experiments.preparation import (
    check_size,
    describe_run,
    load_data,
    pick_device,
    recorded_run,
)
from calmoe.experiments.record import Record
from calmoe.experiments.run import Run
from calmoe.experiments.same_run import joined
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.store import RunFolder
from calmoe.experiments.sweep import Sweep
from calmoe.experiments.tensorboard_events import Events
from calmoe.experiments.watcher import TimeUp, Watcher
from calmoe.files import inside
from calmoe.render.console import make_console, say, say_notes
from calmoe.threads import threads
from calmoe.training.following import follow
from calmoe.training.ranks import present
from calmoe.training.trainer import Trainer

LOCAL = Local()


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
    engine: Engine = LOCAL,
    console: Console | None = None,
) -> Outcome:
    """Train what `out` does not hold yet, then write the results of all it holds.

    With a sweep, every point is a run of its own, in one folder.
    """
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    console, folder = console or make_console(), RunFolder(out)
    variants = [spec] if sweep is None else sweep.variants(spec).values()  # bad points are refused here
    if only_report:
        recorded_run(folder, spec, sweep)
        with folder.locked():
            opened = recorded_run(folder, spec, sweep)
            return _finish(opened, spec, sweep, {}, again=True)
    check_size(spec, sweep)
    where, ranks = engine.device(device), present()
    if ranks.several and not isinstance(engine, Local):
        raise InputError("torchrun trains one model on all ranks: leave out --jobs and --engine")
    ranks.check_batch(min(variant.training.batch for variant in variants))
    events = Events(inside(out, "tensorboard")) if tensorboard else None
    dataset = load_data(folder, spec, data, console)
    record = describe_run(spec, dataset, where.type, sweep)
    with folder.locked(), _threads(spec):
        opened = _join(folder, record, console)
        missing = opened.to_do(spec, sweep)
        say_notes(opened.diverged_notes(spec, sweep), console)
        failed: dict[str, str] = {}
        if missing:
            _warn_of_scratch(spec, console)
            say_notes(folder.add_session(engine.session(where)), console)
            watcher = Watcher(console, sum(node.epochs for node in missing), deadline, events)
            threads_each = torch.get_num_threads()
            work = Work(
                spec=spec, dataset=dataset, data=data, device=where, threads=threads_each, ranks=ranks
            )
            ranks.order("begin")
            try:
                with watcher:
                    failed = engine.train(missing, work, opened, watcher)
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


def _finish(
    opened: Run, asked: RunSpec, sweep: Sweep | None, failed: dict[str, str], again: bool = False
) -> Outcome:
    """Write the results of all that the folder holds, unless those there are just these already."""
    nodes, known = opened.nodes_for(asked, sweep), opened.diverged
    diverged = {str(node): known[node.key] for node in nodes if node.key in known}
    failed = dict.fromkeys(opened.untrained(asked, sweep), "not trained") | diverged | failed
    rows = None if again else opened.current_rows()
    if rows is None:
        rows = opened.evaluate()
        if not rows:
            listed = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise InputError(f"{opened.path} has no results ({listed})")
        opened.write_results(rows)
    return Outcome(run=opened, rows=rows, failed=failed)
