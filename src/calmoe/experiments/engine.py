"""Running a spec: plan, train what is missing, judge the predictions, show the table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from calmoe.data import load_dataset
from calmoe.errors import InputError
from calmoe.experiments.environment import describe
from calmoe.experiments.evaluation import evaluate
from calmoe.experiments.methods import in_order, source
from calmoe.experiments.plan import Node, draw, leaves, to_do
from calmoe.experiments.progress import TimeUp, Watcher
from calmoe.experiments.records import Record, describe_run, join, plan_of, recorded
from calmoe.experiments.spec import RunSpec, from_table
from calmoe.experiments.store import RESULTS, RunFolder
from calmoe.report import PAPER_COLUMNS, Grid, main_table, summarise
from calmoe.training import Diverged, ModelSettings, Trainer

WIDTH = 150  # of the table where there is no terminal


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended: the rows of its results, and what failed or is missing, by name."""

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
    only_report: bool = False,
    time_limit: float | None = None,
    tensorboard: bool = False,
    console: Console | None = None,
) -> Outcome:
    """Train what `out` does not hold yet, then write and show the results of all it holds."""
    console, folder = console or make_console(), RunFolder(out)
    if only_report:
        record = recorded(folder, spec)
        with folder.locked():
            return _report(folder, spec, record, {}, console)
    where = pick_device(device)
    dataset = load_dataset(spec.dataset, data, spec.protocol)
    record = describe_run(spec, dataset, data, where.type)
    with folder.locked(), _threads(spec.model):
        record = join(folder, record)
        nodes = plan_of(spec, record)
        missing = to_do(nodes, folder.done(nodes))
        failed: dict[str, str] = {}
        if missing:
            folder.add_session(describe(where))
            events = out / "tensorboard" if tensorboard else None
            watcher = Watcher(console, sum(node.epochs for node in missing), time_limit, events)
            trainer = Trainer(dataset, spec.model, spec.training, where)
            try:
                with watcher:
                    failed = train(missing, trainer, folder, watcher, spec.keep_weights)
            except TimeUp:
                console.print(f"time is up; run the same command to continue in {out}")
                return Outcome(time_up=True)
        return _report(folder, spec, record, failed, console)


def show_plan(
    spec: RunSpec, out: Path, data: Path | None = None, device: str = "auto", console: Console | None = None
) -> None:
    """Draw the plan and what of it is done; nothing is written."""
    folder = RunFolder(out)
    if folder.record() is None:
        dataset = load_dataset(spec.dataset, data, spec.protocol)
        record = describe_run(spec, dataset, data, pick_device(device).type)
    else:
        record = recorded(folder, spec)
    nodes = plan_of(spec, record)
    title = f"{spec.dataset}, {len(spec.methods)} methods x {len(spec.seeds)} seeds"
    (console or make_console()).print(draw(nodes, folder.done(nodes), title))


def train(
    nodes: Sequence[Node], trainer: Trainer, folder: RunFolder, watcher: Watcher, keep_weights: bool = True
) -> dict[str, str]:
    """Train the nodes in order; one that diverges is named, with the reason, and the others go on."""
    failed: dict[str, str] = {}
    for node in nodes:
        if node.parent is not None and str(node.parent) in failed:
            failed[str(node)] = "its warm-up diverged"
            continue
        try:
            _train_node(node, trainer, folder, watcher, keep_weights)
        except Diverged as error:
            failed[str(node)] = str(error)
    return failed


def _train_node(
    node: Node, trainer: Trainer, folder: RunFolder, watcher: Watcher, keep_weights: bool
) -> None:
    times: dict[float, dict[str, float]] = {}

    def watch(epoch: int, entry: dict[str, float]) -> None:
        times[epoch + 1] = {"seconds": entry["seconds"]}
        watcher.epoch(node, epoch + 1, trainer.settings.epochs, entry)

    checkpoints = folder.begin(node)
    state = folder.state(node) or trainer.initial_state(node.stage.head, node.seed)
    watcher.begin(node, state.epoch)
    state = trainer.train(node.stage, node.seed, state, checkpoints, watch)
    if node.method is None:
        folder.finish_warmup(node, state)
    else:
        history = [entry | times.get(entry["epoch"], {}) for entry in state.history]
        folder.finish_method(node, state, trainer.predict(state, node.stage.head), history, keep_weights)


def results(folder: RunFolder, spec: RunSpec, record: Record) -> tuple[list[dict[str, Any]], list[str]]:
    """A row per protocol, method and seed, and the names of those that are not trained."""
    nodes = plan_of(spec, record)
    done, trained = folder.done(nodes), leaves(nodes)
    rows, missing = [], []
    for method in in_order(spec.methods):
        for seed in spec.seeds:
            node = trained[source(method), seed]
            if node.key in done:
                predictions = folder.predictions(node)
                rows += [evaluate(method, seed, p, predictions, record["hard"]) for p in record["protocols"]]
            else:
                missing.append(f"seed {seed} {method}")
    return sorted(rows, key=lambda row: record["protocols"].index(row["protocol"])), missing


def _report(
    folder: RunFolder, asked: RunSpec, record: Record, failed: dict[str, str], console: Console
) -> Outcome:
    rows, missing = results(folder, from_table(record["spec"]), record)
    wanted = {f"seed {seed} {method}" for seed in asked.seeds for method in asked.methods}
    failed = {name: "not trained" for name in missing if name in wanted} | failed
    if not rows:
        listed = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise InputError(f"{folder.path} has no results ({listed})")
    folder.write_results(rows)
    for protocol in record["protocols"]:
        console.print(results_table(rows, asked.dataset, protocol).rich())
    for row in rows:
        if row["temperature_status"] not in ("optimum", "published"):
            console.print(
                f"note: seed {row['seed']} {row['method']}, {row['protocol']} protocol: "
                f"temperature {row['temperature']:.3g}, {row['temperature_status']}"
            )
    for name, reason in failed.items():
        console.print(f"failed: {name}: {reason}")
    console.print(f"{len(rows)} rows in {folder.path / RESULTS}; more --methods or --seeds add to them")
    return Outcome(rows=rows, failed=failed)


def results_table(rows: Sequence[dict[str, Any]], dataset: str, protocol: str) -> Grid:
    """The paper's table under one protocol, with the proper scores beside it."""
    seeds = sorted({row["seed"] for row in rows if row["protocol"] == protocol})
    title = f"{dataset}, {protocol} protocol; mean ± standard error over seeds {', '.join(map(str, seeds))}"
    return main_table(summarise(rows, protocol), (*PAPER_COLUMNS, "nll_ts", "brier_ts"), title)


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


@contextmanager
def _threads(model: ModelSettings) -> Iterator[None]:
    """An MLP's steps are so small that threads only wait for each other: it gets one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if model.backbone == "mlp" else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
