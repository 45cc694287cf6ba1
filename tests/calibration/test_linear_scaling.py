"""Vector and matrix scaling: distributions, special cases of each other, the optimum of others' solvers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from calmoe.calibration import CalibrationWarning, MatrixScaling, Temperature, VectorScaling
from calmoe.calibration.log_linear import FLOOR, Labelled, Weights, _Problem, labelled
from calmoe.errors import InputError
from calmoe.metrics import nll
from strategies import generator, random_output, seeds


def problem(seed=0, n=600, classes=4, scale=2.0):
    """Log-probabilities, and labels of the same with other slopes and intercepts."""
    source = generator(seed)
    logs = (scale * torch.randn(n, classes, generator=source, dtype=torch.float64)).log_softmax(1)
    truth = logs * (0.5 + torch.rand(classes, generator=source)) + torch.randn(classes, generator=source)
    return logs, torch.multinomial(truth.softmax(1), 1, generator=source).squeeze(1)


def plain_nll(scores, labels):
    return -log_softmax(scores, axis=1)[np.arange(len(labels)), labels].mean()


@given(seeds, st.integers(2, 6), st.floats(0.1, 10))
def test_one_temperature_is_a_vector_is_a_matrix(seed, classes, temperature):
    logs = random_output(seed, classes=classes).log_probs
    one = Temperature()
    one.temperature_, one.status_ = temperature, "optimum"
    vector = VectorScaling().take(Weights(np.full(classes, 1 / temperature), np.zeros(classes)))
    torch.testing.assert_close(vector.transform(logs), one.transform(logs), atol=1e-9, rtol=0)
    random = np.random.default_rng(seed)
    weights = Weights(random.normal(size=classes), random.normal(size=classes))
    matrix = MatrixScaling().take(Weights(np.diag(weights.matrix), weights.intercepts), 0.1)
    expected = VectorScaling().take(weights).transform(logs)
    torch.testing.assert_close(matrix.transform(logs), expected, atol=1e-9, rtol=0)


@given(seeds, st.integers(1, 6), st.sampled_from([torch.float16, torch.float32, torch.float64]))
def test_transform_gives_distributions(seed, classes, dtype):
    random = np.random.default_rng(seed)
    logs = random_output(seed, classes=classes, scale=8.0).log_probs
    logs[random.random(logs.shape) < 0.2] = -torch.inf
    logs[:, random.integers(classes)] = 0.0
    matrix = Weights(10 * random.normal(size=(classes, classes)), random.normal(size=classes))
    diagonal = Weights(10 * random.normal(size=classes), random.normal(size=classes))
    for fitted in (VectorScaling().take(diagonal), MatrixScaling().take(matrix, 0.0)):
        after = fitted.transform(logs.to(dtype))
        assert after.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert torch.isfinite(after).all()
        assert torch.allclose(after.double().exp().sum(1), torch.ones(len(logs), dtype=torch.float64))


@given(seeds)
def test_logits_and_log_probabilities_are_the_same(seed):
    logs, labels = problem(seed % 1000, n=60, classes=3)
    moved = logs + torch.randn(60, 1, generator=generator(seed))
    for make in (VectorScaling, lambda: MatrixScaling(0.01)):
        one, other = make().fit(logs, labels), make().fit(moved, labels)
        torch.testing.assert_close(other.transform(moved), one.transform(logs), atol=1e-4, rtol=0)


@given(seeds, st.sampled_from([None, 2, 4]))
def test_the_slope_is_that_of_the_value(seed, rank):
    """Against differences of the objective, from inside `minimize`."""
    logs, labels = problem(seed % 1000, n=40)
    rows = Labelled(logs.numpy(), labels.numpy(), 0.7)
    directions = None if rank is None else np.linalg.qr(np.random.default_rng(seed).normal(size=(4, rank)))[0]
    seen = {}

    def catch(loss, begin, **_):
        seen["loss"] = loss
        return type("Result", (), {"x": begin})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scipy.optimize.minimize", catch)
        _Problem(rows, directions).solve(0.3, None)
    at = np.random.default_rng(seed).normal(size=4 * (2 + (rank or 0)))
    slope = seen["loss"](at)[1]
    step = 1e-6 * np.eye(len(at))
    differences = [(seen["loss"](at + s)[0] - seen["loss"](at - s)[0]) / 2e-6 for s in step]
    np.testing.assert_allclose(slope, differences, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_vector_is_the_optimum_of_the_plain_loss(seed):
    """scipy, without slopes of ours, from another start."""
    logs, labels = problem(seed, n=4000)
    x, y = logs.numpy(), labels.numpy()
    found = minimize(lambda p: plain_nll(x * p[:4] + p[4:], y), np.zeros(8), method="BFGS")
    ours = VectorScaling().fit(logs, labels).transform(logs)
    assert nll(ours, labels) == pytest.approx(found.fun, abs=1 / 4000)  # the imagined row
    assert nll(ours, labels) >= found.fun - 1e-9
    expected = log_softmax(x * found.x[:4] + found.x[4:], axis=1)
    np.testing.assert_allclose(ours.exp().numpy(), np.exp(expected), atol=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_a_matrix_without_a_price_is_logistic_regression(seed):
    logs, labels = problem(seed, n=4000)
    theirs = LogisticRegression(C=1e6, tol=1e-8, max_iter=5000).fit(logs.numpy(), labels.numpy())
    ours = MatrixScaling(strength=0.0).fit(logs, labels).transform(logs)
    expected = plain_nll(theirs.decision_function(logs.numpy()), labels.numpy())
    assert nll(ours, labels) == pytest.approx(expected, abs=2e-4)
    np.testing.assert_allclose(ours.exp().numpy(), theirs.predict_proba(logs.numpy()), atol=0.03)


def test_a_high_price_leaves_the_diagonal():
    logs, labels = problem(n=2000)
    matrix = MatrixScaling(strength=1e6).fit(logs, labels).matrix_
    assert np.abs(matrix - np.diag(np.diag(matrix))).max() < 1e-3


def test_more_rows_bring_the_truth_back():
    """Labels drawn after a known vector: w and b up to what no probability shows."""
    source = generator(3)
    logs = (2 * torch.randn(100_000, 3, generator=source, dtype=torch.float64)).log_softmax(1)
    w, b = torch.tensor([0.5, 1.0, 1.5]), torch.tensor([0.3, 0.0, -0.3])
    labels = torch.multinomial((logs * w + b).softmax(1), 1, generator=source).squeeze(1)
    fitted = VectorScaling().fit(logs, labels)
    np.testing.assert_allclose(fitted.weights_, w, atol=0.03)
    np.testing.assert_allclose(fitted.intercepts_ - fitted.intercepts_.mean(), b - b.mean(), atol=0.05)


def test_a_hundred_classes_are_fitted_in_few_directions():
    source = generator(0)
    logs = torch.randn(3000, 100, generator=source, dtype=torch.float64).log_softmax(1)
    labels = torch.multinomial(logs.exp(), 1, generator=source).squeeze(1)
    fitted = MatrixScaling(0.03).fit(logs, labels)
    off = fitted.matrix_ - np.diag(np.diag(fitted.matrix_))
    assert np.linalg.matrix_rank(fitted.matrix_) == 100
    assert np.linalg.svd(off)[1][9] < 0.3 * np.linalg.svd(off)[1][0] + 0.05
    held_out = torch.randn(3000, 100, generator=source, dtype=torch.float64).log_softmax(1)
    assert float((fitted.transform(held_out) - held_out).abs().mean()) < 0.5
    with pytest.raises(InputError, match="at most 128 classes"):
        MatrixScaling().fit(torch.zeros(10, 129).log_softmax(1), torch.arange(10))


@pytest.mark.parametrize("make", [VectorScaling, MatrixScaling])
def test_separable_and_impossible_rows_have_a_finite_fit(make):
    logs = (5 * torch.eye(3, dtype=torch.float64)).repeat(20, 1).log_softmax(1)
    labels = torch.arange(3).repeat(20)
    after = make().fit(logs, labels).transform(logs)
    assert torch.isfinite(after).all()
    assert (after.argmax(1) == labels).all()
    logs[0, 0] = -torch.inf
    with pytest.warns(CalibrationWarning, match="1 rows give their label probability zero"):
        after = make().fit(logs, labels).transform(logs)
    assert torch.isfinite(after).all()


def test_the_rows_to_learn_from_are_possible_and_bounded():
    logs = torch.tensor([[0.0, -torch.inf], [-500.0, 0.0], [-0.7, -0.7]], dtype=torch.float64)
    with pytest.warns(CalibrationWarning):
        rows = labelled(logs, torch.tensor([1, 1, 0]))
    assert rows.logs.shape == (2, 2)
    assert rows.logs.min() == FLOOR


@pytest.mark.parametrize("make", [VectorScaling, MatrixScaling])
def test_mistakes_are_told(make):
    logs, labels = problem(n=50)
    with pytest.raises(InputError, match="not fitted"):
        make().transform(logs)
    fitted = make().fit(logs, labels)
    with pytest.raises(InputError, match="fitted on 4 classes, given 3"):
        fitted.transform(logs[:, :3])
    with pytest.raises(InputError, match="probabilities"):
        fitted.transform(logs.exp())
    with pytest.raises(InputError):
        make().fit(logs, labels[:-1])
    with pytest.raises(InputError, match="strength"):
        MatrixScaling(strength=-1.0)
