"""Running a spec: plan, train what is missing, judge the predictions, show the table."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.text import Text

from calmoe.data import ShiftDataset, is_text, load_dataset, needs_folder
from calmoe.data.text import LENGTH
from calmoe.errors import InputError
from calmoe.escaping import visible
from calmoe.experiments.environment import describe
from calmoe.experiments.evaluation import evaluate, temperature_notes
from calmoe.experiments.plan import Node, draw, leaves, to_do
from calmoe.experiments.progress import Events, TimeUp, Watcher
from calmoe.experiments.records import (
    Record,
    describe_run,
    join,
    joined,
    plan_of,
    plans_of,
    recorded,
    sweep_of,
)
from calmoe.experiments.spec import RunSpec, from_table
from calmoe.experiments.store import HISTORY, RESULTS, RunFolder
from calmoe.experiments.sweep import Sweep
from calmoe.experiments.validation import read_history
from calmoe.files import inside
from calmoe.methods import METHODS, in_order, source
from calmoe.render.wording import many
from calmoe.report import Grid, columns_in, known_columns, main_table, summarise
from calmoe.report.sweeps import setting_title, sweep_table
from calmoe.report.titles import run_title
from calmoe.training import Diverged, Trainer, check_model, check_together

MOST_MODELS = 10_000
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
    sweep: Sweep | None = None,
    only_report: bool = False,
    time_limit: float | None = None,
    tensorboard: bool = False,
    console: Console | None = None,
) -> Outcome:
    """Train what `out` does not hold yet, then write and show the results of all it holds.

    With a sweep, every value of its setting is a run of its own, in one folder.
    """
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    console, folder = console or make_console(), RunFolder(out)
    if sweep is not None:
        sweep.variants(spec)  # bad values are refused before anything is written
    if only_report:
        record = recorded(folder, spec, sweep)
        with folder.locked():
            return _report(folder, spec, plan_of(spec, record, sweep), record, {}, console)
    _check_size(spec, sweep)
    where = pick_device(device)
    events = Events(inside(out, "tensorboard")) if tensorboard else None
    dataset = _load(folder, spec, data, console)
    record = describe_run(spec, dataset, where.type, sweep)
    with folder.locked(), threads(1 if spec.model.backbone == "mlp" else torch.get_num_threads()):
        record = join(folder, record)
        nodes = plan_of(spec, record, sweep)
        missing = to_do(nodes, folder.done(nodes))
        failed: dict[str, str] = {}
        if missing:
            imagenet = spec.model.backbone.startswith("resnet") and spec.model.stem == "imagenet"
            if imagenet and not spec.model.weights:
                _tell(["the backbone starts from scratch; --set weights=FILE gives it ImageNet's"], console)
            _tell(folder.add_session(describe(where)), console)
            watcher = Watcher(console, sum(node.epochs for node in missing), deadline, events)
            trainer = Trainer(dataset, spec.model, spec.training, where)
            try:
                with watcher:
                    failed = train(missing, trainer, folder, watcher, spec.keep_weights)
            except TimeUp:
                _say(f"time is up; run the same command to continue in {out}", console)
                return Outcome(time_up=True)
        return _report(folder, spec, nodes, record, failed, console)


def show_plan(
    spec: RunSpec,
    out: Path,
    data: Path | None = None,
    device: str = "auto",
    *,
    sweep: Sweep | None = None,
    console: Console | None = None,
) -> None:
    """Draw the plan and what of it is done; of files only the data's cache is written.

    What a run would refuse is refused; without the data, a folder that holds a run is asked what it knows.
    """
    console, folder, where = console or make_console(), RunFolder(out), pick_device(device)
    _check_size(spec, sweep)
    if data is None and needs_folder(spec.dataset) and folder.record() is not None:
        record = recorded(folder, spec, sweep)
        _tell(["data, weights, device and version were not checked: give --data DIR for that"], console)
    else:
        dataset = _load(folder, spec, data, console)
        record = joined(folder, describe_run(spec, dataset, where.type, sweep))
    nodes = plan_of(spec, record, sweep)
    title = f"{spec.name}, {many(len(spec.methods), 'method')} x {many(len(spec.seeds), 'seed')}"
    title += f" x {many(len(sweep.values), 'value')} of {sweep.setting}" if sweep else ""
    console.print(draw(nodes, folder.done(nodes), visible(title)))


def _check_size(spec: RunSpec, sweep: Sweep | None) -> None:
    """Refuse a plan that takes longer to make than anyone waits."""
    models = len(spec.methods) * len(spec.seeds) * (1 if sweep is None else len(sweep.values))
    if models > MOST_MODELS:
        raise InputError(f"that is {models:,} models, at most {MOST_MODELS:,}: ask for fewer seeds or values")


def _say(line: str, console: Console, soft_wrap: bool = False) -> None:
    """Print a line as it is: names from files in it are no markup and cannot steer the terminal."""
    console.print(Text(visible(line)), soft_wrap=soft_wrap)


def _tell(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        _say(f"note: {note}", console, soft_wrap=True)


def _load(folder: RunFolder, spec: RunSpec, data: Path | None, console: Console) -> ShiftDataset:
    """The run's data, and notes on them; a model that cannot be built for them never gets a folder.

    An encoder is tried before its tokenizer is: what is refused leaves no tokens either.
    """
    folder.check()
    model, text = spec.model, is_text(spec.dataset)
    check_together(model.backbone, spec.dataset, text)
    heads = {METHODS[source(name)].head for name in spec.methods} if folder.record() is None else ()
    if text and model.weights and heads:
        check_model(model, (LENGTH,), heads)
    dataset = load_dataset(spec.dataset, data, spec.protocol, spec.target, model.weights)
    if heads and not text:
        check_model(model, dataset.input_shape, heads, dataset.num_classes)
    _tell(dataset.notes, console)
    return dataset


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
    try:
        trainer.check_state(node.stage.head, state)
    except InputError as error:
        raise InputError(
            f"{checkpoints}: its state, or its warm-up's, is of no such model ({error})"
        ) from None
    watcher.begin(node, state.epoch)
    state = trainer.train(node.stage, node.seed, state, checkpoints, watch, node.eta)
    if node.method is None:
        folder.finish_warmup(node, state)
    else:
        history = [entry | times.get(entry["epoch"], {}) for entry in state.history]
        folder.finish_method(node, state, trainer.predict(state, node.stage.head), history, keep_weights)


class Result(NamedTuple):
    """What a folder is to hold: a method with a seed and, in a sweep, a value; and whether it is trained."""

    value: float | None
    method: str
    seed: int
    node: Node
    done: bool


def expected(folder: RunFolder, record: Record) -> Iterator[Result]:
    """Everything that the folder's record names, by value, method and seed."""
    spec, sweep = from_table(record["spec"]), sweep_of(record)
    done = folder.done(plan_of(spec, record, sweep))
    for value, nodes in plans_of(spec, record, sweep).items():
        trained = leaves(nodes)
        for method in in_order(spec.methods):
            for seed in spec.seeds:
                node = trained[source(method), seed]
                yield Result(value, method, seed, node, node.key in done)


def results(folder: RunFolder, record: Record) -> list[dict[str, Any]]:
    """A row per protocol, method and seed that is trained; in a sweep, also per value."""
    sweep, batch, rows = sweep_of(record), record["spec"]["training"]["batch"], []
    with threads(1):  # on a busy machine two take ten times as long
        for value, method, seed, node, done in expected(folder, record):
            if not done:
                continue
            predictions, facts = folder.predictions(node), {}
            if sweep is not None:
                facts = {"setting": sweep.setting, "value": value, "batch": batch, **_last_tilt(folder, node)}
            for protocol in record["protocols"]:
                rows.append(evaluate(method, seed, protocol, predictions, record["hard"]) | facts)
    return sorted(rows, key=lambda row: record["protocols"].index(row["protocol"]))


def _last_tilt(folder: RunFolder, node: Node) -> dict[str, float]:
    """What the tilt did to the training batches of the last epoch, where the model is all but still."""
    last = read_history(folder.node(node) / HISTORY)[-1]
    told = ("batch", "perplexity", "gamma_eff", "negative_share")
    return {name: last[name] for name in told if name in last}


def _report(
    folder: RunFolder,
    asked: RunSpec,
    nodes: list[Node],
    record: Record,
    failed: dict[str, str],
    console: Console,
) -> Outcome:
    rows, done = results(folder, record), folder.done(nodes)
    for node in nodes:
        if node.key not in done:
            names = [replace(node, method=name) for name in asked.methods if source(name) == node.method]
            failed = dict.fromkeys(map(str, names), "not trained") | failed
    if not rows:
        listed = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise InputError(f"{folder.path} has no results ({listed})")
    folder.write_results(rows)
    title = run_title(record["spec"], but=record.get("sweep", {}).get("setting", ""))
    for protocol in record["protocols"]:
        console.print(results_table(rows, title, protocol).rich())
    _tell(temperature_notes(rows), console)
    for name, reason in failed.items():
        _say(f"failed: {name}: {reason}", console)
    more = "--methods, --seeds or --values" if record.get("sweep") else "--methods or --seeds"
    found = f"{many(len(rows), 'row')} in {folder.path / RESULTS}"
    _say(f"{found}; more {more} add to them", console)
    return Outcome(rows=rows, failed=failed)


def results_table(rows: Sequence[dict[str, Any]], dataset: str, protocol: str) -> Grid:
    """The paper's table under one protocol, with the proper scores beside it; a sweep's by value."""
    seeds = sorted({row["seed"] for row in rows if row["protocol"] == protocol})
    title = f"{protocol} protocol; mean ± standard error over seeds {', '.join(map(str, seeds))}"
    if "value" in rows[0]:
        return sweep_table(
            rows, protocol, f"{dataset}, sweep of {setting_title(rows[0]['setting'])}, {title}"
        )
    summary = summarise(rows, protocol)
    columns = known_columns(summary, columns_in("main"))
    return main_table(summary, columns, f"{dataset}, {title}")


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
def threads(count: int) -> Iterator[None]:
    """At most `count` of torch's threads: where operations are small, they only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(count, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)
