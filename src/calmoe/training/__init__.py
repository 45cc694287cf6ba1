"""Training: one trainer, its settings, its checkpoints."""

from calmoe.training.checkpoints import TrainingState, latest_state, save_state
from calmoe.training.settings import ModelSettings, Stage, TrainingSettings
from calmoe.training.trainer import Diverged, Trainer, check_model, check_together, check_weights

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
