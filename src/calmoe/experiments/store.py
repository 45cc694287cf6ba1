"""A run folder on disk: what was asked, where it ran, finished nodes, results; sealed, one writer at a time.

spec.json            the run: spec, data fingerprints, device
environment.json     one entry a session: code version, machine, command
nodes/KEY/           a warm-up's state, or a method's predictions, weights and history; or why it diverged
results.jsonl        one row per method, seed and protocol; always computed anew from predictions
done.json            seals the results, as nodes/KEY/done.json seals a node
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import safetensors.torch

from calmoe.errors import InputError, shown
from calmoe.experiments.checked_files import check_sessions, parse_rows, read_history, read_results_file
from calmoe.experiments.evaluation import READINGS
from calmoe.experiments.plan import Node
from calmoe.experiments.record import Record, parse_record
from calmoe.experiments.sealing import MARK, read_seal, read_sealed, seal, write_sealed
from calmoe.files import (
    hold,
    inside,
    is_utf8,
    leftovers,
    legible,
    open_lock,
    unfinished,
    write_json,
    write_whole,
)
from calmoe.predictions import Predictions
from calmoe.training.checkpoints import NAME as STATE
from calmoe.training.checkpoints import TrainingState, latest_state, save_state
from calmoe.validation import text

SPEC, ENVIRONMENT, RESULTS, WEIGHTS, HISTORY, DIVERGED = (
    "spec.json",
    "environment.json",
    "results.jsonl",
    "model.safetensors",
    "history.json",
    "diverged.json",
)
SPLITS = ("validation", "validation_augmented", "test")
ALSO = tuple(f"{reading}{split}" for reading in READINGS for split in ("validation", "test"))
LOCK, KEY = ".lock", re.compile("[0-9a-f]{32}")
RUN_FILES = {SPEC, ENVIRONMENT, RESULTS, MARK}
METHOD_FILES = {HISTORY, *(f"{split}.safetensors" for split in SPLITS)}
NODE_FILES = {MARK, DIVERGED, WEIGHTS, *METHOD_FILES, *(f"{split}.safetensors" for split in ALSO)}


class RunFolder:
    """A folder with one run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = -1  # the open file that keeps others out, while this process does

    def check(self) -> None:
        """Refuse, before anything is written, a folder that is neither free nor a run's.

        A run's has its record or, where that was lost, something else that a run sealed.
        """
        if not is_utf8(str(self.path)):
            raise InputError(f"{legible(self.path)} is no UTF-8: give another folder with --out")
        names = os.listdir(self.path) if self.path.is_dir() else []
        others = [name for name in names if name != LOCK and unfinished(name) not in RUN_FILES]
        if not others or _is_sealed(self.path / SPEC):
            return
        if not any(map(_is_sealed, [self.path / ENVIRONMENT, *(node / MARK for node in self._nodes())])):
            raise InputError(f"{self.path} is not empty and holds no run: give a new folder with --out")
        if RESULTS in others and read_seal(self.path, [RESULTS]) is None:
            raise InputError(f"{self.path / RESULTS} is of no known run: move it, or give another --out")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; what a killed one left half-written goes."""
        self.check()
        with self._lock():
            try:
                self._sweep()
                yield
            except OSError as error:  # a full disk does not say where it is full
                error.filename = error.filename or str(self.path)
                raise

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open_lock(self.path / LOCK)
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path} ({error.strerror or error}): give another folder with --out"
            ) from None
        except InputError as error:
            raise InputError(f"{error}: remove it, or give another --out") from None
        with lock:
            hold(
                lock.fileno(),
                f"another calmoe is running in {self.path}: wait for it, or give another --out",
            )
            self.lock = lock.fileno()
            try:
                yield
            finally:
                self.lock = -1

    def _sweep(self) -> None:
        for path in leftovers(self.path, RUN_FILES.__contains__):
            path.unlink()
        for node in self._nodes():
            _tidy(node)

    def tidy(self, key: str) -> None:
        """Remove what a killed process left half-written of a node."""
        if (node := self.node(key)).is_dir():
            _tidy(node)

    def _nodes(self) -> list[Path]:
        """The folders of nodes that are there; links are none."""
        nodes = inside(self.path, "nodes")
        if not nodes.is_dir():
            return []
        with os.scandir(nodes) as entries:
            return [
                nodes / e.name for e in entries if KEY.fullmatch(e.name) and e.is_dir(follow_symlinks=False)
            ]

    # --- the run

    def record(self) -> Record | None:
        """What `spec.json` says, or None where there is no run yet."""
        try:
            document = read_sealed(self.path / SPEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except InputError as error:
            raise InputError(f"{error}: delete it and run again, finished nodes are kept") from None
        return parse_record(self.path / SPEC, document)

    def write_record(self, record: Record) -> None:
        write_sealed(self.path / SPEC, record.as_json())

    def sessions(self) -> list[dict[str, Any]]:
        """Who worked here; nothing where that file is gone or damaged."""
        try:
            return check_sessions(self.path / ENVIRONMENT, read_sealed(self.path / ENVIRONMENT))
        except (OSError, InputError):
            return []

    def add_session(self, session: dict[str, Any]) -> list[str]:
        """Say in `environment.json` who works here now; a damaged one is kept aside, and told of."""
        path, sessions, notes = self.path / ENVIRONMENT, [], []
        try:
            sessions = check_sessions(path, read_sealed(path))
        except FileNotFoundError:
            pass
        except InputError as error:
            names = (path.with_name(f"{ENVIRONMENT}.damaged{n or ''}") for n in count())
            aside = path.rename(next(name for name in names if not os.path.lexists(name)))
            notes = [f"{error}: it is kept as {aside}, a new one is begun"]
        write_sealed(path, {"sessions": [*sessions, session]})
        return notes

    # --- nodes

    def node(self, key: str) -> Path:
        return inside(self.path, "nodes", key)

    def sealed_files(self, key: str, files: Collection[str] = ()) -> dict[str, str] | None:
        """The digests of a node's files, if its seal is intact, names `files`, and all are as they were."""
        mark = read_seal(self.node(key), files, key=key)
        return None if mark is None else mark["files"]

    def just_sealed(self, key: str) -> dict[str, str]:
        """The digests of the files of a node that this process has just sealed."""
        files: dict[str, str] = read_sealed(self.node(key) / MARK)["files"]
        return files

    def begin(self, node: Node) -> Path:
        """The folder for a node's checkpoints; a seal that is broken goes, and a word that it diverged."""
        folder = self.node(node.key)
        folder.mkdir(parents=True, exist_ok=True)
        for name in (MARK, DIVERGED):
            (folder / name).unlink(missing_ok=True)
        return folder

    def give_up(self, node: Node, reason: str) -> None:
        """Say in the node's folder that it diverged: what determines it is in its key, so it would again."""
        write_sealed(self.node(node.key) / DIVERGED, {"key": node.key, "reason": reason})

    def divergence(self, key: str) -> str | None:
        """Why the node diverged in an earlier session; None where nothing whole says so."""
        try:
            word = read_sealed(self.node(key) / DIVERGED)
            return text("reason", word.get("reason"), most=1000) if word.get("key") == key else None
        except (OSError, InputError):
            return None

    def state(self, node: Node) -> TrainingState | None:
        """Where the node stands: its newest checkpoint, else the end of its warm-up; None: nothing yet."""
        own = latest_state(self.node(node.key), node.stage.end)
        if own is not None or node.parent is None:
            return own
        state = latest_state(self.node(node.parent.key))
        if state is None or state.epoch != node.stage.start:
            raise InputError(
                f"{self.node(node.parent.key)} has no whole state of the warm-up: delete it and run again"
            )
        return state

    def finish_warmup(self, node: Node, state: TrainingState) -> None:
        """Keep the warm-up's last state, and only that."""
        folder = self.node(node.key)
        path = save_state(state, folder)
        seal(folder, [path.name], key=node.key)
        _drop_states(folder, but=[path.name])

    def finish_method(
        self,
        node: Node,
        state: TrainingState,
        predictions: dict[str, Predictions],
        history: list[dict[str, float]],
        keep_weights: bool,
        inputs: dict[str, Any] | None = None,
    ) -> None:
        """Keep the predictions, the history and, if asked, the weights; checkpoints go.

        inputs: how rows are prepared for the model; the header of the weights says it.
        """
        folder = self.node(node.key)
        save_predictions(folder, predictions, method=node.method, seed=node.seed)
        write_json(folder / HISTORY, history)
        names = [HISTORY, *(f"{split}.safetensors" for split in predictions)]
        if keep_weights:
            weights = {
                k.removeprefix("model."): v for k, v in state.tensors.items() if k.startswith("model.")
            }
            note = {"calmoe": json.dumps(inputs)} if inputs is not None else None
            write_whole(folder / WEIGHTS, safetensors.torch.save(weights, note))
            names.append(WEIGHTS)
        seal(folder, names, key=node.key)
        _drop_states(folder)

    def add_predictions(self, key: str, predictions: dict[str, Predictions], **facts: Any) -> None:
        """Keep predictions from elsewhere as a node of their own."""
        folder = self.node(key)
        folder.mkdir(parents=True, exist_ok=True)
        save_predictions(folder, predictions, **facts)
        seal(folder, [f"{split}.safetensors" for split in predictions], key=key)

    def state_files(self, key: str) -> dict[str, bytes]:
        """A node's checkpoints, by name."""
        return {n: data for n, data in self.node_files(key, but=NODE_FILES).items() if STATE.fullmatch(n)}

    def node_files(self, key: str, but: Collection[str] = ()) -> dict[str, bytes]:
        """A node's whole files by name, but for those named."""
        folder = self.node(key)
        names = os.listdir(folder) if folder.is_dir() else []
        return {n: (folder / n).read_bytes() for n in names if is_node_file(n) and n not in but}

    def keep(self, key: str, files: Mapping[str, bytes]) -> None:
        """Keep files of a node that another machine trains, the seal last; states that nothing needs go."""
        folder = self.node(key)
        folder.mkdir(parents=True, exist_ok=True)
        for name in sorted(files, key=MARK.__eq__):
            if not is_node_file(name):
                raise InputError(f"{shown(name)} is no file of a node")
            write_whole(inside(folder, name), files[name])
        needed = self.just_sealed(key) if MARK in files else files
        if any(map(STATE.fullmatch, needed)) or MARK in files:
            _drop_states(folder, but=needed)

    def predictions(self, key: str) -> dict[str, Predictions]:
        """A finished node's predictions by split."""
        paths = {split: self.node(key) / f"{split}.safetensors" for split in (*SPLITS, *ALSO)}
        return {split: Predictions.load(path) for split, path in paths.items() if path.exists()}

    def history(self, key: str) -> list[dict[str, float]]:
        """What training logged, an entry an epoch; nothing for predictions from elsewhere."""
        path = self.node(key) / HISTORY
        return read_history(path) if path.exists() else []

    # --- results

    def write_results(self, rows: list[dict[str, Any]], **facts: Any) -> None:
        """Write the rows and seal them with what they were made of; the same rows are the same bytes."""
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        write_whole(self.path / RESULTS, lines.encode())
        seal(self.path, [RESULTS], rows=len(rows), **facts)

    def results(self, **facts: Any) -> list[dict[str, Any]] | None:
        """The sealed rows, if they are intact and were made of these facts; else None."""
        try:
            mark, data = read_sealed(self.path / MARK), read_results_file(self.path / RESULTS)
        except (OSError, InputError):
            return None
        made_of_these = all(mark.get(name) == value for name, value in facts.items())
        if not made_of_these or mark.get("files") != {RESULTS: hashlib.sha256(data).hexdigest()}:
            return None
        return parse_rows(self.path / RESULTS, data)


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The rows of a finished run, if its seal is intact."""
    rows = RunFolder(folder).results()
    if rows is None:
        raise InputError(f"{folder} has no intact results: run `calmoe run` with --out {folder} again")
    return rows


def save_predictions(folder: Path, predictions: dict[str, Predictions], **facts: Any) -> None:
    for split, values in predictions.items():
        named = replace(values, metadata={**values.metadata, **facts, "split": split})
        named.save(folder / f"{split}.safetensors")


def _is_sealed(path: Path) -> bool:
    try:
        return bool(read_sealed(path))
    except (OSError, InputError):
        return False


def is_node_file(name: str) -> bool:
    """Whether a node's folder may hold a file of this name."""
    return name in NODE_FILES or STATE.fullmatch(name) is not None


def _tidy(node: Path) -> None:
    names = {*os.listdir(node)}
    if any(name.startswith(".") for name in names):
        for path in leftovers(node, is_node_file):
            path.unlink()
    if {MARK, HISTORY} <= names:
        _drop_states(node)  # a finished method needs no checkpoints


def _drop_states(folder: Path, but: Collection[str] = ()) -> None:
    for name in os.listdir(folder):
        if STATE.fullmatch(name) and name not in but:
            (folder / name).unlink()
