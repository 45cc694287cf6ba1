"""An estimator on tables, with its card, as one model."""

from pathlib import Path
from typing import Any

import numpy as np

from calmoe.errors import InputError, shown
from calmoe.mixture import MixtureOutput
from calmoe.models.card import Card
from calmoe.models.classifier import TableClassifier
from calmoe.models.columns import is_table, read_columns
from calmoe.models.model import Model


class TableModel(Model):
    """Tables may have more columns than the model needs, in any order: it takes those that it knows."""

    kind = "tables"

    def __init__(self, estimator: TableClassifier, card: Card | None = None) -> None:
        self.estimator, self.card = estimator, card or Card()
        self.classes = estimator.classes_.tolist()

    @property
    def columns(self) -> list[str]:
        """The columns that a table must have."""
        return [column.name for column in self.estimator.preparation_.columns]

    def output(self, X: Any) -> MixtureOutput:
        return self.estimator._output(self._known(X))

    def save(self, folder: str | Path) -> None:
        from calmoe.models.folder import save_table_model

        save_table_model(self, folder)

    def _known(self, X: Any) -> Any:
        """The columns that the model knows, in its order; arrays without names as they are."""
        if not is_table(X):
            return X if np.ndim(X) else np.atleast_2d(X)
        columns = read_columns(X)
        missing = [name for name in self.columns if name not in columns]
        if missing:
            listed = ", ".join(map(shown, missing[:5])) + (", …" if len(missing) > 5 else "")
            raise InputError(f"the table has no column {listed}: the model was trained with it")
        return {name: columns[name] for name in self.columns}
