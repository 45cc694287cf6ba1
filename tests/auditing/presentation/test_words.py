"""The verdict's words, over the fields that they follow from."""

import re
from dataclasses import replace

import numpy as np
import pytest

from calmoe.auditing import audit
from calmoe.auditing.comparison import faults
from calmoe.auditing.mended import Mended
from calmoe.auditing.presentation.commands import Asked, commands, next_step
from calmoe.auditing.presentation.opening import tone_of
from calmoe.auditing.presentation.plain_numbers import points
from calmoe.auditing.presentation.words import (
    action_line,
    headline,
    skill_line,
    threat_line,
)
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.verdict import LABELLED, Action, Elsewhere, GroupOff
from calmoe.predictions import Predictions
from calmoe.worlds import calibrated
from haste import hastily


@pytest.fixture(scope="module")
def true():
    with hastily():
        return audit(calibrated(seed=0).sample(300, seed=0)).verdict


def off(verdict, by, most, **fields):
    """The verdict of probabilities that are too low by so much, and by so much at most."""
    ece = Estimate(by, 0.001, most, by / 2)
    plain = {"hidden": "nothing found", "fragility": "steady", "groups_off": (), "groups_worse": ()}
    return replace(
        verdict,
        truth="off",
        side="too low",
        slight=most < 0.03,
        ece=ece,
        balance=ece,
        mended=None,
        action=Action("watch", "calmoe audit FILE --target NEW_PREDICTIONS"),
        **(plain | fields),
    )


NORTH = GroupOff(
    "region north", "region", 100, "too high", Estimate(0.37, 0.3, 0.4, 0.02), 0.4, 0.77, False, "top"
)
WORSE = {"groups_off": (NORTH,), "groups_worse": (NORTH,)}


@pytest.mark.parametrize(
    ("by", "most", "fields", "tone", "words", "relies", "counted"),
    [
        (0.010, 0.020, {}, ("warn", "Slightly off"), "are slightly off: ", True, 0),
        (0.014, 0.031, {}, ("warn", "Off"), "are off: ", True, 0),
        (0.050, 0.080, {}, ("bad", "Not true"), "are not true: ", False, 1),
        (0.014, 0.031, {"hidden": "hidden"}, ("warn", "Off"), "are off: ", False, 1),
        (0.014, 0.031, {"fragility": "fragile"}, ("warn", "Off"), "are off: ", False, 1),
        (0.014, 0.031, WORSE, ("warn", "Off"), "are off: ", False, 1),
    ],
)  # fmt: skip
def test_a_small_error_is_no_reason_to_trust_what_is_far_off(
    true, by, most, fields, tone, words, relies, counted
):
    verdict = off(true, by, most, **fields)
    assert tone_of(verdict) == tone
    assert words in headline(verdict)
    assert faults(verdict) == counted
    advice = action_line(verdict)
    assert ("Do not rely on the numbers" in advice) != relies
    assert (f"an error of {100 * most:.1f} points does not matter" in advice) == relies
    assert ("region north" in advice) == bool(verdict.groups_worse)


@pytest.mark.parametrize(
    ("asked", "data", "then"),
    [
        ("calmoe audit FILE --target NEW_PREDICTIONS", "NEW_DATA", "'a model' --target new-predictions.csv"),
        (f"calmoe audit {LABELLED} --of yes", "LABELLED_DATA", "labelled-predictions.csv --of yes"),
        ("calmoe audit MORE_ROWS", "MORE_DATA", "more-predictions.csv"),
    ],
)
def test_a_known_model_predicts_before_the_audit(true, asked, data, then):
    verdict = replace(true, action=Action("watch", asked))
    assert len(commands(verdict, Asked("rows.csv"))) == 1
    predict, audit_again = commands(verdict, Asked("a model", "a model"))
    kind = data.removesuffix("_DATA").lower()
    assert predict == f"calmoe predict 'a model' {data} --out {kind}-predictions.csv"
    assert audit_again == f"calmoe audit {then}"


def test_a_repair_needs_no_predictions(true):
    verdict = replace(true, action=Action("repair", "calmoe repair FILE --out calibrator.json"))
    assert commands(verdict, Asked("MORE_ROWS", "m")) == ["calmoe repair MORE_ROWS --out calibrator.json"]


@pytest.mark.parametrize("state", ["unlike", "too few rows", "contradicted", "predicted"])
def test_what_is_not_known_of_a_target_is_not_called_fit_for_use(true, state):
    action = Action("use", f"calmoe audit {LABELLED}")
    verdict = replace(true, elsewhere=Elsewhere(state, None, None), action=action)
    assert ("label some of its rows" in action_line(verdict)) == (state != "predicted")
    assert next_step(verdict)[2] == f"calmoe predict MODEL DATA --out {LABELLED}"


def two_classes(p, y, **options):
    given = Predictions.from_probs(np.stack([1 - p, p], axis=1), np.asarray(y, int))
    return audit(given, **options)


def logistic(n, scale=1.5, seed=0):
    random = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-random.normal(0, scale, n)))
    return p, random.random(n) < p


@pytest.mark.usefixtures("hasty")
def test_a_reversed_score_is_no_ignorance():
    """AUROC 0.14 was "no more than the base rates: train a better model"."""
    p, y = logistic(2000)
    verdict = two_classes(1 - p, y).verdict
    assert (verdict.worth, verdict.action.kind) == ("reversed", "turn")
    assert headline(verdict).startswith("The order is reversed")
    assert "--positive" in action_line(verdict)
    useless = two_classes(np.random.default_rng(1).beta(3, 3, 2000), y).verdict
    assert useless.worth == "none"


@pytest.mark.usefixtures("hasty")
def test_zeros_that_came_true_are_counted_and_never_used_as_they_are():
    p, y = logistic(2000)
    p[:3], y[:3] = 0.0, True
    verdict = two_classes(p, y).verdict
    assert (verdict.worth, verdict.impossible) == ("spoiled", 3)
    assert "3 rows give what came true probability zero" in skill_line(verdict)
    assert verdict.action.kind != "use"


@pytest.mark.usefixtures("hasty")
def test_a_repair_is_not_said_to_treat_predicted_classes_alike(true):
    """Vector and matrix scaling do not."""
    kind = NORTH._replace(name="rows predicted as class 2", column=None)
    for worse, said in (((NORTH,), True), ((kind,), False), ((kind, NORTH), True)):
        verdict = off(true, 0.05, 0.06, groups_off=worse, groups_worse=worse)
        mended = Mended("vector", verdict.ece, verdict.ece._replace(value=0.01, high=0.02), 0.6, 0.5)
        line = action_line(replace(verdict, mended=mended, action=Action("repair", "calmoe repair FILE")))
        assert ("may not mend region north" in line) == said
        assert "may not mend rows" not in line


def test_the_advice_follows_what_is_known():
    """300 true rows, off by 8 points at most, were to be used; 6,000 rows, off by 3 at most, were not."""
    few, many = (two_classes(*logistic(rows)).verdict for rows in (300, 20_000))
    assert (few.truth, many.truth) == ("may be true", "may be true")
    assert (few.action.kind, many.action.kind) == ("collect", "use")
    assert few.farthest > 0.05 > many.farthest
    assert "points is possible" in action_line(few)
    assert f"off by {points(many.farthest)} at most" in action_line(many)


@pytest.mark.usefixtures("hasty")
def test_an_error_of_a_rare_class_is_not_slight_beside_its_frequency():
    """A mean of 1.4 % where 0.4 % is true was "slightly off"."""
    p, y = rare(20_000)
    verdict = two_classes(np.clip(3 * p, 0, 1), y, of=1).verdict
    assert (verdict.truth, verdict.slight, verdict.small) == ("off", False, False)
    assert re.search(r"\([23]\.\d times too high\)", headline(verdict))
    assert threat_line(verdict) == "not looked at: rows of equal probability look all alike."


def rare(n):
    random = np.random.default_rng(2)
    p = 1 / (1 + np.exp(-random.normal(-6.1, 1.2, n)))
    return p, random.random(n) < p
