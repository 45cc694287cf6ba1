"""The verdict's words, over the fields that they follow from."""

from dataclasses import replace

import pytest

from calmoe.auditing import audit
from calmoe.auditing.comparison import faults
from calmoe.auditing.presentation.opening import tone_of
from calmoe.auditing.presentation.words import action_line, commands, headline, next_step
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.verdict import LABELLED, Action, Elsewhere, GroupOff
from calmoe.worlds import calibrated


@pytest.fixture(scope="module")
def true():
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


NORTH = GroupOff("region north", "region", 100, "too high", Estimate(0.37, 0.3, 0.4, 0.02), 0.4, 0.77, False)
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
    assert (f"off by up to {100 * most:.1f} points" in advice) == relies
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
    assert len(commands(verdict, "rows.csv")) == 1
    predict, audit_again = commands(verdict, "a model", "a model")
    kind = data.removesuffix("_DATA").lower()
    assert predict == f"calmoe predict 'a model' {data} --out {kind}-predictions.csv"
    assert audit_again == f"calmoe audit {then}"


def test_a_repair_needs_no_predictions(true):
    verdict = replace(true, action=Action("repair", "calmoe repair FILE --out calibrator.json"))
    assert commands(verdict, "MORE_ROWS", "m") == ["calmoe repair MORE_ROWS --out calibrator.json"]


@pytest.mark.parametrize("state", ["unlike", "too few rows", "contradicted", "predicted"])
def test_what_is_not_known_of_a_target_is_not_called_fit_for_use(true, state):
    action = Action("use", f"calmoe audit {LABELLED}")
    verdict = replace(true, elsewhere=Elsewhere(state, None, None), action=action)
    assert ("label some of its rows" in action_line(verdict)) == (state != "predicted")
    assert next_step(verdict)[2] == f"calmoe predict MODEL DATA --out {LABELLED}"
