"""Three commands on data of one's own: train, predict, audit; what they take, and whether they agree."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from calmoe.errors import InputError
from calmoe.experiments.trained import load
from calmoe.files import write_whole
from calmoe.own_data.parts import HELD_OUT
from calmoe.own_data.spec import TrainSpec
from calmoe.own_data.train import look
from calmoe.predictions import Predictions
from calmoe.render.grid import Entry, Grid, Heading, count, label, number
from studies.own_data_made import OwnData, made_data, real_tables

CLOSE = 1e-6  # how far a probability may be from the one that training reported


class Measured(NamedTuple):
    """One dataset after the three commands."""

    name: str
    rows: int
    seconds: tuple[float, ...]  # of CPU: train, predict, audit
    log_loss: float
    baseline: str
    baseline_log_loss: float
    ece: float
    difference: float  # the largest between a probability of predict and the one that training reported
    refusals: int  # that were one line, exit code 2, and left nothing


def own_data(
    tables: Annotated[Path, typer.Argument(help="A folder with tables.json and its CSV files.")],
    only: Annotated[list[str] | None, typer.Option(help="Data by name; repeat for more.")] = None,
    rows: Annotated[Path | None, typer.Option(help="A file to keep what is measured in.")] = None,
) -> None:
    """Do three commands turn own data into an audited model?

    Runs train, predict and audit from an empty folder on every real table as it is, and on a made credit
    table, made texts and made images. The model moves to another folder before it predicts the rows that
    training held out; every probability must be the one that training reported, and every mistake must be
    refused in one line that leaves nothing behind.

    Example: python -m studies own-data ../shared/data/tables
    """
    with tempfile.TemporaryDirectory(prefix="own-data-") as folder:
        known = {data.name: data for data in [*real_tables(tables.resolve()), *made_data(Path(folder))]}
        if unknown := sorted(set(only or ()) - set(known)):
            raise InputError(f"there are no data {unknown[0]}: choose from {', '.join(known)}")
        kept = {} if rows is None or not rows.is_file() else read_rows(rows)
        for name in only or known:
            if name not in kept:
                print(f"{name} …", file=sys.stderr, flush=True)
                kept[name] = measure(known[name], Path(folder, name))
                if rows is not None:
                    lines = [json.dumps(each._asdict()) for each in kept.values()]
                    write_whole(rows, ("\n".join(lines) + "\n").encode())
    print(as_grid([kept[name] for name in only or known]).markdown())


def read_rows(path: Path) -> dict[str, Measured]:
    """What was measured before, by name."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["name"]: Measured(**row | {"seconds": tuple(row["seconds"])}) for row in rows}


def measure(data: OwnData, folder: Path) -> Measured:
    """The three commands, each in a process of its own; the last two where nothing but their files is."""
    home, elsewhere = folder / "home", folder / "elsewhere"
    home.mkdir(parents=True)
    elsewhere.mkdir()
    copied = home / data.path.name
    (shutil.copytree if data.is_images else shutil.copy)(data.path, copied)
    refused = refusals(home, ["train", copied.name, *data.options])
    seconds = [calmoe(home, "train", copied.name, *data.options)]
    trained = (home / f"{copied.stem}-model").rename(elsewhere / "model")
    rows, new = held_out_rows(data, elsewhere)
    shutil.rmtree(home)
    refused += refuse(elsewhere, "predict", "model", new.name, "--out", "p.txt")
    seconds.append(calmoe(elsewhere, "predict", "model", new.name, "--out", "predictions.csv"))
    seconds.append(calmoe(elsewhere, "audit", "predictions.csv", "--out", "audit"))
    reported = Predictions.load(trained / "held_out.safetensors")
    predicted = Predictions.load(elsewhere / "predictions.csv")
    if (predicted.known_labels != reported.known_labels).any():
        raise InputError(f"{data.name}: predict has other labels than training")
    difference = float((predicted.output.probs - reported.output.probs).abs().max())
    if difference > CLOSE:
        raise InputError(f"{data.name}: predict differs from what training reported by {difference:.1e}")
    card = load(trained).card
    baselines = {name: parts[HELD_OUT]["log_loss"] for name, parts in card.baselines.items()}
    best, ours = min(baselines, key=lambda name: baselines[name]), card.scores[HELD_OUT]
    return Measured(
        data.name,
        rows,
        tuple(seconds),
        ours["log_loss"],
        best,
        baselines[best],
        ours["ece"],
        difference,
        refused,
    )


def held_out_rows(data: OwnData, folder: Path) -> tuple[int, Path]:
    """How many rows there are, and the rows that training held out, as new data in `folder`."""
    options = dict(zip(data.options[::2], data.options[1::2], strict=True))
    spec = TrainSpec(data=data.path, label=options.get("--label", ""), text=options.get("--text", ""))
    labelled, _, _ = look(spec)
    held_out = labelled.parts.held_out
    new = folder / f"new{data.path.suffix}"
    if data.is_images:
        for i in held_out:
            file = labelled.source.files[i]
            place = new / file.relative_to(data.path)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
        return len(labelled.source), new
    with data.path.open(newline="", encoding="utf-8") as stream:
        header, *rows = csv.reader(stream)
    place_of_label = header.index(spec.label)
    known = [row for row in rows if row[place_of_label]]
    if len(known) != len(labelled.source):
        raise InputError(f"{data.name}: the study cannot tell which rows were held out")
    with new.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *(known[i] for i in held_out)])
    return len(known), new


def refusals(home: Path, command: Sequence[str]) -> int:
    """Mistakes of the first command, one at a time: how many were refused as they must be."""
    (home / "taken").mkdir()
    (home / "taken" / "mine").write_text("mine")
    refused = sum(refuse(home, *command, *mistake) for mistake in (("--out", "taken"), ("--label", "labell")))
    shutil.rmtree(home / "taken")
    return refused


def refuse(home: Path, *arguments: str) -> int:
    """1 for a command that ends in one line and exit code 2, and leaves the folder as it was."""
    before = sorted(map(str, home.rglob("*")))
    ended = subprocess.run(_command(arguments), cwd=home, capture_output=True, text=True)
    line = ended.stderr.strip()
    if ended.returncode != 2 or not line.startswith("error: ") or "\n" in line:
        raise InputError(f"calmoe {' '.join(arguments)}: no refusal in one line, but {ended.stderr!a}")
    if sorted(map(str, home.rglob("*"))) != before:
        raise InputError(f"calmoe {' '.join(arguments)}: the refusal leaves files behind")
    return 1


def calmoe(home: Path, *arguments: str) -> float:
    """The seconds of CPU that a command takes, its own processes included."""
    log = home.parent / f"{arguments[0]}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(_command(arguments), cwd=home, stdout=stream, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise InputError(f"calmoe {' '.join(arguments)}: exit code {process.returncode}: {log.read_text()!a}")
    return used.ru_utime + used.ru_stime


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "calmoe", *arguments]


def as_grid(results: Sequence[Measured]) -> Grid:
    """A row a dataset."""

    def row(each: Measured) -> tuple[Entry, ...]:
        losses = each.log_loss, each.baseline_log_loss
        return (
            label(each.name, each.name),
            count(each.rows),
            *(Entry(f"{seconds:.0f}", (seconds,)) for seconds in each.seconds),
            *(Entry(f"{loss:.4f}", (loss,), bold=loss == min(losses)) for loss in losses),
            label(each.baseline, each.baseline),
            number(each.ece, 4),
            Entry(f"{each.difference:.0e}", (each.difference,)),
            count(each.refusals),
        )

    titles = ["data", "rows", "train, s", "predict, s", "audit, s", "log loss", "best baseline's", "which"]
    titles += ["ECE", "largest difference", "refusals in one line"]
    headings = tuple(Heading(title, (title,)) for title in titles)
    caption = "Own data in three commands: seconds of CPU; scores of the rows that were held out"
    return Grid(caption, headings, (tuple(map(row, results)),))
