"""The unlabelled target: the ratio against the known one, predictions against exact sums, honest refusals."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from typer.testing import CliRunner

import calmoe
from calmoe import worlds
from calmoe.auditing import Configurations, density_ratio, predict_target
from calmoe.auditing.statistics.splits import seeds
from calmoe.auditing.target.assumption import plausibility
from calmoe.auditing.target.checks import check_target
from calmoe.auditing.target.cross_fit import CrossFitted, cross_fitted, predicted_gaps, predicted_mean
from calmoe.auditing.target.density import FOLDS, _auc
from calmoe.auditing.target.losses import losses_of
from calmoe.auditing.target.scores import _binned
from calmoe.auditing.target.shift import Shift
from calmoe.auditing.verdict import Elsewhere
from calmoe.calibration import ShiftedTemperature, Temperature
from calmoe.commands import app
from calmoe.defaults import BINS
from calmoe.errors import InputError
from calmoe.metrics import brier_score, ece, nll
from calmoe.mixture import MixtureOutput, combine
from calmoe.predictions import Predictions
from calmoe.worlds import WORLDS, cancellation, multiclass
from haste import briefly
from sizes import at_size, least, most, most_square
from strategies import divergence, generator, random_output

WORLD = worlds.cancelling(0)
ELSEWHERE = worlds.shifted(WORLD, 0, 0.3)
BY_CLASS = ["by class, one expert", "by class", "by class, 100 classes"]


@pytest.fixture(scope="module")
def found():
    with briefly():
        return predict_target(WORLD.sample(5000, seed=0), ELSEWHERE.sample(2000, seed=1))


@pytest.mark.parametrize("name", WORLDS)
def test_a_shifted_world_keeps_its_truth_and_has_the_radius(name):
    world = WORLDS[name](4)
    target = worlds.shifted(world, 4, 0.25)
    density = target.probability / world.probability
    assert divergence(density, world.probability) == pytest.approx(0.25, abs=1e-6)
    assert (target.truth == world.truth).all()
    assert target.ece() == pytest.approx(world.ece(weights=density))


def test_the_scores_of_a_world_are_those_of_its_rows():
    rows = ELSEWHERE.sample(400_000, seed=0)
    output = rows.output
    assert nll(output.log_probs, rows.labels) == pytest.approx(ELSEWHERE.nll, abs=0.003)
    assert brier_score(output.probs, rows.labels) == pytest.approx(ELSEWHERE.brier, abs=0.003)
    assert Configurations.of(rows).outcome.mean() == pytest.approx(ELSEWHERE.accuracy, abs=0.003)


def test_a_broken_world_is_right_less_often_everywhere():
    other = worlds.broken(WORLD, 0.1)
    assert WORLD.correct - other.correct == pytest.approx(0.1)
    assert (other.probability == WORLD.probability).all()


def test_the_ratio_is_the_known_one(found):
    source = WORLD.sample(5000, seed=0)
    true = (ELSEWHERE.probability / WORLD.probability)[source.groups["configuration"]]
    ratio = found.ratio
    assert np.corrcoef(ratio.weights, true)[0, 1] > 0.9
    assert ratio.weights.mean() == pytest.approx(1)
    assert ratio.covered == pytest.approx(1, abs=0.05)
    assert ratio.effective == pytest.approx(true.sum() ** 2 / (true**2).sum(), rel=0.2)
    assert ratio.clip == pytest.approx(5000**0.5)
    assert ratio.auc.low > 0.5


def test_the_same_world_twice_needs_no_weights():
    ratio = density_ratio(*(Configurations.of(WORLD.sample(2000, seed=seed)) for seed in (0, 1)))
    assert ratio.effective > 1900
    assert ratio.auc.low < 0.5 < ratio.auc.high
    assert ratio.clipped == ratio.beyond == 0


@pytest.mark.usefixtures(at_size("hasty", "brief"))
@pytest.mark.parametrize(
    ("routing", "dtype"),
    [
        ("constant", torch.float32),
        ("constant", torch.float16),
        ("hard", torch.float32),
    ],
)
def test_files_are_not_told_apart_by_their_precision(routing, dtype):
    """A routing in two precisions: a classifier would see which file a row is of."""

    def rows(seed, dtype):
        output = random_output(seed, n=400, experts=3)
        weights = torch.tensor([[0.51, 0.34, 0.15]]).double().expand(400, 3)
        if routing == "hard":
            weights = (0.9999999 * torch.eye(3).double() + 3e-8)[torch.arange(400) % 3]
        logs = weights.log().to(dtype).double()
        return Configurations.of(Predictions(output=combine(logs, output.expert_log_probs)))

    ratio = density_ratio(rows(1, dtype), rows(2, torch.float64))
    assert ratio.auc.low < 0.5 < ratio.auc.high
    assert ratio.effective > 300


def one_expert(seed, temperature=None):
    """A network of one expert; its file keeps what it said before the temperature, or only what it says."""
    logs = random_output(seed, n=400, experts=1).log_probs
    said = (logs / 1.35).log_softmax(1)
    before = logs if temperature == "kept apart" else said
    output = MixtureOutput(said, torch.zeros(400, 1), before[:, None])
    return Predictions(output=output, labels=torch.arange(400) % 5)


def test_one_expert_is_what_it_says_in_every_format(tmp_path):
    apart, same, other = one_expert(1, "kept apart"), one_expert(1), one_expert(2)
    ratio = density_ratio(Configurations.of(apart), Configurations.of(other))
    assert ratio.auc.low < 0.5 < ratio.auc.high
    same.save(tmp_path / "same.csv")
    with pytest.raises(InputError, match="rows are rows of the source"):
        check_target(apart, Predictions.load(tmp_path / "same.csv"))
    check_target(apart, other)


@pytest.mark.usefixtures(at_size("hasty", "brief"))
def test_no_row_is_weighted_by_a_model_that_saw_it():
    """A source row's own outcome of the draw cannot move its weight: move one row far away and back."""
    source, target = (Configurations.of(WORLD.sample(400, seed=seed)) for seed in (0, 1))
    ratio = density_ratio(source, target)
    assert set(ratio.fold) == set(range(FOLDS))
    moved = source.confidence.copy()
    moved[7] = 0.999
    other = density_ratio(replace(source, confidence=moved), target)
    ours = np.flatnonzero(ratio.fold == ratio.fold[7])
    ours = ours[ours != 7]
    before, after = (r.weights * r.covered for r in (ratio, other))
    assert before[ours] == pytest.approx(after[ours], rel=1e-9)  # the fold's model did not see row 7


def test_the_auc_is_that_of_all_pairs():
    random = np.random.default_rng(0)
    which, fold = np.repeat([0, 1], [80, 60]), np.concatenate([np.arange(80), np.arange(60)]) % FOLDS
    scores = random.integers(0, 9, size=140) + which * 1.0
    pairs = []
    for k in range(FOLDS):
        low, high = (scores[(fold == k) & (which == side)] for side in (0, 1))
        pairs.append(((high[:, None] > low) + 0.5 * (high[:, None] == low)).mean())
    assert _auc(scores, which, fold, 0.95).value == pytest.approx(np.mean(pairs))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.floats(-1, 1))
def test_a_wrong_model_is_corrected_where_the_ratio_is_right_and_the_other_way_round(seed, size):
    """Doubly robust, as an identity of finite populations: source rows, each once; target rows ∝ a."""
    random = np.random.default_rng(seed)
    copies = random.integers(1, 5, size=40)
    values, known = random.normal(size=40), random.normal(size=40)
    true = (copies @ (values + known)) / copies.sum()
    wrong = size * random.normal(size=40)
    there = np.repeat(np.arange(40), copies)
    learned = CrossFitted(source=wrong, by_fold=wrong[None, there])
    right_ratio = predicted_mean(values, known[there], learned, copies / copies.mean())
    assert right_ratio.value == pytest.approx(true)
    learned = CrossFitted(source=values, by_fold=values[None, there])
    assert predicted_mean(values, known[there], learned, random.random(40)).value == pytest.approx(true)


@pytest.mark.parametrize("of", ["top", 2])
@pytest.mark.parametrize("name", ["nll", "brier"])
def test_a_loss_follows_from_the_gap_where_the_mixture_is_right_about_the_other_classes(name, of):
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(4), size=50)
    rows = np.arange(50)
    event = probs.argmax(axis=1) if of == "top" else np.full(50, of)
    f = probs[rows, event]
    m = random.uniform(size=50)
    truth = probs * ((1 - m) / (1 - f))[:, None]
    truth[rows, event] = m
    every = -np.log(probs)
    if name == "brier":
        every = np.stack([((probs - np.eye(4)[c]) ** 2).sum(axis=1) for c in range(4)], axis=1)
    labels = random.integers(0, 4, size=50)
    losses, own, slope = losses_of(name, Predictions.from_probs(probs, labels), of)
    assert losses == pytest.approx(every[rows, labels])
    assert own == pytest.approx((probs * every).sum(axis=1))
    assert own + (m - f) * slope == pytest.approx((truth * every).sum(axis=1))


def test_gaps_without_a_shift_are_those_of_the_ece():
    seen = Configurations.of(WORLD.sample(3000, seed=0))
    index, nothing = seen.bins(15), np.zeros(3000)
    gaps, _ = predicted_gaps(nothing, index, seen.residual, index, np.ones(3000), 15)
    assert gaps == pytest.approx(np.bincount(index, seen.residual, minlength=15) / 3000)


def test_a_bin_that_the_source_lacks_is_not_certain():
    one, two = np.zeros(100, int), np.ones(50, int)
    _, covariance = predicted_gaps(np.zeros(50), two, np.zeros(100), one, np.ones(100), 2)
    assert covariance[1, 1] > 0.2


def test_predictions_hold_the_truth_where_ordinary_ones_do_not(found):
    predicted = found.predicted
    for name, true in (
        ("accuracy", ELSEWHERE.accuracy),
        ("ece", ELSEWHERE.ece()),
        ("nll", ELSEWHERE.nll),
        ("brier", ELSEWHERE.brier),
    ):
        estimate = getattr(predicted, name)
        assert estimate.low <= true <= estimate.high
    assert not found.source.accuracy.low < ELSEWHERE.accuracy < found.source.accuracy.high
    rows = ELSEWHERE.sample(2000, seed=1)
    assert found.actual.accuracy.value == Configurations.of(rows).outcome.mean()
    assert found.actual.nll.value == pytest.approx(nll(rows.output.log_probs, rows.labels))
    assert found.actual.brier.value == pytest.approx(brier_score(rows.output.probs, rows.labels))
    sums = (found.actual.share * np.abs(found.actual.right - found.actual.confidence))[found.actual.share > 0]
    assert sums.sum() == pytest.approx(ece(rows.output.probs, rows.labels))


@pytest.mark.usefixtures("hasty")
def test_target_labels_are_never_used_to_predict():
    source, target = WORLD.sample(1000, seed=0), ELSEWHERE.sample(500, seed=1)
    labelled, alone = (predict_target(source, rows) for rows in (target, replace(target, labels=None)))
    assert labelled.plausibility is not None
    assert alone.predicted.accuracy == labelled.predicted.accuracy
    assert alone.shifted == labelled.shifted
    assert alone.actual is None
    assert alone.plausibility is None


def test_the_diagram_is_of_the_target(found):
    predicted, actual = found.predicted, found.actual
    assert (predicted.share == actual.share).all()
    used = predicted.share > 0.02
    assert ((predicted.right_low <= actual.right_high) & (actual.right_low <= predicted.right_high))[
        used
    ].all()
    assert np.isnan(predicted.right[predicted.share == 0]).all()


def test_a_temperature_is_refitted_for_the_target():
    """Underconfident where experts disagree, overconfident where they agree: each target has its own T."""
    world = worlds.cancelling(1, delta=0.11, rule="disagreement")
    sure = world.gap > 0
    sharper = world.reweighted(np.where(sure, 1.9, 0.1))
    source, target = world.sample(6000, seed=0), sharper.sample(2000, seed=1)
    result = predict_target(source, replace(target, labels=None))
    best = Temperature().fit(target.output.log_probs, target.labels).temperature_
    assert result.shifted.temperature.high < result.plain.temperature.low
    assert result.shifted.temperature.low < best < result.shifted.temperature.high
    assert result.shifted.ece.value < result.predicted.ece.value
    fitted = ShiftedTemperature().fit(source.output.log_probs, source.labels, result.ratio.weights)
    assert fitted.temperature_ == pytest.approx(result.shifted.temperature.value, rel=1e-6)


def test_even_weights_are_the_plain_temperature_and_few_rows_are_refused(tmp_path):
    rows = WORLD.sample(500, seed=0)
    logs, labels = rows.output.log_probs, rows.labels
    even = ShiftedTemperature().fit(logs, labels, torch.full((500,), 3.0))
    assert even.temperature_ == pytest.approx(Temperature().fit(logs, labels).temperature_)
    assert even.effective_ == 500
    even.save(tmp_path / "t.json")
    loaded = ShiftedTemperature.load(tmp_path / "t.json")
    assert (loaded.temperature_, loaded.effective_) == (even.temperature_, 500)
    with pytest.raises(InputError, match="not a saved Temperature"):
        Temperature.load(tmp_path / "t.json")
    with pytest.raises(InputError, match="effective rows"):
        ShiftedTemperature().fit(logs, labels, torch.arange(500) < 50)
    with pytest.raises(InputError, match="weights of the source rows"):
        ShiftedTemperature().fit(logs, labels)


@pytest.mark.usefixtures("brief")
def test_a_broken_assumption_is_found_and_a_true_one_usually_not():
    source, target = WORLD.sample(4000, seed=0), replace(ELSEWHERE.sample(1500, seed=1), labels=None)
    kept = predict_target(source, target, ELSEWHERE.sample(300, seed=2)).plausibility
    lost = predict_target(source, target, worlds.broken(ELSEWHERE, 0.15).sample(300, seed=2)).plausibility
    assert kept.p_value > 0.01
    assert lost.p_value < 0.001
    assert lost.discrepancy.low < -0.15 < lost.discrepancy.high
    assert lost.rows == 300
    assert 0.05 < lost.detectable < 0.15
    with pytest.raises(InputError, match="at least 30"):
        predict_target(source, target, ELSEWHERE.sample(20, seed=2))


def apart() -> tuple[Predictions, Predictions]:
    """Two files without a configuration in common."""
    return (
        WORLD.reweighted((WORLD.confidence < 0.65).astype(float)).sample(2000, seed=0),
        WORLD.reweighted((WORLD.confidence > 0.75).astype(float)).sample(1000, seed=0),
    )


@pytest.mark.usefixtures(at_size("hasty", "brief"), "unrendered")
def test_files_that_do_not_overlap_predict_nothing(tmp_path):
    report = calmoe.audit(apart()[0], target=apart()[1])
    target = report.target
    assert target.ratio.auc.value > 0.99
    assert target.predicted is None
    assert target.shifted is None
    assert target.plausibility is None
    assert report.verdict.elsewhere == Elsewhere("unlike", None, None)
    assert "On the target: nothing can be predicted" in report.summary()
    assert "Nothing can be predicted" in report.save(tmp_path).read_text()


def test_too_few_effective_rows_predict_nothing():
    odd = worlds.calibrated(0)
    rare = int(np.argmin(odd.probability))
    density = np.full(len(odd.probability), 0.02)
    density[rare] = 1 / odd.probability[rare]
    found = predict_target(odd.sample(4000, seed=0), odd.reweighted(density).sample(1000, seed=0))
    assert found.predicted is None
    assert found.verdict is not None


@pytest.mark.usefixtures("brief")
def test_just_enough_effective_rows_predict():
    """All folds have 100 to 133 effective rows, three of them fewer than 100: once an error after all."""
    world = worlds.cancelling(3)
    target = worlds.shifted(world, 3, 0.6).sample(400, seed=102)
    found = predict_target(world.sample(260, seed=3), target)
    assert 100 <= found.ratio.effective < 130
    assert found.shifted.ece.low <= found.shifted.ece.value


@pytest.mark.usefixtures("brief")
def test_one_expert_and_many_classes_are_predicted():
    random = np.random.default_rng(0)
    logits = random.normal(size=(3000, 5)) * random.uniform(0.5, 4, size=(3000, 1))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([random.choice(5, p=row) for row in probs])
    keep = random.random(3000) < np.where(probs.max(axis=1) > 0.6, 0.2, 0.9)
    source, target = (Predictions.from_probs(probs[part], labels[part]) for part in (~keep, keep))
    found = predict_target(source, target)
    for name in ("accuracy", "ece", "nll", "brier"):
        predicted, actual = getattr(found.predicted, name), getattr(found.actual, name)
        assert predicted.low <= actual.high
        assert actual.low <= predicted.high
    assert found.source.accuracy.low > found.actual.accuracy.high  # a large shift, foretold


def test_a_class_may_be_predicted_instead():
    unlabelled = replace(ELSEWHERE.sample(1000, seed=0), labels=None)
    found = predict_target(WORLD.sample(3000, seed=0), unlabelled, of=1)
    true = float(ELSEWHERE.probability @ ELSEWHERE.truth)
    assert found.predicted.accuracy.low < true < found.predicted.accuracy.high


@pytest.mark.usefixtures("hasty", "unrendered")
def test_labels_of_probability_zero_leave_the_nll_out(tmp_path):
    random = np.random.default_rng(0)
    probs = np.where(random.random((600, 1)) < 0.5, [[1.0, 0.0]], [[0.3, 0.7]])
    source = Predictions.from_probs(probs[:400], random.integers(0, 2, size=400))
    report = calmoe.audit(source, target=Predictions.from_probs(probs[400:]))
    assert np.isnan(report.target.predicted.nll.value)
    assert not np.isnan(report.target.predicted.brier.value)
    assert "nan" not in report.summary()
    assert report.save(tmp_path).exists()


@pytest.mark.usefixtures("hasty", "unrendered")
def test_the_report_tells_it_and_is_written(tmp_path):
    source, target = WORLD.sample(1000, seed=0), ELSEWHERE.sample(800, seed=1)
    report = calmoe.audit(source, target=target)
    held = json.loads(json.dumps(report.to_dict(), allow_nan=False))["target"]
    assert held["predicted"]["accuracy"]["value"] == report.target.predicted.accuracy.value
    assert "weights" not in held["ratio"]
    assert held["plausibility"]["rows"] == 800
    there = report.verdict.elsewhere
    rejected = report.target.plausibility.p_value < 0.05
    assert there.state == ("contradicted" if rejected else "predicted")
    scores = report.target.actual if rejected else report.target.predicted
    assert (there.accuracy, there.ece) == (scores.accuracy, scores.ece)
    assert "On the target: " in report.summary()
    assert "target" in report.figures()
    assert report.target.source.ece == report.aggregate.ece  # one number, told once
    assert report.target.source.accuracy == report.aggregate.accuracy
    page = report.save(tmp_path)
    assert "The target without its labels" in page.read_text()
    again = calmoe.audit(source, target=target)
    assert again.to_dict() == report.to_dict()


def test_few_labelled_rows_leave_the_target_out():
    report = calmoe.audit(WORLD.sample(150, seed=0), target=ELSEWHERE.sample(200, seed=0))
    assert report.target is None
    assert "150 labelled rows" in report.left_out["target"]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("other classes", "2 classes and the target 3"),
        ("other experts", "3 experts and the target 1"),
        ("few", "the target has 60 rows"),
        ("nan", "NaN"),
        ("missing", "elsewhere.csv"),
    ],
)
def test_targets_that_cannot_be_are_refused_in_one_line(tmp_path, rows, why):
    WORLD.sample(400, seed=0).save(tmp_path / "source.safetensors")
    path = tmp_path / "elsewhere.csv"
    if rows == "other classes":
        path.write_text("prob_0,prob_1,prob_2\n" + "0.2,0.3,0.5\n" * 200)
    elif rows == "other experts":
        path.write_text("prob_0,prob_1\n" + "0.2,0.8\n" * 200)
    elif rows == "nan":
        path.write_text("prob_0,prob_1\n0.2,0.8\nnan,0.8\n")
    elif rows == "few":
        path = tmp_path / "elsewhere.safetensors"
        ELSEWHERE.sample(60, seed=0).save(path)
    out = tmp_path / "out"
    result = CliRunner().invoke(
        app, ["audit", str(tmp_path / "source.safetensors"), "--target", str(path), "--out", str(out)]
    )
    assert result.exit_code == 2
    assert why in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert not out.exists()


@pytest.mark.usefixtures("hasty")
def test_the_command_predicts_for_a_target(tmp_path):
    WORLD.sample(600, seed=1).save(tmp_path / "source.safetensors")
    replace(ELSEWHERE.sample(300, seed=0), labels=None).save(tmp_path / "target.safetensors")
    ELSEWHERE.sample(60, seed=1).save(tmp_path / "some.safetensors")
    files = [str(tmp_path / f"{name}.safetensors") for name in ("source", "target", "some")]
    result = CliRunner().invoke(app, ["audit", files[0], "--target", files[1], "--labelled-target", files[2]])
    assert result.exit_code == 0, result.output
    assert "On the target: " in result.output
    assert len(result.output.strip().splitlines()) <= 12
    alone = CliRunner().invoke(app, ["audit", files[0], "--labelled-target", files[2]])
    assert alone.exit_code == 2


@pytest.mark.usefixtures("hasty", "unrendered")
def test_predictions_of_another_model_are_noted(tmp_path):
    samples = {
        "source": replace(WORLD.sample(400, seed=0), metadata={"method": "vanilla", "seed": 42}),
        "other": replace(ELSEWHERE.sample(200, seed=0), metadata={"method": "robust", "seed": 42}),
        "same": replace(ELSEWHERE.sample(200, seed=1), metadata={"method": "vanilla", "split": "test"}),
    }
    for name, rows in samples.items():
        replace(rows, labels=rows.labels if name == "source" else None).save(tmp_path / f"{name}.safetensors")
    source, other, same = (str(tmp_path / f"{name}.safetensors") for name in samples)
    result = CliRunner().invoke(app, ["audit", source, "--target", other, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    note = "another model's predictions: method 'robust', and 'vanilla' in the source"
    assert note in " ".join(result.output.split())
    origin = json.loads((tmp_path / "out/audit.json").read_text())["origin"]
    assert note in origin["take care with the target"]
    result = CliRunner().invoke(app, ["audit", source, "--target", same])
    assert "another model" not in result.output


@pytest.mark.parametrize(
    ("target", "labelled", "why"),
    [
        (ELSEWHERE.sample(300, seed=0), ELSEWHERE.sample(20, seed=1), "20 labelled target rows"),
        (
            ELSEWHERE.sample(300, seed=0),
            replace(ELSEWHERE.sample(60, seed=1), labels=None),
            "the labelled target carries no labels",
        ),
    ],
)
def test_what_cannot_be_tested_is_refused_before_the_work(target, labelled, why):
    begun = []
    with pytest.raises(InputError, match=why):
        calmoe.audit(
            WORLD.sample(300, seed=0),
            target=target,
            labelled_target=labelled,
            progress=lambda part, _: begun.append(part),
        )
    assert begun == []


def test_rows_of_the_source_are_no_target():
    """Their labels taught what is said of them, and a true assumption is rejected."""
    output = random_output(0, n=600, classes=5, experts=3)
    whole = Predictions(output=output, labels=torch.arange(600) % 5)
    with pytest.raises(InputError, match="100% of the target's rows are rows of the source"):
        calmoe.audit(whole, target=whole.take(np.arange(0, 600, 3)))
    few = WORLD.sample(400, seed=0)
    with pytest.raises(InputError, match="rows of the source"):
        check_target(few, few)
    rare = [torch.rand(500, generator=generator(seed), dtype=torch.float64) * 0.0045 for seed in (0, 1)]
    for place, one in enumerate(rare):
        one[place] = 0.3  # other rows of a rare event, most of which are 0 when rounded
    files = [torch.stack([1 - p, p], dim=1).round(decimals=2) for p in rare]
    check_target(*(Predictions.from_probs(probs, labels=torch.zeros(500).long()) for probs in files))
    sure = Predictions.from_probs(output.probs, labels=whole.labels)
    for decimals in (2, 3, 4):
        rounded = output.probs.round(decimals=decimals)
        with pytest.raises(InputError, match="rows of the source"):
            check_target(sure, Predictions.from_probs(rounded / rounded.sum(dim=1, keepdim=True)))
    check_target(few, WORLD.sample(400, seed=1))  # the same few configurations, other rows


@pytest.mark.parametrize("known", ["ratio", "gap", "both"])
@pytest.mark.parametrize("name", ["cancelling", "miscalibrated"])
def test_intervals_cover_and_the_test_keeps_its_level_for_who_knows(name, known):
    """The true ratio, the true m − f, or both, with nothing learned: what is left is the errors' own law.

    Each bound is the law's quantile at `sizes.ALARM` for as many worlds. Worlds and source samples have the
    seeds 0, 1, … and target samples those that follow, whatever comes of it.
    """
    times, covered, errors, p_values = at_size(40, 500), 0, [], []
    for seed in range(times):
        world = WORLDS[name](seed)
        target = worlds.shifted(world, seed, 0.3)
        samples = world.sample(2000, seed=seed), target.sample(1000, seed=times + seed)
        here, there = map(Configurations.of, samples)
        drawn, drawn_there = (sample.groups["configuration"] for sample in samples)
        weights = (target.probability / world.probability)[drawn] if known != "gap" else np.ones(2000)
        gap = world.gap if known != "ratio" else np.zeros(len(world.gap))
        learned = CrossFitted(source=gap[drawn], by_fold=np.tile(gap[drawn_there], (FOLDS, 1)))
        accuracy = predicted_mean(here.residual, there.confidence, learned, weights, noise=here.noise)
        errors.append((accuracy.value - target.accuracy) / accuracy.standard_error)
        ratio = SimpleNamespace(weights=weights)
        shift = Shift(
            source=samples[0], target=samples[1], here=here, there=there, ratio=ratio, learned=learned,
            of="top", bins=BINS, level=0.95,
        )  # fmt: skip
        predicted = _binned(shift)["ece"]
        covered += predicted.low <= target.ece() <= predicted.high
        p_values.append(plausibility(there, learned.by_fold, here, learned.source, ratio).p_value)
    assert np.mean(np.square(errors)) <= most_square(times)
    assert covered >= least(times)
    assert (np.array(p_values) < 0.05).sum() <= most(times)
    assert np.mean(np.maximum(-ndtri(p_values), 0) ** 2) <= most_square(times)


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("name", at_size(["cancelling"], ["cancelling", "miscalibrated"]))
def test_intervals_cover_and_the_test_keeps_its_level_over_random_worlds(name):
    """Learning and all."""
    judge_random_worlds(WORLDS[name], worlds.shifted, at_size(1, 100))


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("name", at_size(BY_CLASS[:2], BY_CLASS))
def test_intervals_cover_where_the_predicted_class_tells_how_often_it_is_right(name):
    """Learning and all: at equal confidence some classes are right less often, and the target has more of
    them. Confidence alone would miss, with one expert as with several."""
    judge_random_worlds(cancellation.WORLDS[name], multiclass.shifted, at_size(3, 60))


def judge_random_worlds(make, shift, times):
    covered, rejected, errors = np.zeros(2), 0, []
    for seed in range(times):
        world = make(seed)
        target = shift(world, seed, 0.3)
        found = predict_target(
            world.sample(3000, seed=6_000_000 + seed),
            replace(target.sample(1500, seed=7_000_000 + seed), labels=None),
            target.sample(200, seed=8_000_000 + seed),
        )
        true = target.accuracy, target.ece()
        told = found.predicted.accuracy, found.predicted.ece
        covered += [
            estimate.low <= value <= estimate.high for estimate, value in zip(told, true, strict=True)
        ]
        errors.append((told[0].value - true[0]) / told[0].standard_error)
        rejected += found.plausibility.p_value < 0.05
    assert (covered >= least(times)).all()
    assert np.mean(np.square(errors)) <= most_square(times)
    assert rejected <= most(times)


@pytest.mark.usefixtures("hasty")
def test_the_tests_p_value_is_the_middle_one_of_three_splits(monkeypatch):
    monkeypatch.setattr("calmoe.auditing.target.assumption.FEWER", 3)
    world = worlds.cancelling(0)
    source, target = world.sample(400, seed=0), worlds.shifted(world, 0, 0.3).sample(300, seed=1)
    here, there = Configurations.of(source), Configurations.of(target)
    alone = []
    for seed in seeds(5, 3):
        ratio = density_ratio(here, there, seed=seed)
        (learned,) = cross_fitted(here.features(), [there.features()], here.residual, ratio.fold, seed)
        alone.append(plausibility(there, learned.by_fold, here, learned.source, ratio).p_value)
    found = predict_target(source, target, seed=5).plausibility
    assert len({*alone}) == found.splits == 3
    assert found.p_value == pytest.approx(min(1.0, 1.5 * np.median(alone)))
