"""An estimator on tables, with its card, as one model."""

from pathlib import Path
from typing import Any

import numpy as np

from calmoe.errors import InputError, shown, some
from calmoe.mixture import MixtureOutput
from calmoe.models.card import Card
from calmoe.models.classifier import TableClassifier
from calmoe.models.columns import is_table, read_columns
from calmoe.models.model import Model

MOST_NAMED = 5  # columns in a message


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

    @property
    def classes_(self) -> np.ndarray:
        return self.estimator.classes_

    @property
    def num_experts(self) -> int:
        return self.estimator._num_experts

    @property
    def expert_names(self) -> list[str]:
        return self.estimator._expert_names

    def own_output(self, X: Any) -> MixtureOutput:
        return self.estimator._output(self._known(X))

    def save(self, folder: str | Path) -> None:
        from calmoe.models.folder import save_table_model

        save_table_model(self, folder)

    def _known(self, X: Any) -> Any:
        """The columns that the model knows, in its order; an array is for models that learned from one."""
        if not is_table(X):
            if hasattr(self.estimator, "feature_names_in_"):
                raise InputError(
                    f"the model knows its columns by name: give a DataFrame or a dict of columns with "
                    f"{some(map(shown, self.columns), MOST_NAMED)}, not {type(X).__name__}"
                )
            return X if np.ndim(X) else np.atleast_2d(X)
        columns = read_columns(X)
        if missing := [name for name in self.columns if name not in columns]:
            lacks = f"lacks the column{'s' * (len(missing) > 1)} {some(map(shown, missing), MOST_NAMED)}"
            remedy = f"which the model learned from: it has {some(map(shown, columns), MOST_NAMED)}"
            raise InputError(f"the table {lacks}, {remedy}")
        if not len(next(iter(columns.values()))):
            raise InputError("the table has no rows: give at least one")
        return {name: columns[name] for name in self.columns}
