"""What both estimators share: reading X and y as scikit-learn asks for it, and every way of predicting."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_sample_weight,
    _check_y,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from calmoe.arrays import as_numpy, as_tensor
from calmoe.errors import InputError, shown
from calmoe.mixture import MixtureOutput
from calmoe.models.columns import Columns, is_table, read_columns
from calmoe.models.preparation import Preparation
from calmoe.predictions import Predictions


class Rows(NamedTuple):
    """Labelled rows to learn from."""

    columns: Columns
    labels: np.ndarray  # [N] indices into the classes
    weights: np.ndarray  # [N] > 0
    kept: np.ndarray  # [N] their places in what was given: rows of weight zero are left out


class TableClassifier(ClassifierMixin, BaseEstimator):
    """A classifier on tables whose answers are mixtures: what is left to say is `fit` and `_answer`."""

    classes_: np.ndarray
    preparation_: Preparation
    n_features_in_: int

    @property
    @abstractmethod
    def _num_experts(self) -> int:
        """The experts of its mixture."""

    @abstractmethod
    def _answer(self, columns: Columns, given: Any) -> MixtureOutput:
        """The mixture for rows that were read; `given` is X as it came."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class for the rows `X`, in the order of `classes_`. [N, C]"""
        probs = as_numpy(self._output(X).probs)
        return probs / probs.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of the probabilities for the rows `X`. [N, C]"""
        return as_numpy(self._output(X).log_probs)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class for the rows `X`. [N]"""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def predictions(self, X: Any, y: Any = None, groups: dict[str, Any] | None = None) -> Predictions:
        """Mixture, routing and experts as `calmoe.Predictions`, ready for `calmoe.audit`.

        Args:
            X: A table by columns, or an array. [N, columns]
            y: The true classes [N], if they are known.
            groups: Columns by name, one value a row, that the audit should look at.
        """
        labels = None if y is None else as_tensor(self._codes(np.asarray(y)))
        names = [str(value) for value in self.classes_]
        metadata: dict[str, Any] = {"model": type(self).__name__, "classes": names}
        if self._expert_names:
            metadata["experts"] = self._expert_names
        return Predictions(output=self._output(X), labels=labels, groups=groups or {}, metadata=metadata)

    @property
    def _expert_names(self) -> list[str]:
        """What its experts are called; empty where they have no names."""
        return [name for name, _ in getattr(self, "experts_", [])]

    def _output(self, X: Any) -> MixtureOutput:
        check_is_fitted(self, "classes_")
        return self._answer(self._read(X, reset=False), X)

    def _read(self, X: Any, reset: bool) -> Columns:
        """X by columns; checks their names and number as scikit-learn does. `reset` when fitting."""
        if is_table(X):
            columns = read_columns(X)
            self._check_names(X, list(columns), reset)
            if reset:
                self.n_features_in_ = len(columns)
            elif len(columns) != self.n_features_in_:
                raise InputError(
                    f"X has {len(columns)} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input"
                )
        else:
            columns = read_columns(
                validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
            )
        if reset:
            return columns
        names = [column.name for column in self.preparation_.columns]
        return dict(zip(names, columns.values(), strict=True))

    def _check_names(self, X: Any, names: list[str], reset: bool) -> None:
        """Set or compare `feature_names_in_`; scikit-learn knows frames, but not a mapping of columns."""
        if not isinstance(X, Mapping):
            _check_feature_names(self, X, reset=reset)
        elif reset:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif list(getattr(self, "feature_names_in_", names)) != names:
            raise InputError(
                "The feature names should match those that were passed during fit, in that order"
            )

    def _begin(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Check what `fit` was given, and set what scikit-learn expects to find afterwards."""
        columns = self._read(X, reset=True)
        if y is None:
            raise InputError("fit requires y to be passed, but the target y is None")
        y = _check_y(y)
        rows = len(next(iter(columns.values())))
        if len(y) != rows:
            check_consistent_length(np.empty(rows), y)
        check_classification_targets(y)
        weights = np.ones(rows)
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, np.empty((rows, 1)), dtype=np.float64)
            if (weights < 0).any():
                raise InputError("sample_weight must not be negative: leave rows out with a weight of 0")
            if not weights.any():
                raise InputError("Sample weights are all zero: at least one row must have a positive one")
        kept = np.flatnonzero(weights)
        self.classes_, labels = np.unique(np.asarray(y)[kept], return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y has 1 class only, {shown(self.classes_.tolist()[0])}: at least 2 are needed")
        if len(kept) < rows:
            columns = {name: values[kept] for name, values in columns.items()}
        return Rows(columns, labels, weights[kept], kept)

    def _codes(self, y: np.ndarray) -> np.ndarray:
        """Labels as places in `classes_`."""
        place = {value: i for i, value in enumerate(self.classes_.tolist())}
        strange = [value for value in y.tolist() if value not in place]
        if strange:
            raise InputError(f"y holds {shown(strange[0])}, a class that the model did not learn")
        return np.array([place[value] for value in y.tolist()], dtype=np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def held_together_by(groups: Any, y: Any, rows: Rows) -> np.ndarray | None:
    """The group of each row that is kept, as a number."""
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.shape != (len(np.asarray(y)),):
        raise InputError(f"groups must be one value a row, not {list(values.shape)}")
    return np.unique(values[rows.kept], return_inverse=True)[1]


def seed_of(random_state: Any) -> int:
    """A seed for all that a fit draws."""
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))


def differing(columns: Columns, enough: int) -> int:
    """How many rows differ, counted up to `enough`: repeating a row adds nothing to learn from."""
    seen: set[tuple[Any, ...]] = set()
    for row in zip(*(_comparable(values) for values in columns.values()), strict=True):
        seen.add(row)
        if len(seen) >= enough:
            break
    return len(seen)


def _comparable(values: np.ndarray) -> Iterator[Any]:
    """NaN as None, which equals itself."""
    return (None if value != value else value for value in values)
