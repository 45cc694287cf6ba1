"""`calmoe train`: look at the data, say what was understood, train, score, write the folder whole."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

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
from calmoe.models.card import Card, Scores
from calmoe.models.folder import new_folder, write_model
from calmoe.models.model import Model
from calmoe.models.table_model import TableModel
from calmoe.models.taught import Taught
from calmoe.models.watching import watched
from calmoe.own_data.describe import describe
from calmoe.own_data.parts import HELD_OUT, SHIFT, Labelled, divide
from calmoe.own_data.scores import ECE_NOTE, Row, few_notes, group_grid, score_grids, scores
from calmoe.own_data.source import DOMAIN, Source, read_images, read_rows
from calmoe.own_data.spec import TrainSpec
from calmoe.own_data.tables import read_table
from calmoe.own_data.worth import worth_sentences
from calmoe.predictions import Predictions
from calmoe.progress_bar import progress_bar
from calmoe.render.grid import Grid
from calmoe.threads import threads

PAGE = "report.html"
PREDICTIONS = {HELD_OUT: formats.HELD_OUT, SHIFT: "shift.safetensors"}  # by part, in the model's folder
LONGEST = 10_000  # characters of a category or a class


class Trained(NamedTuple):
    """The model, its tables, what to know of them, and how many rows were held out."""

    model: Model
    grids: list[Grid]
    notes: list[str]
    held_out: int


def read_source(spec: TrainSpec) -> Source:
    """The spec's data; an InputError names what is not there."""
    if not spec.data.exists():
        raise InputError(f"there is no file or folder {legible(spec.data)}")
    column = spec.shifted[0]
    if spec.data.is_dir():
        if spec.label or spec.text:
            raise InputError(f"{legible(spec.data)} is a folder of images: its class folders are the labels")
        source = read_images(spec.data)
        if column and column != DOMAIN:
            raise InputError(f"images have no column {column!r}: hold out a domain with --domain NAME")
        return source
    if not spec.label:
        there = listed(read_table(spec.data).columns)
        raise InputError(f"say which column to predict, --label COLUMN: there are {there}")
    groups = [*spec.groups, *([column] if column else [])]
    source = read_rows(spec.data, label=spec.label, text=spec.text, groups=groups, drop=spec.drop)
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
    """The rows, split; what was understood; notes."""
    source = read_source(spec)
    if spec.encoder and source.kind != "texts":
        raise InputError("--encoder reads texts: name their column with --text, or leave it out")
    if spec.expect_shift and (source.kind != "tables" or spec.model == "network"):
        raise InputError("--expect-shift is for tables and their mixture of models: leave it out")
    if spec.expect_shift:
        with about("--expect-shift"):
            check_there("column to learn from", spec.expect_shift, source.columns)
    data = divide(source, spec)
    return data, describe(data, spec), [*source.notes, *data.notes]


def train(spec: TrainSpec, device: str, console: Console, say: Callable[[str], None]) -> Trained:
    """Train, score, and write the folder: all of it or nothing."""
    from calmoe.own_data.page import make_page

    where = pick_device(device)
    model: Model
    data, said, notes = look(spec)  # mistakes in the data and its columns are told first
    with new_folder(spec.folder) as place:
        for line in [*said, *(f"note: {note}" for note in notes)]:
            say(line)
        if data.source.kind == "tables":
            if launch():
                raise InputError("tables are trained by one process: leave out torchrun, or WORLD_SIZE")
            from calmoe.own_data.table_training import check_libraries, train_table

            check_libraries(spec)
            with _bar(console):
                model, rows = train_table(data, spec)
        else:
            from calmoe.own_data.network_training import check_encoder, train_network

            if data.source.kind == "texts":
                check_encoder(spec)
            with threads(2):
                model, rows = train_network(data, spec, where, console)
        baselines = [row for row in rows if not row.ours]
        if spec.compare:
            from calmoe.own_data.compare import compare

            rows += compare(model, data, spec, where, console)
        ours = next(row for row in rows if row.ours)
        worth = worth_sentences(ours, baselines)
        commit = session(where)["commit"] or ""
        model.card = make_card(model, data, spec, commit, ours, baselines, "; ".join(worth))
        keys = data.source.keys(data.source.columns)
        model.taught = Taught.of(keys[data.parts.fit], keys[data.parts.held_out])
        command = legible(shlex.join(["calmoe", "train", spec.data.name, *options(spec)]))
        write_model(model, place)
        page = make_page(data, rows, model.card, said, notes, command)
        write_whole(place / PAGE, page.encode())
        for part, predictions in ours.parts.items():
            predictions.save(place / PREDICTIONS[part])
    groups = group_grid(ours.parts[HELD_OUT])
    grids = [*score_grids(rows, data.rare), *([groups] if groups else [])]
    own = _weights(model, ours.parts[HELD_OUT]) if isinstance(model, TableModel) else _network(model, spec)
    notes = [ECE_NOTE, *own, *_expected(model.card), *few_notes(data), *worth]
    return Trained(model, grids, notes, len(data.parts.held_out))


def follow_training(spec: TrainSpec, device: str) -> None:
    """What every rank but the first does: its share of a network's training."""
    from calmoe.own_data.network_training import follow_network

    data, _, _ = look(spec)
    with threads(2):
        follow_network(data, spec, pick_device(device))


def _weights(model: TableModel, held_out: Predictions) -> list[str]:
    """What the experts of a mixture of models weigh, by name."""
    names, routing = model.expert_names, held_out.output.routing
    if not names:
        return []
    weights = listed([f"{name} {share:.2f}" for name, share in zip(names, routing.mean(0), strict=True)])
    alike = float((routing - routing[0]).abs().max()) < 1e-6
    return [f"weights of the experts, {'the same in all rows' if alike else 'on average'}: {weights}"]


def _network(model: Model, spec: TrainSpec) -> list[str]:
    """How long a network was trained; and what would help one for images that knows no others."""
    lines = [f"epochs: {model.card.settings['epochs']}, where the validation log loss was lowest"]
    if model.kind == "images" and not spec.network.weights:
        lines.append(
            "the network began without knowing any images; pretrained weights usually help much: --set "
            "backbone=resnet50 --set weights=FILE"
        )
    return lines


def _expected(card: Card) -> list[str]:
    """What the expected shift of a column led to."""
    if "eta" not in card.settings:
        return []
    eta, column = card.settings["eta"], card.settings["expect_shift"]
    if not card.settings["etas_tried"]:
        return [f"{column} has too few values to leave some out: the mixture is trained as usual"]
    led = f"tilted with η = {eta:g}" if eta else "trained as usual, as no tilt is better there"
    return [f"values of {column} were left out in turn: the mixture is {led}"]


@contextmanager
def _bar(console: Console) -> Iterator[None]:
    """A bar that follows the fits inside."""
    with progress_bar(MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("preparing", total=None)
        with watched(
            lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
        ):
            yield


def make_card(
    model: Model,
    data: Labelled,
    spec: TrainSpec,
    commit: str,
    ours: Row,
    baselines: list[Row],
    worth: str,
) -> Card:
    def judged(row: Row) -> Scores:
        return {part: scores(predictions, data.rare) for part, predictions in row.parts.items()}

    settings: dict[str, Any] = {"held_out": data.parts.share, "expect_shift": spec.expect_shift}
    if data.source.kind != "tables" or spec.model == "network":
        network = {name: value for name, value in asdict(spec.network).items() if value not in (None, "")}
        settings |= network
    settings |= model.card.settings
    split = json.dumps([list(spec.shift), spec.domain, data.parts.share, spec.seed])
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
        settings=settings | {"split": split},
        scores=model.card.scores | judged(ours),
        baselines={row.name: judged(row) for row in baselines},
        worth=worth,
        calmoe=calmoe.__version__,
        commit=commit,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def options(spec: TrainSpec) -> list[str]:
    """The options that make this spec again."""
    words: list[str] = []
    for name in ("label", "text", "domain", "expect_shift"):
        if value := getattr(spec, name):
            words += [f"--{name.replace('_', '-')}", value]
    for name, option in (("groups", "--group"), ("shift", "--shift"), ("drop", "--drop")):
        for value in getattr(spec, name):
            words += [option, value]
    if spec.encoder:
        words += ["--encoder", spec.encoder]
    if spec.held_out is not None:
        words += ["--held-out", f"{spec.held_out:g}"]
    if spec.model != "auto":
        words += ["--model", spec.model]
    default = replace(spec.network.__class__())
    for name, value in asdict(spec.network).items():
        if value != getattr(default, name):
            words += ["--set", f"{name}={value}"]
    return [*words, "--seed", str(spec.seed), *(["--compare"] if spec.compare else [])]
