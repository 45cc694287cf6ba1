"""Calibrated mixtures of experts under distribution shift."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calmoe.auditing import AuditReport, audit
    from calmoe.backbones.sequence_classifier import MixtureForSequenceClassification
    from calmoe.experiments.trained import load
    from calmoe.mixture import MixtureClassifier, MixtureHead, MixtureOutput
    from calmoe.models import CalibratedMoEClassifier, MixtureOfModels
    from calmoe.predictions import Predictions
    from calmoe.reading import read_predictions

__version__ = "0.1.0"
__all__ = [
    "AuditReport",
    "CalibratedMoEClassifier",
    "MixtureClassifier",
    "MixtureForSequenceClassification",
    "MixtureHead",
    "MixtureOfModels",
    "MixtureOutput",
    "Predictions",
    "audit",
    "load",
    "read_predictions",
]

_HOMES = {
    "AuditReport": "calmoe.auditing",
    "CalibratedMoEClassifier": "calmoe.models",
    "MixtureClassifier": "calmoe.mixture",
    "MixtureForSequenceClassification": "calmoe.backbones.sequence_classifier",
    "MixtureHead": "calmoe.mixture",
    "MixtureOfModels": "calmoe.models",
    "MixtureOutput": "calmoe.mixture",
    "Predictions": "calmoe.predictions",
    "audit": "calmoe.auditing",
    "load": "calmoe.experiments.trained",
    "read_predictions": "calmoe.reading",
}


def __getattr__(name: str) -> Any:
    """Names and modules are loaded when first used: torch takes seconds, and `calmoe --help` should not."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name.startswith("_") or find_spec(f"calmoe.{name}") is None:
        raise AttributeError(f"module 'calmoe' has no attribute {name!r}")
    return import_module(f"calmoe.{name}")
