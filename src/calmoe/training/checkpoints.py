"""Checkpoints that are whole or absent: the file's name carries the digest of its contents.

All randomness of an epoch comes from (seed, epoch), so weights, optimiser state and the epoch's number are
all there is to restore: continuing from a checkpoint is bit for bit the run that was never interrupted.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from calmoe.files import write_whole

KEPT = 2
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
        header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        note = json.loads(header["__metadata__"]["calmoe"])
        return cls(epoch=note["epoch"], tensors=safetensors.torch.load(data), history=note["history"])


def save_state(state: TrainingState, folder: Path) -> Path:
    """Write `state-EPOCH-DIGEST.safetensors` and forget all but the last two."""
    data = state.to_bytes()
    path = folder / f"state-{state.epoch:05d}-{hashlib.sha256(data).hexdigest()[:32]}.safetensors"
    write_whole(path, data)
    for old in _found(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def latest_state(folder: Path) -> TrainingState | None:
    """The newest state whose contents match its name; damaged ones are passed over."""
    for path in _found(folder):
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest()[:32] == path.stem.rsplit("-", 1)[1]:
            return TrainingState.from_bytes(data)
    return None


def _found(folder: Path) -> list[Path]:
    """Checkpoints, the newest first."""
    return sorted((p for p in folder.glob("state-*") if NAME.fullmatch(p.name) and p.is_file()), reverse=True)
