"""The choice: who is compared on which rows, who may be chosen, and that choosing is judged on other rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from calmoe import worlds
from calmoe.auditing.repairs import choosing
from calmoe.auditing.repairs.answers import Answers, answer, raises_ece
from calmoe.auditing.repairs.candidates import NAMES, Variant, candidates, fit
from calmoe.auditing.repairs.choosing import FOLDS, Rows, Rule, choose, judge, learned_rows
from calmoe.auditing.repairs.measures import Candidate, Compared
from calmoe.auditing.repairs.repair import recommend
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.defaults import BINS
from calmoe.metrics import ece, nll
from calmoe.predictions import Predictions
from calmoe.worlds import multiclass


def rows_of(predictions, of="top"):
    return Rows(predictions.output, predictions.labels, of, BINS)


def answers(losses, confidence=0.7, outcomes=None):
    losses = np.asarray(losses, dtype=float)
    outcomes = (np.arange(len(losses)) % 10 < 7).astype(float) if outcomes is None else outcomes
    return Answers(losses, np.broadcast_to(confidence, losses.shape).copy(), outcomes, outcomes)


@pytest.fixture
def noise():
    return np.random.default_rng(0).normal(size=400)


def test_answers_are_those_of_the_metrics():
    sample = multiclass.miscalibrated(0).sample(700, seed=0)
    for variant, fitted in fit(candidates(5, 3).variants, sample.output, sample.labels).items():
        seen = answer(fitted, sample.output, sample.labels)
        probs = fitted.transform(sample).output.probs
        assert seen.loss.mean() == pytest.approx(nll(probs.log(), sample.labels), rel=1e-6), variant
        assert seen.right.mean() == pytest.approx(float((probs.argmax(1) == sample.labels).double().mean()))
        gaps = np.bincount(seen.bins(BINS), seen.outcome - seen.confidence)
        assert np.abs(gaps).sum() / 700 == pytest.approx(ece(probs, sample.labels), abs=1e-9)
        one = answer(fitted, sample.output, sample.labels, of=2)
        np.testing.assert_allclose(one.confidence, probs[:, 2].double())
        np.testing.assert_array_equal(one.outcome, (sample.labels == 2).double())


def test_a_temperature_within_one_standard_error_of_the_best_is_chosen(noise):
    base = 1 + 0.1 * noise
    other = np.random.default_rng(1).normal(size=400)
    tried = {
        Variant("nothing"): answers(base + 0.1),
        Variant("temperature"): answers(base - 0.0005 + 0.02 * other),
        Variant("vector"): answers(base - 0.001),
    }
    assert choose(tried, 15).name == "temperature"
    tried[Variant("temperature")] = answers(base - 0.0005 + 0.0001 * other)
    assert choose(tried, 15).name == "vector"
    tried[Variant("nothing")] = answers(base - 0.0009 + 0.02 * other)
    assert choose(tried, 15).name == "nothing"


def test_a_noisy_candidate_has_no_advantage(noise):
    base = 1 + 0.1 * noise
    other = np.random.default_rng(1).normal(size=400)
    tried = {
        Variant("nothing"): answers(base),
        Variant("temperature"): answers(base - 0.02),
        Variant("isotonic"): answers(base - 0.019 + 0.3 * (other - other.mean())),
        Variant("vector"): answers(base - 0.021),
    }
    assert choose(tried, 15).name == "vector"


def test_the_best_setting_of_each_candidate_is_kept(noise):
    base = 1 + 0.1 * noise
    tried = {
        Variant("nothing"): answers(base),
        Variant("matrix", 0.03): answers(base - 0.1),
        Variant("matrix", 0.003): answers(base - 0.2),
    }
    choice = choose(tried, 15)
    assert choice.best["matrix"] == Variant("matrix", 0.003)
    assert choice.name == "matrix"


def test_what_raises_the_ece_is_never_chosen(noise):
    base = 1 + 0.1 * noise
    tried = {
        Variant("nothing"): answers(base, confidence=0.7),
        Variant("temperature"): answers(base - 0.1, confidence=0.95),
    }
    assert raises_ece(*tried.values(), 15)
    assert choose(tried, 15).name == "nothing"
    assert not raises_ece(*reversed(tried.values()), 15)


def measured(**changes):
    """Candidates with these changes of NLL (against nothing, against one temperature) and ECEs."""

    def about(value, error=0.001):
        return Estimate(value, value - 2 * error, value + 2 * error, error)

    def candidate(name, gain, beyond, ece):
        unused = Compared(value=about(0.9), against_nothing=about(0), against_temperature=about(0))
        nll = Compared(
            value=about(0.5 + gain), against_nothing=about(gain), against_temperature=about(beyond)
        )
        return Candidate(name=name, nll=nll, ece=replace(unused, value=about(ece, 0.01)), accuracy=unused)

    return {name: candidate(name, *change) for name, change in changes.items()}


NOTHING_DONE = {"nothing": (0.0, 0.02, 0.03), "temperature": (-0.02, 0.0, 0.01)}


@pytest.mark.parametrize(
    ("chosen", "changes", "recommended"),
    [
        ("temperature", {}, "temperature"),
        ("nothing", {}, None),
        ("temperature", {"temperature": (-0.0015, 0.0, 0.03)}, "temperature"),  # 1.5 standard errors
        ("temperature", {"temperature": (-0.0005, 0.0, 0.03)}, None),
        ("vector", {"vector": (-0.03, -0.01, 0.01), "chosen": (-0.03, -0.01, 0.01)}, "vector"),
        # not surely better than one temperature: that
        ("vector", {"vector": (-0.021, -0.001, 0.01), "chosen": (-0.021, -0.001, 0.01)}, "temperature"),
        # the ECE of the choice, or of choosing, rises by more than 0.001: by chance or not
        ("vector", {"vector": (-0.03, -0.01, 0.0315), "chosen": (-0.03, -0.01, 0.01)}, "temperature"),
        ("vector", {"vector": (-0.03, -0.01, 0.01), "chosen": (-0.03, -0.01, 0.0315)}, "temperature"),
        ("vector", {"vector": (-0.03, -0.01, 0.0305), "chosen": (-0.03, -0.01, 0.0305)}, "vector"),
        # then one that surely beats a temperature stands in, helpful as that may be or not
        (
            "vector",
            {
                "temperature": (-0.0005, 0.0, 0.03),
                "isotonic": (-0.03, -0.0295, 0.01),
                "vector": (-0.04, -0.0395, 0.01),
                "chosen": (-0.04, -0.0395, 0.0315),
            },
            "isotonic",
        ),
        # so does a temperature's: what helps as much stands in, simplest first, or nothing
        ("temperature", {"temperature": (-0.02, 0.0, 0.04)}, None),
        (
            "temperature",
            {"temperature": (-0.02, 0, 0.04), "isotonic": (-0.019, 0.001, 0.01), "vector": (-0.02, 0, 0.01)},
            "isotonic",
        ),
        (
            "temperature",
            {"temperature": (-0.02, 0, 0.04), "isotonic": (-0.01, 0.01, 0.01), "vector": (-0.02, 0, 0.01)},
            "vector",
        ),
    ],
)
def test_what_is_recommended(chosen, changes, recommended):
    candidates = measured(**{**NOTHING_DONE, "chosen": (-0.02, 0.0, 0.01)} | changes)
    assert recommend(chosen, candidates, Rule()) == recommended


def test_choosing_is_paid_for_by_the_rule(noise):
    base = 1 + 0.1 * noise
    other = np.random.default_rng(1).normal(size=400)
    tried = {
        Variant("nothing"): answers(base),
        Variant("temperature"): answers(base - 0.1 + 0.02 * (other - other.mean())),
        Variant("vector"): answers(base - 0.1015),  # 1.5 standard errors ahead
    }
    names = [choose(tried, 15, Rule(errors=errors)).name for errors in (0.0, 1.0, 2.0)]
    assert names == ["vector", "vector", "temperature"]


def test_rows_with_an_impossible_label_have_no_say(noise):
    base = 1 + 0.1 * noise
    base[:5] = np.inf
    better = base - 0.1
    better[:5] = 50.0
    tried = {Variant("nothing"): answers(base), Variant("vector"): answers(better)}
    assert choose(tried, 15).name == "vector"


def test_labels_of_a_fold_have_no_say_in_its_choice(monkeypatch):
    """Other labels in a fold change neither what is chosen for it nor what is fitted for it."""
    sample = multiclass.miscalibrated(0).sample(800, seed=0)
    tried = candidates(5, 3)
    fold = np.arange(800) % FOLDS
    monkeypatch.setattr(choosing, "_folds", lambda labels, seed: fold)
    trial, _ = choosing._nested(rows_of(sample), tried, 0, lambda share: None)
    labels = sample.labels.clone()
    here = torch.as_tensor(fold == 2)
    labels[here] = (labels[here] + 1) % 5
    changed = Predictions(output=sample.output, labels=labels)
    again, _ = choosing._nested(rows_of(changed), tried, 0, lambda share: None)
    assert again.picked[2] == trial.picked[2]
    for name in NAMES:
        np.testing.assert_array_equal(
            trial.by_name[name].confidence[here], again.by_name[name].confidence[here]
        )
        assert not np.array_equal(trial.by_name[name].outcome[here], again.by_name[name].outcome[here])
    assert not np.array_equal(trial.by_name["matrix"].confidence, again.by_name["matrix"].confidence)


def test_every_row_is_answered_once_by_a_fit_on_other_folds():
    sample = multiclass.miscalibrated(0).sample(4000, seed=0)
    outcome = judge(rows_of(sample), candidates(5, 3), 0, lambda share: None)
    (trial,) = outcome.trials
    assert outcome.crossed
    assert len(trial.picked) == FOLDS
    for each in (*trial.by_name.values(), trial.chosen):
        assert np.isfinite(each.loss).all()
    assert set(outcome.fits) == set(NAMES)


def test_many_rows_are_judged_by_a_fit_on_others(monkeypatch):
    monkeypatch.setattr(choosing, "MOST_TO_LEARN", 500)
    monkeypatch.setattr(choosing, "FEWEST_TO_LEARN", 500)
    monkeypatch.setattr(choosing, "MOST_TO_JUDGE", 1200)
    sample = multiclass.miscalibrated(0).sample(3000, seed=0)
    shares = []
    outcome = judge(rows_of(sample), candidates(5, 3), 0, shares.append)
    assert not outcome.crossed
    assert len(outcome.rows) == 1200
    assert outcome.learned == 500
    learned = np.random.default_rng(0).permutation(3000)[:500]
    assert not set(outcome.rows) & set(learned)
    taught = sample.take(learned)
    again = fit([outcome.choice.best["vector"]], taught.output, taught.labels)
    judged = sample.take(outcome.rows)
    expected = answer(again[Variant("vector")], judged.output, judged.labels)
    np.testing.assert_allclose(outcome.trials[0].by_name["vector"].loss, expected.loss, atol=1e-6)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_how_many_rows_teach():
    assert learned_rows(10_000, 10) == 10_000
    assert learned_rows(1_000_000, 10) == 30_000
    assert learned_rows(100_000, 100) == 20_000
    assert learned_rows(100_000, 10_000) == 2_000


def test_folds_hold_equal_shares_of_each_class():
    labels = np.repeat([0, 1, 2], [100, 41, 5])
    fold = choosing._folds(labels, 3)
    for c in range(3):
        counts = np.bincount(fold[labels == c], minlength=FOLDS)
        assert counts.max() - counts.min() <= 1


def test_binary_worlds_of_one_expert_have_no_boosting():
    tried = candidates(2, 1)
    assert "routing" not in tried.names
    assert tried.left_out == {"routing": "there is one expert"}
    assert "matrix" in candidates(1000, 2).left_out


@pytest.mark.parametrize("always", [True, False])
def test_a_class_that_is_always_right_or_wrong_breaks_no_fit(always):
    output = worlds.calibrated(0).sample(300, seed=0).output
    labels = output.predicted if always else 1 - output.predicted
    for variant, fitted in fit(candidates(2, 3).variants, output, labels).items():
        logs = fitted.transform(output).log_probs
        assert torch.isfinite(logs).all(), variant
        assert torch.allclose(logs.exp().sum(1), torch.ones(300, dtype=logs.dtype)), variant
