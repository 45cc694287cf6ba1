"""Each metric against its definition, written as plainly as possible, and against independent packages."""

import math

import numpy as np
import pytest
import relplot
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from calmoe.defaults import BINS
from calmoe.metrics import (
    accuracy,
    adaptive_ece,
    brier_decomposition,
    brier_score,
    classwise_ece,
    ece,
    nll,
    reliability,
    smooth_ece,
)


def binned_error(confidence, outcome, weights, bins):
    """sum_b share_b |confidence_b - accuracy_b| by the letter: (i/B, (i+1)/B], and 0 in the first bin."""
    total = 0.0
    for i in range(bins):
        inside = (confidence > i / bins) & (confidence <= (i + 1) / bins) | ((i == 0) & (confidence == 0))
        total += abs((weights * (confidence - outcome))[inside].sum())
    return total / weights.sum()


def on_edges(seed):
    """Binary predictions of which many are 0, 1 or an edge k/B, to the last bit."""
    generator = np.random.default_rng(seed)
    rows, bins = int(generator.integers(1, 40)), int(generator.integers(1, 21))
    edges = generator.integers(0, bins + 1, rows) / bins
    nudged = np.nextafter(edges, generator.choice([0.0, 1.0], rows))
    p = np.choose(generator.integers(0, 4, rows), [edges, nudged, generator.random(rows), edges.round()])
    return np.stack([1 - p, p], 1), generator.integers(0, 2, rows), generator.random(rows) + 0.1, bins


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_ece_is_its_definition_on_and_between_the_edges(dtype):
    for seed in range(500):
        probs, labels, weights, bins = on_edges(seed)
        probs = probs.astype(dtype)
        exact = probs.astype(np.float64)
        top, occurs = binned_error(exact.max(1), exact.argmax(1) == labels, weights, bins), labels == 1
        assert ece(probs, labels, weights, bins=bins) == pytest.approx(top, abs=1e-12)
        positive = binned_error(exact[:, 1], occurs, weights, bins)
        assert ece(probs, labels, weights, bins=bins, of=1) == pytest.approx(positive, abs=1e-12)
        both = (binned_error(exact[:, 0], ~occurs, weights, bins) + positive) / 2
        assert classwise_ece(probs, labels, weights, bins=bins) == pytest.approx(both, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_ece_agrees_with_torchmetrics_away_from_the_edges(draw, seed):
    probs, labels = (torch.as_tensor(array) for array in draw(seed))
    assert (probs.amax(1) * BINS % 1).min() > 1e-9  # theirs has float32 edges, and a bin of its own for 1.0
    theirs = multiclass_calibration_error(probs, labels, 5, n_bins=BINS, norm="l1")
    assert ece(probs, labels) == pytest.approx(theirs.item(), abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_smooth_ece_agrees_with_relplot(draw, seed):
    """Theirs stops after 10 halvings of [0, 1], so sigma and with it the value are right to about 1/1024;

    it adds 1e-4 to the density and works on 200 to 2,000 grid points: 2e-3 covers all three.
    """
    probs, labels = draw(seed, rows=1000)
    theirs = relplot.smECE(probs.max(1), (probs.argmax(1) == labels).astype(float))
    assert smooth_ece(probs, labels) == pytest.approx(theirs, abs=2e-3)
    theirs = relplot.smECE(probs[:, 2], (labels == 2).astype(float))
    assert smooth_ece(probs, labels, of=2) == pytest.approx(theirs, abs=2e-3)


def test_smooth_ece_of_one_prediction_is_its_gap():
    """All mass at f: the smoothed residual keeps its sign, so that smECE_sigma = |y - f| for every sigma."""
    probs = np.tile([[0.3, 0.7]], (10, 1))
    assert smooth_ece(probs, np.ones(10, int)) == pytest.approx(0.3, abs=1e-6)
    assert smooth_ece(probs, np.repeat([1, 0], [7, 3])) == pytest.approx(0.0, abs=1e-6)
    assert smooth_ece(np.array([[0.0, 1.0]]), np.array([0])) == pytest.approx(1.0, abs=1e-6)


def test_smooth_ece_needs_no_numpy_2(monkeypatch, sample):
    value = smooth_ece(*sample)
    monkeypatch.delattr(np, "trapezoid", raising=False)  # NumPy 1.26 has none
    assert smooth_ece(*sample) == value


def test_adaptive_ece_splits_mass_and_keeps_ties_together():
    p = np.array([0.55, 0.6, 0.7, 0.7, 0.8, 0.9])
    probs, labels = np.stack([1 - p, p], 1), np.array([1, 0, 1, 1, 0, 1])
    assert reliability(probs, labels, bins=3, equal="mass").count.tolist() == [2, 2, 2]
    gaps = [abs(0.55 + 0.6 - 1), abs(1.4 - 2), abs(1.7 - 1)]
    assert adaptive_ece(probs, labels, bins=3) == pytest.approx(sum(gaps) / 6)
    constant = np.tile([[0.2, 0.8]], (6, 1))
    assert adaptive_ece(constant, labels) == pytest.approx(abs(0.8 - 4 / 6))


def test_equal_weights_of_any_size_are_the_same_bins(draw):
    probs, labels = draw(3, rows=2 * BINS)
    for weight in (0.1, 1 / 3, 1.0, 7.0):
        table = reliability(probs, labels, np.full(2 * BINS, weight), equal="mass")
        assert table.count.tolist() == [2] * BINS


def test_proper_scores_are_their_definitions(sample):
    probs, labels = sample
    each = np.arange(len(labels))
    assert accuracy(probs, labels) == (probs.argmax(1) == labels).mean()
    assert nll(np.log(probs), labels) == pytest.approx(-np.log(probs[each, labels]).mean())
    assert brier_score(probs, labels) == pytest.approx(((probs - np.eye(5)[labels]) ** 2).sum(1).mean())


def test_nll_of_an_impossible_label_is_infinite_unless_it_has_no_weight():
    log_probs = torch.tensor([[1.0, 0.0], [0.5, 0.5]]).log()
    labels = torch.tensor([1, 0])
    assert nll(log_probs, labels) == math.inf
    assert nll(log_probs, labels, torch.tensor([0.0, 1.0])) == pytest.approx(math.log(2))


@pytest.mark.parametrize("bins", [1, 2, 15])
@pytest.mark.parametrize("weighted", [False, True])
def test_brier_terms_add_up(sample, bins, weighted):
    probs, labels = sample
    weights = np.random.default_rng(1).random(len(labels)) if weighted else None
    terms = brier_decomposition(probs, labels, weights, bins=bins)
    assert sum(terms) == pytest.approx(brier_score(probs, labels, weights), abs=1e-12)


def test_brier_terms_of_constant_bins():
    probs = np.repeat([[0.2, 0.8], [0.9, 0.1]], 10, axis=0)
    terms = brier_decomposition(probs, np.repeat([0, 1, 0, 1], [5, 5, 6, 4]))
    assert terms.within_bins == pytest.approx(0, abs=1e-12)
    assert terms.calibration == pytest.approx(0.3**2 + 0.3**2)
    assert terms.refinement == pytest.approx(0.25 + 0.24)


@pytest.mark.parametrize("equal", ["width", "mass"])
@pytest.mark.parametrize("of", ["top", 0])
def test_reliability_sums_to_the_metrics(sample, equal, of):
    probs, labels = sample
    weights = np.random.default_rng(1).random(len(labels))
    table = reliability(probs, labels, weights, of=of, equal=equal)
    error = {"width": ece, "mass": adaptive_ece}[equal]
    assert table.ece == pytest.approx(error(probs, labels, weights, of=of), abs=1e-12)
    assert table.count.sum() == len(labels)
    assert table.share.sum() == pytest.approx(1)
    confidence = probs.max(1) if of == "top" else probs[:, 0]
    assert np.histogram(-confidence, -table.edges[::-1])[0][::-1].tolist() == table.count.tolist()


def test_reliability_of_an_empty_bin_is_nan_and_its_interval_is_wilsons():
    probs = np.tile([[0.2, 0.8]], (10, 1))
    table = reliability(probs, np.repeat([1, 0], [9, 1]), bins=2)
    assert np.isnan([table.confidence[0], table.accuracy[0], table.standard_error[0]]).all()
    assert table.standard_error[1] == pytest.approx(math.sqrt(0.9 * 0.1 / 10))
    assert table.interval()[1] == pytest.approx([0.5958, 0.9821], abs=1e-4)  # Wilson 1927, 9 of 10
    assert table.max_gap == pytest.approx(0.1)
    halved = reliability(probs, np.repeat([1, 0], [9, 1]), np.repeat([1.0, 0.0], [9, 1]), bins=2)
    assert halved.effective[1] == pytest.approx(9)
