"""`calmoe train`: look at the data, say what was understood, train, score, write the folder whole."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

import calmoe
from calmoe import formats
from calmoe.errors import InputError, about, shown
from calmoe.experiments.environment import describe as session
from calmoe.experiments.preparation import pick_device
from calmoe.files import legible, write_whole
from calmoe.formats.columns import check_there, listed
from calmoe.launch import launch
from calmoe.models.card import Card
from calmoe.models.folder import new_folder, write_model
from calmoe.models.model import Model
from calmoe.models.table_model import TableModel
from calmoe.models.taught import Taught
from calmoe.models.watching import watched
from calmoe.new_rows import EVERY_ROW
from calmoe.own_data.describe import describe
from calmoe.own_data.parts import HELD_OUT, SHIFT, Labelled, divide
from calmoe.own_data.scores import ECE_NOTE, Row, Tables
from calmoe.own_data.settings import check_read, trainee
from calmoe.own_data.source import DOMAIN, Source, read_images, rows_of
from calmoe.own_data.spec import TrainSpec, options
from calmoe.own_data.tables import read_table
from calmoe.own_data.worth import worth_sentences
from calmoe.predictions import Predictions
from calmoe.progress_bar import Lines, progress_bar
from calmoe.render.console import say
from calmoe.render.grid import Grid
from calmoe.threads import threads

PAGE = "report.html"
PREDICTIONS = {HELD_OUT: formats.HELD_OUT, SHIFT: "shift.safetensors"}  # by part, in the model's folder
LONGEST = 10_000  # characters of a category or a class


class Trained(NamedTuple):
    """The model, its tables, what to know of them; rows held out, rows of the shift, and cases."""

    model: Model
    grids: list[Grid]
    notes: list[str]
    held_out: int
    shift: int
    cases: int


class Fitted(NamedTuple):
    """A trained model before its card is whole; the rows of the baselines, and of the paper's methods.

    notes: what became of the settings; remarks: what to know of the result.
    """

    model: Model
    ours: Row
    baselines: list[Row]
    compared: list[Row]
    notes: list[str]
    remarks: list[str]


def read_source(spec: TrainSpec) -> Source:
    """The spec's data; an InputError names what is not there."""
    if not spec.data.exists():
        raise InputError(f"there is no file or folder {legible(spec.data)}")
    column = spec.shifted[0]
    if spec.data.is_dir():
        if spec.label or spec.text:
            raise InputError(f"{legible(spec.data)} is a folder of images: its class folders are the labels")
        source = read_images(spec.data)
        if spec.groups or spec.drop or spec.cluster:
            raise InputError(
                "--group, --drop and --cluster name columns, and images have none: leave them out"
            )
        if column and column != DOMAIN:
            raise InputError(f"images have no column {column!r}: hold out a domain with --domain NAME")
        return source
    if not spec.label:
        there = listed(read_table(spec.data).columns)
        raise InputError(f"say which column to predict, --label COLUMN: there are {there}")
    groups = [*spec.groups, *([column] if column else [])]
    cluster = "" if spec.cluster == EVERY_ROW else spec.cluster
    if cluster and cluster in (spec.label, spec.text, spec.expect_shift):
        raise InputError(f"--cluster {shown(spec.cluster)}: this column is asked for something else, too")
    source = rows_of(
        read_table(spec.data, spec.text),
        spec.data,
        label=spec.label,
        text=spec.text,
        groups=groups,
        drop=spec.drop,
        cluster=cluster,
    )
    with about(legible(spec.data)):
        _check_lengths(source, spec.label)
    return source


def _check_lengths(source: Source, label: str) -> None:
    """Refuse classes and categories that are whole texts."""
    cells = {name: values for name, values in source.columns.items() if values.dtype == object}
    for name, values in {label: source.labels, **cells}.items():
        longest = max((len(value) for value in {*values.tolist()} if value is not None), default=0)
        if longest > LONGEST:
            remedy = (
                "name another --label" if name == label else f"learn from it with --text, or --drop {name}"
            )
            raise InputError(f"column {shown(name, 60)} holds a text of {longest:,} characters: {remedy}")


def look(spec: TrainSpec) -> tuple[Labelled, list[str], list[str]]:
    """The rows, split; what was understood; notes. Options that nothing would read are refused."""
    source = read_source(spec)
    tables = source.kind == "tables"
    if spec.encoder and source.kind != "texts":
        raise InputError("--encoder reads texts: name their column with --text, or leave it out")
    if spec.model == "mixture" and not tables:
        raise InputError(f"--model mixture is for tables: leave it out, {source.kind} have a network")
    if spec.expect_shift and not (tables and spec.model != "network"):
        raise InputError("--expect-shift is for tables and their mixture of models: leave it out")
    check_read(spec.network, trainee(source.kind, spec.model, spec.compare))
    if spec.expect_shift:
        with about("--expect-shift"):
            check_there("column to learn from", spec.expect_shift, source.columns)
    data = divide(source, spec)
    return data, describe(data, spec), [*source.notes, *data.notes]


def train(spec: TrainSpec, device: str, console: Console, tell: Callable[[str], None]) -> Trained:
    """Train, score, and write the folder: all of it or nothing."""
    from calmoe.own_data.page import make_page

    where = pick_device(device)
    data, summary, notes = look(spec)  # mistakes in the data and its columns are told first
    with new_folder(spec.folder) as place:
        for line in [*summary, *(f"note: {note}" for note in notes)]:
            tell(line)
        fit = _fit_table if data.source.kind == "tables" else _fit_network
        fitted = fit(data, spec, where, console)
        model, ours, baselines = fitted.model, fitted.ours, fitted.baselines
        rows = [ours, *baselines, *fitted.compared]
        worth = worth_sentences(ours, baselines)
        model.card = make_card(model, data, spec, session(where)["commit"] or "", ours, baselines, worth)
        keys = data.source.keys(data.source.columns)
        cases = data.source.cases
        known = None if cases is None else cases[data.parts.fit]
        model.taught = Taught.of(keys[data.parts.fit], keys[data.parts.held_out], known)
        command = legible(shlex.join(["calmoe", "train", spec.data.name, *options(spec)]))
        tables = Tables.of(rows, data)
        write_model(model, place)
        page = make_page(ours, tables, model.card, [*summary, *notes, *fitted.notes], command)
        write_whole(place / PAGE, page.encode())
        for part, predictions in ours.parts.items():
            named = {} if cases is None else {spec.cluster: cases[data.judged[part]]}
            kept = replace(predictions, groups=predictions.groups | named)
            kept.save(place / PREDICTIONS[part])
    grids = [*tables.parts, *([tables.groups] if tables.groups else [])]
    notes = [ECE_NOTE, *fitted.remarks, *tables.few, *worth]
    return Trained(model, grids, notes, len(data.parts.held_out), len(data.parts.shift), data.parts.cases)


def _fit_table(data: Labelled, spec: TrainSpec, device: torch.device, console: Console) -> Fitted:
    """A mixture of models, or a network for a table."""
    from calmoe.own_data.table_training import check_libraries, train_table

    if launch():
        raise InputError("tables are trained by one process: leave out torchrun, or WORLD_SIZE")
    check_libraries(spec)
    with _bar(console):
        model, ours, baselines = train_table(data, spec)
    compared = []
    if spec.compare:
        from calmoe.own_data.compare import compare, table_field

        compared = compare(table_field(model, data, spec.network), data, spec.seed, device, console)
    weights, expected = _weights(model, ours.parts[HELD_OUT]), _expected(model.card, spec.expect_shift)
    remarks = [*weights, *_epochs(model.card), *expected]
    return Fitted(model, ours, baselines, compared, [], remarks)


def _fit_network(data: Labelled, spec: TrainSpec, device: torch.device, console: Console) -> Fitted:
    """A network for images or texts, which are prepared once."""
    from calmoe.own_data.baselines import base_rate, linear_on_pixels, linear_on_words
    from calmoe.own_data.network_training import train_network
    from calmoe.own_data.prepared import prepare

    texts = data.source.kind == "texts"
    if texts and not spec.encoder:
        raise InputError("texts need a model that reads them: --encoder DIR, such as a folder of DistilBERT")
    with threads(2):
        prepared = prepare(data, spec)
        notes = prepared.recipe.notes
        for line in [str(prepared), *(f"note: {note}" for note in notes)]:
            say(line, console, soft_wrap=True)
        model, ours = train_network(data, prepared, spec.seed, device, console)
        linear = linear_on_words(data) if texts else linear_on_pixels(data, prepared.rows.numpy())
    compared = []
    if spec.compare:
        from calmoe.own_data.compare import compare, network_field

        compared = compare(network_field(prepared, data, spec.network), data, spec.seed, device, console)
    remarks = _epochs(model.card)
    if not texts and not spec.network.weights:
        remarks.append(
            "the network began without knowing any images; pretrained weights usually help much: --set "
            "backbone=resnet50 --set weights=FILE"
        )
    return Fitted(model, ours, [base_rate(data), linear], compared, notes, remarks)


def follow_training(spec: TrainSpec, device: str) -> None:
    """What every rank but the first does: its share of a network's training."""
    from calmoe.own_data.network_training import follow_network
    from calmoe.own_data.prepared import prepare

    data, _, _ = look(spec)
    with threads(2):
        follow_network(prepare(data, spec), pick_device(device))


def _weights(model: TableModel, held_out: Predictions) -> list[str]:
    """What the experts of a mixture of models weigh, by name."""
    names, routing = model.expert_names, held_out.output.routing
    if not names:
        return []
    weights = listed([f"{name} {share:.2f}" for name, share in zip(names, routing.mean(0), strict=True)])
    alike = float((routing - routing[0]).abs().max()) < 1e-6
    return [f"weights of the experts, {'the same in all rows' if alike else 'on average'}: {weights}"]


def _epochs(card: Card) -> list[str]:
    """How long a network was trained."""
    if "best_epoch" not in card.settings:
        return []
    return [f"epochs: {card.settings['best_epoch']}, where the validation log loss was lowest"]


def _expected(card: Card, column: str) -> list[str]:
    """What the expected shift of a column led to."""
    if "eta" not in card.settings:
        return []
    eta = card.settings["eta"]
    if not card.settings["etas_tried"]:
        return [f"{column} has too few values to leave some out: the mixture is trained as usual"]
    led = f"tilted with η = {eta:g}" if eta else "trained as usual, as no tilt is better there"
    return [f"values of {column} were left out in turn: the mixture is {led}"]


@contextmanager
def _bar(console: Console) -> Iterator[None]:
    """A bar that follows the fits inside, or a line now and then."""
    lines = Lines(console)
    with progress_bar(MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("preparing", total=None)

        def watch(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)
            lines.offer(f"{what}: {done} of {total}")

        with watched(watch):
            yield


def make_card(
    model: Model,
    data: Labelled,
    spec: TrainSpec,
    commit: str,
    ours: Row,
    baselines: list[Row],
    worth: list[str],
) -> Card:
    """What the training wrote on the card, the data, and the scores."""
    settings: dict[str, Any] = {"held_out": data.parts.share, "expect_shift": spec.expect_shift}
    if data.source.cases is not None:
        settings["cluster"] = spec.cluster
    settings["split"] = json.dumps([list(spec.shift), spec.domain, data.parts.share, spec.seed])
    return Card(
        dataset=data.source.name,
        method=ours.name,
        rows=len(data.parts.fit),
        digest=data.source.digest,
        label=spec.label,
        text=spec.text,
        columns=tuple(data.source.columns),
        groups=tuple(data.source.groups),
        seed=spec.seed,
        settings=settings | model.card.settings,
        scores=model.card.scores | ours.scores,
        baselines={row.name: row.scores for row in baselines},
        worth="; ".join(worth),
        calmoe=calmoe.__version__,
        commit=commit,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
