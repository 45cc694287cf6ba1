"""Models that read the configuration S as a table: numbers, then categories.

Source and target are compared along all of S (`Configurations.features`). What was left out could differ
between the files and tell how often rows are right, and no interval would know.
"""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline, make_pipeline

from calmoe.auditing.configurations import Features
from calmoe.auditing.statistics.sequential import SHRUNK

PARTS = 5  # of the rows that teach, which code each other


def reading(model: Any, features: Features) -> Pipeline:
    """The model, to be fitted to rows of such tables, in random order."""
    return make_pipeline(CategoryMeans(features.categories.shape[1]), model)


class CategoryMeans(TransformerMixin, BaseEstimator):
    """Categories, the last columns, as the mean answer of their rows less that of all, drawn towards zero.

    So 100 classes of few rows are no harder than 10. No row that teaches is coded by its own answer: each
    fifth is coded by the other four.
    """

    def __init__(self, categories: int) -> None:
        self.categories = categories

    def fit(self, table: np.ndarray, answers: np.ndarray) -> Self:
        surplus = answers - answers.mean()
        columns = table[:, -self.categories :].astype(int).T
        sums, counts = ([np.bincount(column, weights) for column in columns] for weights in (surplus, None))
        unseen = [0.0]  # the last entry, for every later category
        self.means_ = [np.append(s / (c + SHRUNK), unseen) for s, c in zip(sums, counts, strict=True)]
        return self

    def transform(self, table: np.ndarray) -> np.ndarray:
        coded = table.copy()
        for column, means in zip(range(-self.categories, 0), self.means_, strict=True):
            coded[:, column] = means[np.minimum(table[:, column].astype(int), len(means) - 1)]
        return coded

    def fit_transform(self, table: np.ndarray, answers: np.ndarray) -> np.ndarray:
        coded, part = np.empty_like(table), np.arange(len(table)) % PARTS
        for k in range(PARTS):
            coded[part == k] = self.fit(table[part != k], answers[part != k]).transform(table[part == k])
        self.fit(table, answers)
        return coded
