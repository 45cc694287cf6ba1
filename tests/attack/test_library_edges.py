"""The library's edges: empty batches, half precision, kinds of labels, and arguments that are no numbers."""

import math

import numpy as np
import pytest
import torch

from calmoe import metrics
from calmoe.arrays import MOST_BINS
from calmoe.errors import InputError
from calmoe.mixture import MixtureHead, MixtureOutput, combine
from calmoe.objectives import (
    ERM,
    CVaR,
    EntropicRisk,
    RobustFiltered,
    RobustMoE,
    brier,
    cross_entropy,
    routing_relevant,
)
from calmoe.rectification import frequency_filter, rectify, soft_ece
from calmoe.reducers import (
    cvar,
    density_ratio_bound,
    entropic_risk,
    mean,
    share_of_negative_weights,
    solve_tilt,
    tilt_weights,
    tilted_mean,
)
from strategies import random_output

REDUCERS = {
    "mean": mean,
    "tilted": lambda losses: tilted_mean(losses, 2.0),
    "tilted at zero": lambda losses: tilted_mean(losses, 0.0),
    "tilted by a tensor": lambda losses: tilted_mean(losses, torch.tensor(2.0)),
    "tilted somewhere": lambda losses: tilted_mean(losses, 2.0, where=losses > 1),
    "entropic": lambda losses: entropic_risk(losses, 2.0),
    "cvar": lambda losses: cvar(losses, 2.0),
    "weights": lambda losses: tilt_weights(losses, 2.0),
    "density ratio": lambda losses: density_ratio_bound(tilt_weights(losses, 2.0)),
    "negative share": lambda losses: share_of_negative_weights(losses, 2.0),
    "solved": lambda losses: torch.tensor(solve_tilt(losses, 6.0)),
}
OBJECTIVES = [ERM(), RobustMoE(), RobustFiltered(), EntropicRisk(), CVaR(), RobustMoE(loss=brier)]
SCORES = [metrics.ece, metrics.adaptive_ece, metrics.classwise_ece, metrics.reliability]
NO_NUMBERS = [None, [2.0], "2", True, 2j, math.nan, math.inf, -1, 10**400, torch.ones(2), np.ones(2), b"2"]
HALVES = [torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.uint64]


def half_output(dtype, n=32):
    return MixtureOutput(*(part.to(dtype).requires_grad_() for part in random_output(0, n=n)))


def labels(n=32):
    return torch.randint(5, (n,), generator=torch.Generator().manual_seed(0))


# --- empty batches


@pytest.mark.parametrize("reduce", REDUCERS.values(), ids=REDUCERS)
def test_every_reducer_refuses_an_empty_batch_alike(reduce):
    with pytest.raises(InputError, match="empty batch"):
        reduce(torch.empty(0))


@pytest.mark.parametrize("objective", [*OBJECTIVES, soft_ece])
def test_every_objective_refuses_an_empty_batch_alike(objective):
    with pytest.raises(InputError, match="empty batch"):
        objective(random_output(0, n=0), labels(0))


def test_filtering_no_images_gives_none():
    assert frequency_filter(torch.empty(0, 3, 8, 8)).shape == (0, 3, 8, 8)


# --- half precision


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", REDUCERS)
def test_half_losses_reduce_as_the_same_numbers_in_float32(name, dtype):
    losses = (8 * torch.rand(100)).to(dtype)
    assert torch.equal(REDUCERS[name](losses), REDUCERS[name](losses.float()))


@pytest.mark.parametrize("dtype", HALVES)
def test_large_half_losses_do_not_overflow(dtype):
    losses = torch.full((1000,), 1024.0, dtype=dtype)
    for value in (mean(losses), tilted_mean(losses, 2.0), entropic_risk(losses, 2.0), cvar(losses, 2.0)):
        assert float(value) == pytest.approx(1024, rel=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("objective", [*OBJECTIVES, soft_ece])
def test_half_outputs_give_the_value_of_float32_and_gradients_in_their_own_type(objective, dtype):
    output = half_output(dtype)
    value = objective(output, labels())
    wide = MixtureOutput(*(part.detach().float().requires_grad_() for part in output))
    assert torch.equal(value, objective(wide, labels()))
    assert value.dtype == torch.float32
    (gradient,) = torch.autograd.grad(value, output.log_probs)
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()
    assert gradient.any()


@pytest.mark.parametrize("dtype", HALVES)
def test_an_impossible_label_costs_as_much_in_half_precision(dtype):
    output = combine(torch.zeros(1, 1, dtype=dtype), torch.tensor([[[0.0, -math.inf]]], dtype=dtype))
    assert float(cross_entropy(output, torch.tensor([1]))) == 1e6
    assert routing_relevant(output, torch.tensor([1])).tolist() == [False]


def test_gradients_in_half_precision_are_rectified_without_overflow():
    main, calibration = torch.full((4,), 300.0).half(), torch.full((4,), -300.0).half()
    (rectified,) = rectify([main], [calibration])
    assert rectified.dtype == torch.float16
    assert rectified.abs().max() < 1


# --- labels


@pytest.mark.parametrize("dtype", INTEGERS)
def test_labels_of_every_integer_type_mean_the_same(dtype):
    output, y = random_output(0), labels()
    for loss in (cross_entropy, brier, routing_relevant, soft_ece):
        assert torch.equal(loss(output, y.to(dtype)), loss(output, y))
    for score in (metrics.ece, metrics.accuracy, metrics.brier_score):
        assert score(output.probs, y.to(dtype)) == score(output.probs, y)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.float16, torch.complex64])
def test_labels_that_are_no_indices_are_refused(kind):
    for loss in (cross_entropy, brier, routing_relevant, soft_ece, RobustFiltered()):
        with pytest.raises(InputError, match="class indices"):
            loss(random_output(0), labels().to(kind))


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
def test_labels_beyond_the_classes_are_refused(wrong):
    y = labels()
    y[3] = wrong
    for loss in (cross_entropy, brier, routing_relevant, soft_ece):
        with pytest.raises(InputError, match="5 classes"):
            loss(random_output(0), y)


# --- arguments that are no numbers


@pytest.mark.parametrize("wrong", NO_NUMBERS, ids=repr)
def test_a_tilt_or_a_bound_that_is_no_number_is_refused(wrong):
    losses = torch.rand(5)
    for reducer in (tilted_mean, entropic_risk, tilt_weights, share_of_negative_weights):
        with pytest.raises(InputError, match="eta must be"):
            reducer(losses, wrong)
    for make in (RobustMoE, RobustFiltered, EntropicRisk):
        with pytest.raises(InputError, match="eta must be"):
            make(wrong)
    for given in (lambda: cvar(losses, wrong), lambda: CVaR(wrong)):
        with pytest.raises(InputError, match="gamma must be"):
            given()


@pytest.mark.parametrize("wrong", [None, "1", [1], math.nan, True, torch.ones(2)], ids=repr)
def test_other_settings_that_are_no_numbers_are_refused(wrong):
    for make in (
        lambda: RobustFiltered(regret=wrong),
        lambda: RobustFiltered(disagreement=wrong),
        lambda: solve_tilt(torch.rand(4), wrong),
        lambda: soft_ece(random_output(0), labels(), temperature=wrong),
        lambda: frequency_filter(torch.rand(1, 3, 8, 8), fraction=wrong),
        lambda: metrics.bootstrap(metrics.ece, [[1.0, 0.0]], [0], level=wrong),
    ):
        with pytest.raises(InputError, match="must be a"):
            make()


@pytest.mark.parametrize(
    "wrong", [None, "9", [9], 9.0, math.nan, True, 0, -3, MOST_BINS + 1, 10**30, 9j], ids=repr
)
def test_bins_that_are_no_sensible_count_are_refused(wrong):
    probs, y = random_output(0).probs, labels()
    for score in (*SCORES, metrics.brier_decomposition):
        with pytest.raises(InputError, match="bins must be"):
            score(probs, y, bins=wrong)
    for given in (
        lambda: metrics.CalibrationError(bins=wrong),
        lambda: metrics.bootstrap(metrics.ece, probs, y, resamples=2, bins=wrong),
        lambda: soft_ece(random_output(0), y, bins=wrong),
    ):
        with pytest.raises(InputError, match="bins must be"):
            given()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int16, torch.tensor, np.array])
def test_numbers_of_numpy_and_tensors_without_dimensions_are_numbers(kind):
    losses = torch.rand(9, requires_grad=True)
    assert torch.equal(tilted_mean(losses, kind(2)), tilted_mean(losses, 2.0))
    assert torch.equal(entropic_risk(losses, kind(2)), entropic_risk(losses, 2.0))
    assert torch.equal(cvar(losses, kind(2)), cvar(losses, 2.0))
    assert RobustMoE(kind(2))(random_output(0), labels()) == RobustMoE(2.0)(random_output(0), labels())


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.array, torch.tensor])
def test_bins_of_numpy_count(kind):
    probs, y = random_output(0).probs, labels()
    for score in (metrics.ece, metrics.adaptive_ece, metrics.classwise_ece):
        assert score(probs, y, bins=kind(7)) == score(probs, y, bins=7)


def test_bins_of_many_classes_are_counted_together():
    probs = torch.full((2, 10_000), 1e-4)
    with pytest.raises(InputError, match="fewer bins"):
        metrics.classwise_ece(probs, torch.zeros(2, dtype=torch.long), bins=MOST_BINS)


@pytest.mark.parametrize(
    "wrong", [None, [1.0], torch.ones(()), torch.ones(2, 2), 1j * torch.ones(3)], ids=repr
)
def test_losses_of_another_kind_are_refused(wrong):
    for name, reduce in REDUCERS.items():
        if name != "tilted somewhere":
            with pytest.raises(InputError, match="losses must be"):
                reduce(wrong)


@pytest.mark.parametrize("wrong", [torch.ones(3), torch.ones(2, dtype=torch.bool), [True] * 3], ids=repr)
def test_masks_of_another_kind_are_refused(wrong):
    for reducer in (tilted_mean, tilt_weights):
        with pytest.raises(InputError, match="where must be"):
            reducer(torch.rand(3), 2.0, where=wrong)


# --- beyond what a float holds


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("huge", [1e12, 1e39, 1e300, 1.7e308])
def test_a_huge_tilt_or_bound_gives_the_largest_loss(huge, dtype):
    losses = torch.tensor([0.5, 2.0, 3.0, 3.0, 0.0], dtype=dtype, requires_grad=True)
    for value in (
        tilted_mean(losses, huge),
        tilted_mean(losses, torch.tensor(huge, dtype=torch.float64)),
        tilted_mean(losses, huge, where=losses > 1),
        entropic_risk(losses, huge),
        cvar(losses, huge),
    ):
        assert float(value.detach()) == pytest.approx(3.0, abs=1e-6)
        (gradient,) = torch.autograd.grad(value, losses)
        assert gradient.isfinite().all()
        assert gradient.sum() == pytest.approx(1.0, abs=1e-3)
    assert share_of_negative_weights(losses, huge) == pytest.approx(0.6)


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-200])
def test_a_tiny_tilt_gives_the_mean(tiny):
    losses = torch.tensor([0.5, 2.0, 3.5], dtype=torch.float64)
    assert float(entropic_risk(losses, tiny)) == pytest.approx(2.0, abs=1e-12)
    assert float(tilted_mean(losses, tiny)) == pytest.approx(2.0, abs=1e-12)


# --- metrics


def test_probabilities_and_weights_with_an_imaginary_part_are_refused():
    probs, y = random_output(0).probs, labels()
    for arguments in ((probs.to(torch.complex128), y), (probs, y, torch.ones(32, dtype=torch.complex64))):
        with pytest.raises(InputError, match="real numbers"):
            metrics.ece(*arguments)


@pytest.mark.parametrize("wrong", [None, 3, "none"])
def test_arrays_that_are_none_are_refused(wrong):
    probs, y = random_output(0).probs, labels()
    for given in (
        lambda: metrics.ece(probs, wrong),
        lambda: metrics.by_group(metrics.ece, probs, wrong, y),
        lambda: metrics.CalibrationError().update(probs, wrong),
        lambda: metrics.CalibrationError().update(wrong, y),
    ):
        with pytest.raises(InputError):
            given()


def test_ids_may_be_of_any_kind_that_can_be_told_apart():
    probs, y = random_output(0).probs, labels()
    words = np.array(["north", "south"] * 16, dtype=object)
    halves = torch.arange(32) % 2
    for ids in (words, halves.bfloat16(), halves.to(torch.uint8)):
        found = metrics.by_group(metrics.ece, probs, y, ids)
        assert list(found.counts.values()) == [16, 16]
    with pytest.raises(InputError, match="groups must"):
        metrics.by_group(metrics.ece, probs, y, np.array([None, "south"] * 16, dtype=object))


# --- the compiled step


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective", [RobustMoE(torch.tensor(2.0)), RobustFiltered(), EntropicRisk(), CVaR(3.0), soft_ece]
)
def test_checks_break_no_compiled_graph(objective):
    head, x, y = MixtureHead(8, num_classes=5), torch.randn(32, 8), labels()
    torch.compiler.reset()
    compiled = torch.compile(
        lambda x, y: objective(head(x), y), backend="eager", fullgraph=True, dynamic=False
    )
    assert torch.equal(compiled(x, y), objective(head(x), y))
