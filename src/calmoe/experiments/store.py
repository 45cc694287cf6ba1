"""The run folder: what was asked, where it ran, finished nodes, results; all sealed, one writer at a time.

spec.json            the run: spec, data fingerprints, device
environment.json     one entry a session: code version, machine, command
nodes/KEY/           a warm-up's state, or a method's predictions, weights and history
results.jsonl        one row per method, seed and protocol; always computed anew from predictions
done.json            seals the results, as nodes/KEY/done.json seals a node
"""

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import safetensors.torch

from calmoe.errors import InputError
from calmoe.experiments.plan import Node
from calmoe.experiments.sealing import MARK, read_seal, read_sealed, seal, write_sealed
from calmoe.experiments.validation import check_record, check_sessions, read_rows
from calmoe.files import TEMPORARY, write_json, write_whole
from calmoe.predictions import Predictions
from calmoe.training import TrainingState, latest_state, save_state

SPEC, ENVIRONMENT, RESULTS, WEIGHTS, HISTORY = (
    "spec.json",
    "environment.json",
    "results.jsonl",
    "model.safetensors",
    "history.json",
)
SPLITS = ("validation", "validation_augmented", "test")


class RunFolder:
    """A folder with one run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; what a killed one left half-written goes."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            opened = (self.path / ".lock").open("w")
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path} ({error.strerror or error}): give another folder with --out"
            ) from None
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another calmoe is running in {self.path}: wait for it, or give another --out"
                ) from None
            try:
                self._sweep()
                yield
            except OSError as error:  # a full disk does not say where it is full
                error.filename = error.filename or str(self.path)
                raise

    def _sweep(self) -> None:
        for path in (*self.path.glob(".*"), *self.path.glob("nodes/*/.*")):
            if TEMPORARY.fullmatch(path.name):
                path.unlink()
        for mark in self.path.glob(f"nodes/*/{MARK}"):
            if (mark.parent / HISTORY).exists():  # a finished method needs no checkpoints
                _drop_states(mark.parent)

    # --- the run

    def record(self) -> dict[str, Any] | None:
        """What `spec.json` says, or None where there is no run yet."""
        try:
            record = read_sealed(self.path / SPEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except InputError as error:
            raise InputError(f"{error}: delete it and run again, finished nodes are kept") from None
        return check_record(self.path / SPEC, record)

    def write_record(self, record: dict[str, Any]) -> None:
        write_sealed(self.path / SPEC, record)

    def add_session(self, session: dict[str, Any]) -> list[str]:
        """Say in `environment.json` who works here now; a damaged one is kept aside, and told of."""
        path, sessions, notes = self.path / ENVIRONMENT, [], []
        try:
            sessions = check_sessions(path, read_sealed(path))
        except FileNotFoundError:
            pass
        except InputError as error:
            names = (path.with_name(f"{ENVIRONMENT}.damaged{n or ''}") for n in count())
            aside = path.rename(next(name for name in names if not name.exists()))
            notes = [f"{error}: it is kept as {aside}, a new one is begun"]
        write_sealed(path, {"sessions": [*sessions, session]})
        return notes

    # --- nodes

    def node(self, node: Node) -> Path:
        return self.path / "nodes" / node.key

    def done(self, nodes: Iterable[Node]) -> set[str]:
        """The keys of the nodes that are finished and intact."""
        return {node.key for node in nodes if read_seal(self.node(node), key=node.key) is not None}

    def begin(self, node: Node) -> Path:
        """The folder for a node's checkpoints; a seal that is broken goes."""
        folder = self.node(node)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).unlink(missing_ok=True)
        return folder

    def state(self, node: Node) -> TrainingState | None:
        """Where the node stands: its newest checkpoint, else the end of its warm-up; None: nothing yet."""
        own = latest_state(self.node(node), node.stage.end)
        if own is not None or node.parent is None:
            return own
        state = latest_state(self.node(node.parent))
        if state is None or state.epoch != node.stage.start:
            raise InputError(
                f"{self.node(node.parent)} has no whole state of the warm-up: delete it and run again"
            )
        return state

    def finish_warmup(self, node: Node, state: TrainingState) -> None:
        """Keep the warm-up's last state, and only that."""
        folder = self.node(node)
        path = save_state(state, folder)
        seal(folder, [path.name], key=node.key)
        _drop_states(folder, but=path.name)

    def finish_method(
        self,
        node: Node,
        state: TrainingState,
        predictions: dict[str, Predictions],
        history: list[dict[str, float]],
        keep_weights: bool,
    ) -> None:
        """Keep the predictions, the history and, if asked, the weights; checkpoints go."""
        folder = self.node(node)
        facts = {"method": node.method, "seed": node.seed}
        for split in SPLITS:
            told = replace(
                predictions[split], metadata={**predictions[split].metadata, **facts, "split": split}
            )
            told.save(folder / f"{split}.safetensors")
        write_json(folder / HISTORY, history)
        names = [*(f"{split}.safetensors" for split in SPLITS), HISTORY]
        if keep_weights:
            weights = {
                k.removeprefix("model."): v for k, v in state.tensors.items() if k.startswith("model.")
            }
            write_whole(folder / WEIGHTS, safetensors.torch.save(weights))
            names.append(WEIGHTS)
        seal(folder, names, key=node.key)
        _drop_states(folder)

    def predictions(self, node: Node) -> dict[str, Predictions]:
        """A finished method's predictions by split."""
        return {split: Predictions.load(self.node(node) / f"{split}.safetensors") for split in SPLITS}

    # --- results

    def write_results(self, rows: list[dict[str, Any]]) -> None:
        """Write the rows and seal them; the same rows are the same bytes."""
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        write_whole(self.path / RESULTS, lines.encode())
        seal(self.path, [RESULTS], rows=len(rows))


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The rows of a finished run, if its seal is intact."""
    if read_seal(folder) is None:
        raise InputError(f"{folder} has no intact results: run `calmoe run` with --out {folder} again")
    return read_rows(folder / RESULTS)


def _drop_states(folder: Path, but: str = "") -> None:
    for path in folder.glob("state-*.safetensors"):
        if path.name != but:
            path.unlink()
