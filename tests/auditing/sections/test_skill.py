"""Skill: what a model knows beyond the base rates."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

import calmoe
from calmoe import worlds
from calmoe.auditing.sections.skill import SELDOM, missed, skill
from calmoe.predictions import Predictions


def rare(n=20_000, auc_shift=0.0, seed=0):
    """Calibrated probabilities of a rare class; the larger the shift, the more they tell."""
    random = np.random.default_rng(seed)
    logit = -4.8 + auc_shift * random.normal(size=n)
    p = 1 / (1 + np.exp(-logit))
    return Predictions.from_probs(np.stack([1 - p, p], axis=1), (random.random(n) < p).astype(int))


def test_a_class_that_is_all_but_sure_leaves_a_finite_loss():
    """In single precision log p_1 is 0 exactly, and 1 − p_1 would be nothing; the other class has −20."""
    log_probs = torch.tensor([[-20.0, 0.0]] * 2 + [[-0.5, -0.9327521]] * 200)
    labels = torch.tensor([0, 1] + [0, 1] * 100)
    given = Predictions(
        output=calmoe.MixtureOutput(log_probs, torch.zeros(202, 1), log_probs[:, None]), labels=labels
    )
    losses = {of: skill(given, of=of).nll for of in (0, 1)}
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert np.isfinite(losses[1])


def test_the_numbers_are_those_of_the_definitions():
    given = worlds.multiclass.calibrated(0).sample(1500, seed=0)
    found, labels = skill(given), given.labels.numpy()
    shares = np.bincount(labels, minlength=5) / len(labels)
    probs = given.output.probs.double().numpy()
    assert found.nll == pytest.approx(log_loss(labels, probs, labels=range(5)), rel=1e-4)
    base = log_loss(labels, np.tile(shares, (len(labels), 1)), labels=range(5))
    assert found.base_nll == pytest.approx(base, rel=1e-9)
    assert found.log_skill.value == pytest.approx(1 - found.nll / base, rel=1e-9)
    assert found.majority.value == shares.max()
    hits = (probs.argmax(1) == labels).mean()
    assert found.gain.value == pytest.approx(hits - shares.max(), abs=1e-12)
    assert found.auroc is None


def test_a_calibrated_model_that_knows_next_to_nothing_is_called_that():
    found = skill(rare(auc_shift=0.1))
    assert found.accuracy.value > 0.98
    assert found.auroc.value < 0.6
    assert found.worth == "little"
    assert skill(rare(auc_shift=1.5)).worth == "useful"


def test_a_model_worse_than_the_base_rates_has_none():
    random = np.random.default_rng(0)
    probs = random.dirichlet([0.3, 0.3], 2000)
    assert skill(Predictions.from_probs(probs, random.integers(0, 2, 2000))).worth == "none"


def test_a_class_of_many_is_ranked_when_asked_for():
    given = worlds.multiclass.calibrated(0).sample(1500, seed=0)
    found = skill(given, of=2)
    assert found.positive == 2
    assert found.base_rate == pytest.approx(float((given.labels == 2).double().mean()))
    assert found.auroc.low <= found.auroc.value <= found.auroc.high


def test_a_label_of_probability_zero_costs_everything():
    probs = np.tile([[1.0, 0.0]], (300, 1))
    found = skill(Predictions.from_probs(probs, np.arange(300) % 2))
    assert found.impossible == 150
    assert found.log_skill.value == -np.inf
    assert found.worth == "none"


def test_one_label_is_no_ground_to_judge_skill():
    probs = np.tile([[0.9, 0.1]], (300, 1))
    assert skill(Predictions.from_probs(probs, np.zeros(300, int))).worth == "not decided"


@pytest.mark.slow
def test_the_interval_of_the_log_loss_skill_holds():
    truth = skill(rare(400_000, 1.0, seed=99)).log_skill.value
    found = [skill(rare(3000, 1.0, seed=s)).log_skill for s in range(100)]
    assert np.mean([e.low <= truth <= e.high for e in found]) >= 0.9


def test_a_class_is_missed_where_the_model_is_never_right_on_it():
    expected = []
    for seed in range(4):
        random = np.random.default_rng(seed)
        probs, labels = random.dirichlet([4, 1, 0.02, 0.02], 300), random.integers(4, size=300)
        labels[np.flatnonzero(labels == 3)[9:]] = 0  # the nine that stay tell nothing
        given, right = Predictions.from_probs(probs, labels), probs.argmax(1) == labels
        never = [(c, int((labels == c).sum())) for c in range(3) if not right[labels == c].any()]
        assert list(skill(given).missed) == never
        assert skill(given, of=1).missed == ()
        expected += never
    assert expected


@pytest.mark.parametrize("classes", [2, 20, 200])
def test_classes_that_are_right_now_and_then_are_seldom_called_missed(classes):
    random = np.random.default_rng(classes)
    false = 0
    for _ in range(400):
        counts = random.integers(1, 60, classes)
        false += bool(missed(counts, random.binomial(counts, SELDOM), 0.95))
    assert false / 400 < 0.05
    assert missed(np.full(classes, 40), np.zeros(classes), 0.95) == tuple((c, 40) for c in range(classes))


@pytest.mark.usefixtures("hasty")
def test_the_summary_says_which_classes_are_missed():
    random = np.random.default_rng(0)
    first = random.uniform(0.5, 0.6, 400)
    probs = np.stack([first, (1 - first) / 2, (1 - first) / 2], axis=1)
    labels = np.array([random.choice(3, p=row) for row in probs])
    two = calmoe.audit(Predictions.from_probs(probs, labels))
    assert two.verdict.missed == tuple((c, int((labels == c).sum())) for c in (1, 2))
    assert "never right on 2 classes: 1 (" in two.summary()
    names = {"classes": ["no", "yes"]}
    pair = Predictions.from_probs(
        np.stack([first, 1 - first], axis=1), (labels > 0).astype(int), metadata=names
    )
    one = calmoe.audit(pair)
    assert one.verdict.missed == (("yes", int((labels > 0).sum())),)
    assert f"never right on class 'yes' ({(labels > 0).sum()} rows)" in " ".join(one.summary().split())


@pytest.mark.usefixtures("brief")
def test_a_repair_that_brings_skill_to_light_comes_before_a_new_model():
    random = np.random.default_rng(0)
    truth = random.dirichlet([6, 1, 0.5], 600)
    labels = np.array([random.choice(3, p=row) for row in truth])
    sharp = truth**6 + 1e-9
    sure = Predictions.from_probs(sharp / sharp.sum(1, keepdims=True), labels)
    verdict = calmoe.audit(sure).verdict
    assert skill(sure).worth == "none"  # as it is, the base rates do better
    assert (verdict.worth, verdict.action.kind) == ("spoiled", "repair")
    assert verdict.mended.loss_after < 0.95 * skill(sure).base_nll
    knows_nothing = Predictions.from_probs(sharp[::-1] / sharp[::-1].sum(1, keepdims=True), labels)
    verdict = calmoe.audit(knows_nothing).verdict
    assert (verdict.worth, verdict.action.kind) == ("none", "train")
