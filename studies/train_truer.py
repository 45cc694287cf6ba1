"""Train what the study of truer probabilities still lacks, several trainings at a time, until time is up."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Semaphore
from typing import Annotated, NamedTuple

import typer

from calmoe.errors import InputError, check_known
from calmoe.experiments.engines.processes import compile_share
from calmoe.experiments.run import Run
from calmoe.experiments.spec import parse_seeds
from calmoe.report.rows_over_seeds import Row
from studies.pack import save_packed
from studies.rows import place_of, read_lines, write_lines

TRUNKS = (  # methods that share a warm-up; long trainings first
    ("sharp", "sharp_filtered", "sharp_brier"),
    ("sharp_single",),
    ("vanilla", "robust_filtered", "robust_brier"),
    ("single",),
)
METHODS = tuple(method for trunk in TRUNKS for method in trunk)
Model = tuple[str, int, str]  # target, seed, method
GRACE = 300.0  # seconds after the limit: compiling, an epoch and predictions of all views take less


class Grid(NamedTuple):
    """What is trained of a dataset."""

    seeds: Sequence[int]
    settings: tuple[str, ...] = ()
    rho: float = 0.2  # as validation rows of digits and CIFAR-10H chose it; PACS takes it from them
    average: float = 0.998
    targets: tuple[str, ...] = ("",)


GRIDS = {
    "cifar10h": Grid(range(42, 47), ("views=10",)),
    "pacs": Grid(
        range(42, 45),
        ("views=10", "backbone=resnet50", "variant=v1"),
        targets=("sketch", "art_painting", "cartoon", "photo"),
    ),
    "hatexplain": Grid(range(42, 47), rho=0.02),
    "digits": Grid(range(42, 52), ("views=5",), average=0.99),
}


class Piece(NamedTuple):
    """What is lacking of one target, seed and warm-up: one folder."""

    target: str
    seed: int
    trunk: str
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        return "-".join(filter(None, [self.target, str(self.seed), self.trunk]))


def train_truer(
    dataset: Annotated[str, typer.Argument(help=f"One of {', '.join(GRIDS)}.")],
    rows: Annotated[Path, typer.Option(help="The rows that are there; what they hold is not trained.")],
    to: Annotated[Path, typer.Option(help="Where run folders go.")],
    data: Annotated[Path | None, typer.Option(help="Where the dataset's files are.")] = None,
    weights: Annotated[Path | None, typer.Option(help="Pretrained weights.")] = None,
    limit: Annotated[
        float,
        typer.Option(
            help=f"Seconds after which nothing new begins; what runs on for {GRACE:g} more is killed."
        ),
    ] = 3600.0,
    jobs: Annotated[int, typer.Option(min=1, help="Trainings at a time.")] = 1,
    methods: Annotated[str | None, typer.Option(help="Only these, such as vanilla,sharp.")] = None,
    targets: Annotated[str | None, typer.Option(help="Only these, such as sketch,photo.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Only these, such as 42-43.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="A further setting.")] = None,
    new_rows: Annotated[
        Path | None, typer.Option(help="Where new rows go as each folder is read; TO/new-rows.jsonl.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Only list what is missing.")] = False,
) -> None:
    """What does the study of truer probabilities still lack?

    Trains it, one seed, target and warm-up after another, and writes a row for each way to read
    each model, and predictions/PIECE-METHOD-SPLIT.npz in half precision. Stops in time: give the same
    command again for the rest, with the new rows appended to --rows.

    Example: python -m studies train-truer pacs --rows results/truer/pacs.jsonl --to WORK --data PACS
    --weights resnet50.safetensors --limit 500 --jobs 3
    """
    check_known("dataset", dataset, tuple(GRIDS))
    grid = part_of(GRIDS[dataset], targets, seeds)
    wanted = methods.split(",") if methods else list(METHODS)
    for method in wanted:
        check_known("method of the study", method, METHODS)
    held = {model_of(row) for row in (read_lines(rows) if rows.exists() else [])}
    pieces = list(lacking(grid, held, wanted))
    if dry_run:
        for piece in pieces:
            print(piece.name, ",".join(piece.methods))
        return
    to.mkdir(parents=True, exist_ok=True)
    session = Session(
        dataset=dataset,
        data=data,
        settings=(
            *("keep_weights=false", f"average={grid.average}", f"rho={grid.rho}", *grid.settings),
            *([f"weights={weights}"] if weights else []),
            *(settings or []),
        ),
        to=to,
        new_rows=new_rows or to / "new-rows.jsonl",
        held=held,
        deadline=time.monotonic() + limit,
        environment={**os.environ, **compile_share(jobs)},
        turns=Semaphore(jobs),
    )
    session.write_rows()
    with ThreadPoolExecutor(2 * jobs) as pool:  # a model is read while the next ones train
        list(pool.map(session.work, pieces))


def part_of(grid: Grid, targets: str | None, seeds: str | None) -> Grid:
    """The grid with these targets and seeds alone."""
    if targets:
        for target in targets.split(","):
            check_known("target", target, grid.targets)
        grid = grid._replace(targets=tuple(targets.split(",")))
    if seeds:
        if strange := set(parse_seeds(seeds)) - set(grid.seeds):
            raise InputError(
                f"seed {min(strange)} is not in the study: it has {grid.seeds[0]}-{grid.seeds[-1]}"
            )
        grid = grid._replace(seeds=parse_seeds(seeds))
    return grid


def model_of(row: Row) -> Model:
    return *place_of(row), row["method"]


def lacking(grid: Grid, held: Set[Model], wanted: Sequence[str]) -> Iterator[Piece]:
    """The pieces with models that are not held: all targets of a seed before the next seed."""
    for seed in grid.seeds:
        for target in grid.targets:
            for trunk in TRUNKS:
                left = tuple(m for m in trunk if m in wanted and (target, seed, m) not in held)
                if left:
                    yield Piece(target, seed, trunk[0], left)


@dataclass(frozen=True, kw_only=True)
class Session:
    """Trains pieces in turn until the deadline, and reads each as soon as it is trained."""

    dataset: str
    data: Path | None
    settings: tuple[str, ...]
    to: Path
    new_rows: Path
    held: Set[Model]  # whose rows are there
    deadline: float
    environment: Mapping[str, str]
    turns: Semaphore  # as many as train at a time
    writing: Lock = field(default_factory=Lock)

    def work(self, piece: Piece) -> None:
        folder = self.to / piece.name
        with self.turns:
            left = self.deadline - time.monotonic()
            if left <= 0:
                return
            started = time.monotonic()
            code = self.train(piece, folder, left)
            ended = "hung and was killed" if code is None else f"rc {code}"
            print(f"{piece.name} {ended} after {time.monotonic() - started:.0f} s", flush=True)
        if (folder / "spec.json").exists() and any((run := Run.open(folder)).finished()):
            _keep_predictions(run, piece, self.to / "predictions")
            _read(folder)
            self.write_rows()

    def train(self, piece: Piece, folder: Path, left: float) -> int | None:
        """`calmoe run` in a process of its own, and its exit code; None if it hung and was killed.

        What it says goes into a file beside its folder.
        """
        command = [sys.executable, "-m", "calmoe", "run", self.dataset, "--methods", ",".join(piece.methods)]
        command += ["--seeds", str(piece.seed), "--out", str(folder), "--time-limit", f"{left:.0f}"]
        command += ["--data", str(self.data)] if self.data else []
        command += ["--target", piece.target] if piece.target else []
        for setting in self.settings:
            command += ["--set", setting]
        log = folder.with_suffix(".log")
        try:
            with log.open("wb") as lines:  # written as they come, so that they show where a training hangs
                code = subprocess.run(
                    command,
                    stdout=lines,
                    stderr=subprocess.STDOUT,
                    env=self.environment,
                    timeout=left + GRACE,
                    check=False,
                ).returncode
        except subprocess.TimeoutExpired:
            return None
        if code == 2:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise InputError(f"{piece.name}: calmoe run refused: {''.join(last)}")
        return code

    def write_rows(self) -> None:
        """All rows of this and earlier sessions that are not held; to be appended to those that are."""
        with self.writing:
            files = [*filter(Path.exists, [self.new_rows]), *sorted(self.to.glob("*.rows.jsonl"))]
            rows = (row for file in files for row in read_lines(file) if model_of(row) not in self.held)
            if files:
                readings = {(model_of(row), row["weights"], row["views"]): row for row in rows}
                write_lines(self.new_rows, readings.values())


def _read(folder: Path) -> None:
    """`studies cells` in a process of its own: threads of one process would wait for each other."""
    command = [sys.executable, "-m", "studies", "cells", str(folder), "--to", f"{folder}.rows.jsonl"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        last = finished.stderr.strip().splitlines()[-1:]
        raise InputError(f"{folder.name}: its models could not be read: {''.join(last)}")


def _keep_predictions(run: Run, piece: Piece, folder: Path) -> None:
    """What each finished model says, in half precision: of its averaged weights, one view."""
    folder.mkdir(exist_ok=True)
    for model in run.read_models("corrected", seeds=[piece.seed]):
        for split in ("validation", "test"):
            name = "-".join(filter(None, [piece.target, str(piece.seed), model.method, split]))
            save_packed(getattr(model, split), folder / f"{name}.npz")
