"""Mixtures whose truth is known: all that an audit estimates about them is an exact sum."""

from calmoe.worlds import cancellation, multiclass
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
    "cancellation",
    "cancelling",
    "confident",
    "hard_routed",
    "miscalibrated",
    "multiclass",
    "shifted",
]
