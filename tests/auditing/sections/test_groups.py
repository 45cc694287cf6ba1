"""Groups: all of them are listed, and a small one says how little is known."""

import numpy as np
import pytest

from calmoe.auditing import Configurations
from calmoe.auditing.sections.groups import MOST_VALUES, groups
from calmoe.metrics import ece
from calmoe.predictions import Predictions


@pytest.fixture(scope="module")
def predictions():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, 3000)
    honest = np.arange(3000) < 2000
    right = rng.random(3000) < np.where(honest, confidence, confidence - 0.3)
    probs = np.stack([confidence, 1 - confidence], axis=1)
    columns = {
        "honest": honest,
        "domain": np.where(honest, "here", "there"),
        "id": np.arange(3000),
        "name": np.array([f"n{i}" for i in range(3000)]),
        "height": rng.random(3000),
        "rare": np.where(np.arange(3000) < 7, "yes", "no"),
        "never": np.zeros(3000, bool),
    }
    return Predictions.from_probs(probs, np.where(right, 0, 1), groups=columns)


@pytest.fixture(scope="module")
def found(predictions):
    return groups(Configurations.of(predictions), predictions.groups)


def test_groups_come_worst_first_and_hold_the_truth(predictions, found):
    by_name = {group.name: group for group in found.groups}
    assert {group.name for group in found.groups[:2]} == {"domain there", "not honest"}
    there, honest = by_name["domain there"], by_name["honest"]
    assert (there.rows, honest.rows) == (1000, 2000)
    assert there.ece.low < 0.3 < there.ece.high
    assert (there.state, honest.state) == ("off", "may be true")
    assert there.balance.high < 0 < honest.balance.high
    plain = ece(predictions.output.probs[2000:], predictions.labels[2000:])
    assert there.ece.value == pytest.approx(plain, abs=0.02)
    assert there.confidence + there.balance.value == pytest.approx(there.accuracy.value)


def test_no_group_vanishes(found):
    by_name = {group.name: group for group in found.groups}
    assert (by_name["rare yes"].rows, by_name["rare yes"].state) == (7, "too few rows")
    assert by_name["rare yes"].ece.high > 0.2
    assert (by_name["never"].rows, by_name["never"].state) == (0, "too few rows")
    assert by_name["not never"].rows == 3000


def test_a_column_without_groups_is_named(found):
    assert set(found.unlisted) == {"id", "name", "height"}
    assert f"{3000:,}" in found.unlisted["name"]


def test_many_values_do_not_make_a_false_finding_likely():
    random = np.random.default_rng(0)
    off = 0
    for _ in range(20):
        confidence = random.uniform(0.5, 1.0, 4000)
        right = random.random(4000) < confidence
        probs = np.stack([confidence, 1 - confidence], axis=1)
        site = random.choice([f"s{i}" for i in range(MOST_VALUES // 2)], 4000)
        given = Predictions.from_probs(probs, np.where(right, 0, 1), groups={"site": site})
        off += bool(groups(Configurations.of(given), given.groups).off)
    assert off <= 4
