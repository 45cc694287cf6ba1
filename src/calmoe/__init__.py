"""Calibrated mixtures of experts under distribution shift."""

from calmoe.mixture import MixtureClassifier, MixtureHead, MixtureOutput
from calmoe.predictions import Predictions

__all__ = ["MixtureClassifier", "MixtureHead", "MixtureOutput", "Predictions"]
