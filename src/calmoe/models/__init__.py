"""Models on people's own tables: preparation, scikit-learn estimators, folders without pickle."""

from calmoe.models.preparation import Preparation

__all__ = ["Preparation"]
