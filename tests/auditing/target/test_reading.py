"""Categories as numbers that a model can split."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from calmoe.auditing.configurations import Features
from calmoe.auditing.target.reading import PARTS, CategoryMeans, reading


def test_a_category_is_the_mean_of_its_rows_drawn_towards_that_of_all():
    answers = np.array([1.0] * 30 + [0.0] * 90)
    table = np.stack([np.arange(120), np.repeat([2, 0], [30, 90])], axis=1).astype(float)
    coded = CategoryMeans(1).fit(table, answers).transform(np.array([[7.0, 2], [8, 0], [9, 1], [6, 50]]))
    assert coded[:, 0].tolist() == [7, 8, 9, 6]
    assert coded[:, 1] == pytest.approx([0.75 * 30 / 40, -0.25 * 90 / 100, 0, 0])


def test_no_row_is_coded_by_its_own_answer():
    random = np.random.default_rng(0)
    table, answers = random.integers(0, 3, size=(60, 2)).astype(float), random.normal(size=60)
    before, other = CategoryMeans(2).fit_transform(table, answers), answers.copy()
    other[7] += 100
    after = CategoryMeans(2).fit_transform(table, other)
    part = np.arange(60) % PARTS == 7 % PARTS
    assert np.array_equal(before[part], after[part])
    assert not np.allclose(before[~part], after[~part])


def test_categories_that_say_nothing_teach_nothing():
    """Codes by the rows' own answers would explain them in part, and new rows not at all."""
    random = np.random.default_rng(0)
    features = Features(np.zeros((4000, 1), np.float32), random.integers(0, 400, size=(4000, 1)))
    answers = random.normal(size=4000)
    model = reading(LinearRegression(), features).fit(features.table(), answers)
    assert model.predict(features.table()).std() < 0.1
    assert not np.allclose(model.predict(features.table()), 0)
