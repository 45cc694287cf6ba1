"""Training: one trainer, its settings, its checkpoints."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calmoe.training.building import check_model, check_together, check_weights
    from calmoe.training.checkpoints import TrainingState, latest_state, save_state
    from calmoe.training.settings import ModelSettings, Stage, TrainingSettings
    from calmoe.training.trainer import Diverged, Trainer

__all__ = [
    "Diverged",
    "ModelSettings",
    "Stage",
    "Trainer",
    "TrainingSettings",
    "TrainingState",
    "check_model",
    "check_together",
    "check_weights",
    "latest_state",
    "save_state",
]

_HOMES = {
    "building": ("check_model", "check_together", "check_weights"),
    "checkpoints": ("TrainingState", "latest_state", "save_state"),
    "settings": ("ModelSettings", "Stage", "TrainingSettings"),
    "trainer": ("Diverged", "Trainer"),
}


def __getattr__(name: str) -> Any:
    """Names are loaded when first used: who reads a finished run needs no trainer."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"calmoe.training.{module}"), name)
    raise AttributeError(f"module 'calmoe.training' has no attribute {name!r}")
