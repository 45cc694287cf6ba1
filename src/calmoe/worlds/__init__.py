"""Worlds where the truth is known: whatever an audit estimates in them is an exact sum."""

from calmoe.worlds import multiclass
from calmoe.worlds.binary import (
    WORLDS,
    World,
    broken,
    calibrated,
    calibrated_experts,
    cancelling,
    confident,
    hard_routed,
    miscalibrated,
    shifted,
)

__all__ = [
    "WORLDS",
    "World",
    "broken",
    "calibrated",
    "calibrated_experts",
    "cancelling",
    "confident",
    "hard_routed",
    "miscalibrated",
    "multiclass",
    "shifted",
]
