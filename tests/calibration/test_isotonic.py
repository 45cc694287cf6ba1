"""Top-label isotonic regression: a rising curve, distributions, predictions that stay."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from calmoe.calibration import Temperature, TopLabelIsotonic
from calmoe.errors import InputError
from strategies import generator, random_output, seeds


def problem(seed, n=300, classes=4, scale=2.0):
    logs = random_output(seed, n=n, classes=classes, scale=scale).log_probs
    truth = (0.5 * logs).softmax(1)
    return logs, torch.multinomial(truth, 1, generator=generator(seed)).squeeze(1)


@given(seeds, st.integers(2, 6), st.floats(0.1, 10))
def test_predictions_stay_and_other_classes_keep_their_proportions(seed, classes, scale):
    logs, labels = problem(seed, classes=classes, scale=scale)
    fitted = TopLabelIsotonic().fit(logs, labels)
    fresh = random_output(seed + 1, n=200, classes=classes, scale=scale).log_probs
    after = fitted.transform(fresh)
    assert torch.isfinite(after).all()
    assert torch.allclose(after.exp().sum(1), torch.ones(200, dtype=torch.float64))
    assert (after.argmax(1) == fresh.argmax(1)).all()
    assert after.max() < 0
    tempered = fitted.temperature_.transform(fresh)
    top = fresh.argmax(1, keepdim=True)
    ratio = (after - tempered).scatter(1, top, torch.nan)
    assert np.nanmax(np.nanmax(ratio, axis=1) - np.nanmin(ratio, axis=1)) < 1e-9


@given(seeds)
def test_the_curve_rises_and_never_says_zero_or_one(seed):
    logs, labels = problem(seed, n=100)
    fitted = TopLabelIsotonic().fit(logs, labels)
    assert (np.diff(fitted.confidences_) > 0).all()
    assert (np.diff(fitted.probabilities_) >= 0).all()
    assert 0 < fitted.probabilities_[0] <= fitted.probabilities_[-1] < 1


def test_the_curve_is_scikit_learns_but_for_half_a_row_of_each_outcome():
    logs, labels = problem(1, n=3000)
    fitted = TopLabelIsotonic().fit(logs, labels)
    tempered = Temperature().fit(logs, labels).transform(logs)
    confidence, right = tempered.max(1).values.exp().numpy(), (tempered.argmax(1) == labels).double().numpy()
    theirs = IsotonicRegression().fit(confidence, right).predict(confidence)
    ours = np.interp(confidence, fitted.confidences_, fitted.probabilities_)
    _, block, rows = np.unique(theirs, return_inverse=True, return_counts=True)
    large = rows[block] >= 50
    assert large.mean() > 0.9
    assert np.abs(ours - theirs)[large].max() < 0.5 / 50
    assert (ours - theirs).mean() == pytest.approx(0, abs=0.005)


def test_order_of_rows_does_not_matter():
    logs, labels = problem(2)
    order = torch.randperm(len(labels), generator=generator(0))
    one, other = (TopLabelIsotonic().fit(logs[i], labels[i]) for i in (torch.arange(len(labels)), order))
    np.testing.assert_allclose(one.probabilities_, other.probabilities_, atol=1e-9)


@pytest.mark.parametrize("right", [True, False])
def test_one_outcome_stays_finite(right):
    logs = random_output(0, n=50).log_probs
    labels = logs.argmax(1) if right else logs.argmin(1)
    with pytest.warns(UserWarning, match="temperature"):
        after = TopLabelIsotonic().fit(logs, labels).transform(logs)
    assert torch.isfinite(after).all()
    assert (after.argmax(1) == logs.argmax(1)).all()


def test_certainties_are_taken_back():
    logs = torch.tensor([[0.0, -torch.inf, -torch.inf]] * 100, dtype=torch.float64)
    labels = torch.tensor([0] * 100)
    with pytest.warns(UserWarning, match="temperature"):
        after = TopLabelIsotonic().fit(logs, labels).transform(logs)
    assert after.exp()[0, 0] == pytest.approx(100.5 / 101)
    assert after.exp()[0, 1] == pytest.approx(0.25 / 101)


def test_mistakes_are_told():
    logs, _ = problem(0, n=20)
    with pytest.raises(InputError, match="not fitted"):
        TopLabelIsotonic().transform(logs)
