"""For every metric: weights are replication, order is nothing, NumPy is torch, bad input is refused."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calmoe import MixtureOutput, Predictions
from calmoe.errors import InputError
from calmoe.metrics import (
    CalibrationError,
    accuracy,
    adaptive_ece,
    bootstrap,
    brier_decomposition,
    brier_score,
    by_group,
    classwise_ece,
    ece,
    nll,
    paired_difference,
    reliability,
    smooth_ece,
)
from calmoe.metrics.checks import check
from calmoe.metrics.groups import CATEGORIES, column_groups, group_masks

TAKES_PROBS = {
    "accuracy": accuracy,
    "adaptive_ece": adaptive_ece,
    "adaptive_ece of 1": functools.partial(adaptive_ece, of=1),
    "brier_score": brier_score,
    "calibration": lambda *rows: brier_decomposition(*rows).calibration,
    "classwise_ece": classwise_ece,
    "ece": ece,
    "ece of 1": functools.partial(ece, of=1),
    "max_gap": lambda *rows: reliability(*rows).max_gap,
    "smooth_ece": smooth_ece,
}
METRICS = TAKES_PROBS | {"nll": lambda probs, *rows: nll(_log(probs), *rows)}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


def _log(probs):
    return probs.log() if isinstance(probs, torch.Tensor) else np.log(probs)


@every_metric
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 60), classes=st.integers(2, 6))
def test_weights_are_replication_and_order_is_nothing(metric, seed, rows, classes):
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.ones(classes), rows).round(2) + 0.001  # rounded: there are ties
    probs /= probs.sum(1, keepdims=True)
    labels, times = generator.integers(classes, size=rows), generator.integers(0, 4, rows)
    times[0] = 1
    once = metric(probs, labels, times)
    assert once == pytest.approx(metric(probs.repeat(times, 0), labels.repeat(times)), abs=1e-12)
    order = generator.permutation(rows)
    assert once == pytest.approx(metric(probs[order], labels[order], times[order]), abs=1e-12)


@every_metric
def test_numpy_is_torch_and_float32_is_close(metric, sample):
    probs, labels = sample
    weights = np.random.default_rng(1).random(len(labels))
    value = metric(probs, labels, weights)
    assert metric(*(torch.as_tensor(array) for array in (probs, labels, weights))) == value
    assert metric(probs.astype(np.float32), labels.astype(np.int32), weights) == pytest.approx(
        value, abs=1e-5
    )


@every_metric
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_it_is(metric, dtype, sample):
    probs, labels = torch.as_tensor(sample[0] + 0.02) / 1.1, torch.as_tensor(sample[1])
    assert metric(probs.to(dtype), labels) == pytest.approx(metric(probs, labels), abs=0.05)


@every_metric
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(metric, dtype, sample):
    probs, labels = torch.as_tensor(sample[0] + 0.02).to(dtype) / 1.1, torch.as_tensor(sample[1])
    value = metric(probs, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert metric(probs, labels) == value
        assert bootstrap(metric, probs, labels, resamples=2).estimate == value


@every_metric
def test_small_and_lopsided_samples(metric):
    assert np.isfinite(metric(np.array([[0.25, 0.75]]), np.array([1])))
    assert np.isfinite(metric(np.array([[0.2, 0.3, 0.5]] * 4), np.zeros(4, int)))
    certain = metric(np.eye(3)[[0, 1, 1]].clip(1e-300, 1), np.array([0, 1, 1]))
    assert certain == pytest.approx(1.0 if metric is accuracy else 0.0, abs=1e-9)


def test_a_single_class_is_certain():
    for metric in (adaptive_ece, brier_score, classwise_ece, ece, smooth_ece):
        assert metric(np.ones((3, 1)), np.zeros(3, int)) == 0
    assert ece(np.ones((3, 1)), np.zeros(3, int), of=0) == 0


@every_metric
def test_the_callers_arrays_are_left_alone(metric, sample):
    probs, labels = sample[0].copy(), sample[1].copy()
    weights = np.ones(len(labels))
    metric(probs, labels, weights)
    assert (probs == sample[0]).all()
    assert (labels == sample[1]).all()
    assert (weights == 1).all()


EPS = 2.0**-23  # of float32


@pytest.mark.parametrize(
    ("row", "read"),
    [
        ([1 + EPS, 0.0], [1.0, 0.0]),
        ([1.0, -EPS], [1.0, 0.0]),
        ([0.5, 0.5, -EPS], [0.5, 0.5, 0.0]),
        ([1 + EPS, -EPS], [1.0, 0.0]),
    ],
)
def test_rounding_beyond_0_and_1_is_taken_off(row, read):
    probs, labels = torch.tensor([row]), torch.tensor([0])
    assert check(probs, labels).probs.tolist() == [read]
    assert probs.tolist() == [row]
    for metric in METRICS.values():
        if metric is not METRICS["nll"]:
            assert metric(probs, labels) == metric(torch.tensor([read]), labels)
    with pytest.raises(InputError, match="outside"):
        check(torch.tensor([[1.0, -4 * EPS]]), labels)


GOOD, LABELS = [[0.5, 0.5], [0.2, 0.8]], [0, 1]
BAD = {
    "one-dimensional": ([0.5, 0.5], LABELS, None, r"\[N, C\].*two columns"),
    "empty": (np.zeros((0, 2)), np.zeros(0, int), None, "empty"),
    "too few labels": (GOOD, [0], None, r"labels must be \[N\] = \[2\]"),
    "label too large": (GOOD, [0, 2], None, "0 .. 2.*2 classes"),
    "negative label": (GOOD, [0, -1], None, "count from 0"),
    "float labels": (GOOD, [0.0, 1.0], None, r"labels\.long\(\)"),
    "NaN": ([[0.5, np.nan], [0.2, 0.8]], LABELS, None, "NaN"),
    "logits": ([[3.0, -1.0], [0.2, 0.8]], LABELS, None, r"logits\.softmax"),
    "infinite": ([[np.inf, 0.0], [0.2, 0.8]], LABELS, None, "outside"),
    "negative, sum 1": ([[1.5, -0.5], [0.2, 0.8]], LABELS, None, r"outside \[0, 1\]"),
    "log-probabilities": (np.log(GOOD), LABELS, None, r"log_probs\.exp"),
    "sums": ([[0.5, 0.6], [0.2, 0.8]], LABELS, None, r"sum to 1 \.\. 1\.1"),
    "negative weight": (GOOD, LABELS, [1.0, -1.0], "weights"),
    "NaN weight": (GOOD, LABELS, [1.0, np.nan], "weights"),
    "infinite weight": (GOOD, LABELS, [1.0, np.inf], "weights"),
    "no weight": (GOOD, LABELS, [0.0, 0.0], "not all 0"),
    "too few weights": (GOOD, LABELS, [1.0], r"weights must be \[N\] = \[2\]"),
}


@pytest.mark.parametrize("metric", TAKES_PROBS.values(), ids=TAKES_PROBS.keys())
@pytest.mark.parametrize(("probs", "labels", "weights", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_in_one_line(metric, probs, labels, weights, message):
    with pytest.raises(InputError, match=message) as refusal:
        metric(np.array(probs), np.array(labels), None if weights is None else np.array(weights))
    assert "\n" not in str(refusal.value)


def test_nll_refuses_probabilities_and_logits(sample):
    probs, labels = sample
    with pytest.raises(InputError, match=r"probs\.log"):
        nll(probs, labels)
    with pytest.raises(InputError, match="log_softmax"):
        nll(np.log(probs) - 1, labels)
    with pytest.raises(InputError, match="NaN"):
        nll(np.full_like(probs, np.nan), labels)


def test_whole_outputs_are_refused_with_the_part_to_pass(sample):
    predictions = Predictions.from_probs(*sample)
    output, labels = predictions.output, predictions.labels
    trained = MixtureOutput(*(part.clone().requires_grad_() for part in output))
    for metric in (ece, nll, CalibrationError().update):
        for whole in (output, trained):
            with pytest.raises(InputError, match=r"got the whole MixtureOutput: pass output\.probs"):
                metric(whole, labels)
        with pytest.raises(InputError, match=r"got the whole Predictions: pass predictions\.output\.probs"):
            metric(predictions, labels)


@pytest.mark.parametrize(
    "probs", [[[0.5, 0.5], [1.0]], np.array([["a", "b"]]), np.array([[{}, None]]), None, {"a": 1}, "probs"]
)
def test_what_is_no_array_of_numbers_is_refused(probs):
    with pytest.raises(InputError, match="expected numbers in a rectangular array") as refusal:
        ece(probs, np.array([0, 1]))
    assert "\n" not in str(refusal.value)


def test_options_are_checked(sample):
    for of in (5, -1, "positive", True, 1.0):
        with pytest.raises(InputError, match=r'"top" or a class in 0\.\.4'):
            ece(*sample, of=of)
    with pytest.raises(InputError, match="bins"):
        ece(*sample, bins=0)
    with pytest.raises(InputError, match='"width" or "mass"'):
        reliability(*sample, equal="size")
    with pytest.raises(InputError, match='"percentile" or "basic"'):
        bootstrap(ece, *sample, method="bca")
    with pytest.raises(InputError, match="level"):
        bootstrap(ece, *sample, level=95)


def test_by_group(sample):
    probs, labels = sample
    third = np.arange(len(labels)) % 3
    names = np.array(["a", "b", "c"])[third]
    result = by_group(ece, probs, labels, names, bins=10)
    assert result.all == ece(probs, labels, bins=10)
    assert result.values == {g: ece(probs[names == g], labels[names == g], bins=10) for g in "abc"}
    assert result.counts == {"a": 67, "b": 67, "c": 66}
    assert result.worst == max(result.values.values()) == result.values[result.worst_group]
    assert by_group(accuracy, probs, labels, names).worst == min(
        by_group(accuracy, probs, labels, names).values.values()
    )
    assert by_group(ece, probs, labels, names, worst="min", bins=10).worst == min(result.values.values())
    tensors = by_group(ece, torch.as_tensor(probs), torch.as_tensor(labels), torch.as_tensor(third), bins=10)
    assert list(tensors.values.values()) == list(result.values.values())
    assert list(tensors.values) == ["0", "1", "2"]


def test_by_group_of_masks_knows_empty_and_weightless_groups(sample):
    probs, labels = sample
    weights = np.ones(len(labels))
    weights[:50] = 0
    masks = {"first": np.arange(200) < 50, "rest": np.arange(200) >= 50, "none": np.zeros(200, bool)}
    result = by_group(brier_score, probs, labels, masks, weights)
    assert np.isnan([result.values["first"], result.values["none"]]).all()
    assert result.counts == {"first": 50, "rest": 150, "none": 0}
    assert result.worst_group == "rest"
    assert result.all == pytest.approx(result.worst)
    nothing = by_group(ece, probs, labels, {"none": masks["none"]})
    assert nothing.worst_group is None
    assert np.isnan(nothing.worst)
    with pytest.raises(InputError, match="boolean mask"):
        by_group(ece, probs, labels, {"ids": np.arange(200)})
    with pytest.raises(InputError, match='"max" or "min"'):
        by_group(ece, probs, labels, masks, worst="least")


def test_columns_of_too_many_values_or_of_measurements_name_no_groups():
    rows = np.arange(4 * CATEGORIES)
    few, many = rows % CATEGORIES, rows % (CATEGORIES + 1)
    columns = {"few": few, "many": many, "few words": few.astype(str), "many words": many.astype(str)}
    columns |= {"odd": rows % 2 == 1, "share": few / CATEGORIES}
    assert list(column_groups(columns)) == ["few", "few words", "odd"]
    every_word = column_groups(columns, most_words=np.inf)
    assert list(every_word) == ["few", "few words", "many words", "odd"]
    for column, masks in every_word.items():
        for name, mask in masks.items():
            same = columns[column] if column == "odd" else columns[column].astype(str) == name
            assert (mask == same).all()
    assert {name: mask.sum() for name, mask in group_masks(columns).items()} == {
        **{f"{column} {i}": 4 for column in ("few", "few words") for i in range(CATEGORIES)},
        "odd": len(rows) // 2,
    }


def test_paired_difference():
    result = paired_difference([1.0, 2.0, 3.0, 4.0], torch.tensor([0.0, 2.0, 1.0, 3.0]))
    assert result.estimate == 1.0
    assert result.standard_error == pytest.approx(np.std([1, 0, 2, 1], ddof=1) / 2)
    assert result.high - result.estimate == pytest.approx(3.18244630 * result.standard_error)  # t(3) at 0.975
    assert result.samples.tolist() == [1, 0, 2, 1]
    single = paired_difference([1.0], [0.5])
    assert single.estimate == 0.5
    assert np.isnan([single.low, single.high, single.standard_error]).all()
    with pytest.raises(InputError, match="same order of seeds"):
        paired_difference([1.0, 2.0], [1.0])
