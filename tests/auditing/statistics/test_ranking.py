"""AUROC and average precision: scikit-learn's values, and intervals that hold."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from calmoe.auditing.statistics.ranking import auroc, average_precision
from sizes import at_size

MEASURES = {"auroc": (auroc, roc_auc_score), "precision": (average_precision, average_precision_score)}


def drawn(random, n, decimals=2):
    positive = (random.random(n) < 0.1).astype(float)
    return np.round(random.normal(size=n) + positive, decimals), positive


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("decimals", [0, 1, 6])
def test_the_value_is_scikit_learns_with_ties_too(name, decimals):
    ours, theirs = MEASURES[name]
    scores, positive = drawn(np.random.default_rng(0), 500, decimals)
    assert ours(scores, positive).value == pytest.approx(theirs(positive, scores), abs=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_the_interval_holds_the_truth(name):
    ours, random = MEASURES[name][0], np.random.default_rng(1)
    truth = ours(*drawn(random, 400_000)).value
    found = [ours(*drawn(random, 600)) for _ in range(at_size(100, 1000))]
    assert np.mean([e.low <= truth <= e.high for e in found]) >= 0.9
    spread = np.std([e.value for e in found])
    assert np.mean([e.standard_error for e in found]) == pytest.approx(spread, rel=0.25)


@pytest.mark.parametrize("name", MEASURES)
def test_a_perfect_ranking_is_not_certain(name):
    found = MEASURES[name][0](np.arange(40.0), (np.arange(40) >= 30).astype(float))
    assert found.value == found.high == 1
    assert 0.5 < found.low < 0.95


def test_one_kind_of_row_ranks_nothing():
    assert np.isnan(auroc(np.arange(3.0), np.ones(3)).value)
    assert np.isnan(average_precision(np.arange(3.0), np.zeros(3)).value)
