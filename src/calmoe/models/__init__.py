"""Models on people's own tables: preparation, scikit-learn estimators, folders without pickle."""

from calmoe.models.calibrated_moe import CalibratedMoEClassifier
from calmoe.models.mixture_of_models import MixtureOfModels
from calmoe.models.model import Model
from calmoe.models.preparation import Preparation

__all__ = ["CalibratedMoEClassifier", "MixtureOfModels", "Model", "Preparation"]
