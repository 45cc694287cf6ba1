"""Checkpoints that are whole or absent: the file's name carries the digest of its contents.

All randomness of an epoch comes from (seed, epoch), so weights, optimiser state and the epoch's number are
all there is to restore: continuing from a checkpoint is bit for bit the run that was never interrupted.
"""

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from calmoe.errors import InputError
from calmoe.files import write_whole
from calmoe.validation import check_finite, items, number, parse_json, table, whole

KEPT = 2
MOST_EPOCHS = 99_999  # the names of the files have five digits for them
NAME = re.compile(r"state-(\d{5})-[0-9a-f]{32}\.safetensors")


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """Where a training run stands after `epoch` epochs: named tensors on the CPU, and what was logged."""

    epoch: int
    tensors: dict[str, Tensor]
    history: list[dict[str, float]] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        note = json.dumps({"epoch": self.epoch, "history": self.history})
        return safetensors.torch.save(self.tensors, {"calmoe": note})

    @classmethod
    def from_bytes(cls, data: bytes) -> "TrainingState":
        """What `to_bytes` wrote; an InputError if it is anything else."""
        try:
            tensors = safetensors.torch.load(data)
        except (safetensors.SafetensorError, KeyError) as error:
            raise InputError(f"not a readable safetensors file ({error})") from None
        header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata = table("__metadata__", header.get("__metadata__"), ("calmoe",))
        note = table("calmoe", parse_json(metadata["calmoe"].encode()), ("epoch", "history"))
        for entry in items("history", note["history"]):
            for name, value in table("history", entry).items():
                number(name, value)
        trained = {name.removeprefix("step.") for name in tensors if name.startswith("step.")}
        check_finite({name: tensors[f"model.{name}"] for name in trained if f"model.{name}" in tensors})
        epoch = whole("epoch", note["epoch"], most=MOST_EPOCHS)
        return cls(epoch=epoch, tensors=tensors, history=note["history"])


def save_state(state: TrainingState, folder: Path) -> Path:
    """Write `state-EPOCH-DIGEST.safetensors` and forget all but the last two."""
    data = state.to_bytes()
    path = folder / f"state-{state.epoch:05d}-{hashlib.sha256(data).hexdigest()[:32]}.safetensors"
    write_whole(path, data)
    for old in _checkpoints(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def latest_state(folder: Path, last: int = MOST_EPOCHS) -> TrainingState | None:
    """The newest state up to epoch `last` whose contents match its name; damaged ones are passed over."""
    for path in _checkpoints(folder):
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest()[:32] == path.stem.rsplit("-", 1)[1]:
            with suppress(InputError):
                state = TrainingState.from_bytes(data)
                if state.epoch <= last:
                    return state
    return None


def _checkpoints(folder: Path) -> list[Path]:
    """The folder's checkpoints, the newest first."""
    return sorted((p for p in folder.glob("state-*") if NAME.fullmatch(p.name) and p.is_file()), reverse=True)
