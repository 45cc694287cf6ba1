"""What a repair would gain, told on rows that it did not see."""

import numpy as np
import pytest
import torch

from calmoe import worlds
from calmoe.auditing import Configurations, audit, repair
from calmoe.auditing.sections.repair import _eces, comparison_table, later_fits, sentences
from calmoe.predictions import Predictions


@pytest.fixture(scope="module")
def sample():
    return worlds.cancelling(0, delta=0.15, rule="leading").sample(4000, seed=0)


@pytest.fixture(scope="module")
def found(sample):
    return repair(sample)


def test_each_block_is_answered_by_earlier_rows_alone(sample):
    """Other labels later change nothing earlier."""
    fits = later_fits(sample)
    rows = np.concatenate([part for part, _ in fits])
    assert len(set(rows)) == len(rows) == 2400
    labels = sample.labels.clone()
    labels[fits[-1][0]] = 1 - labels[fits[-1][0]]
    again = later_fits(Predictions(output=sample.output, labels=labels))
    for (_, one), (_, other) in zip(fits, again, strict=True):
        assert (one.coefficients_ == other.coefficients_).all()
    labels = sample.labels.clone()
    labels[fits[0][0]] = 1 - labels[fits[0][0]]
    third = later_fits(Predictions(output=sample.output, labels=labels))
    assert (fits[0][1].coefficients_ == third[0][1].coefficients_).all()
    assert not np.array_equal(fits[1][1].coefficients_, third[1][1].coefficients_)


def test_the_changes_are_those_of_the_rows(sample, found):
    fits = later_fits(sample)
    change = []
    for rows, fitted in fits:
        part = sample.take(rows)
        picked = part.labels[:, None]
        before = fitted.temperature_.transform(part.output.log_probs).gather(1, picked)
        change.append((before - fitted.transform(part.output).log_probs.gather(1, picked)).squeeze(1))
    assert found.nll.change.value == pytest.approx(float(torch.cat(change).mean()))
    assert found.nll.change.value == pytest.approx(found.nll.repaired.value - found.nll.temperature.value)
    assert repair(sample, fits).nll == found.nll
    assert found.rows == 2400
    assert found.impossible == 0


def test_a_cancelling_world_is_seen_to_be_mended(found):
    assert found.status == "repaired"
    assert found.kept >= 2
    assert found.nll.change.high < 0
    assert found.witness.change.high < 0
    assert found.witness.temperature.low > 0.05
    assert "+" not in comparison_table(found).rows[0][3].text
    assert "changes the NLL by −0.0" in sentences(found)


def test_a_clean_world_is_left_alone():
    found = repair(worlds.calibrated(1).sample(3000, seed=0))
    assert found.kept == 0
    for part in (found.nll, found.ece, found.witness, found.accuracy):
        assert part.temperature == part.repaired
        assert (part.change.value, part.change.low, part.change.high) == pytest.approx((0, 0, 0), abs=1e-9)
    assert "none is offered beyond a temperature" in sentences(found)
    assert [entry.text for entry in comparison_table(found).rows[1][3:]] == ["0.0000", "[0.0000, 0.0000]"]


def test_impossible_labels_are_counted_and_left_out_of_the_nll():
    sample = worlds.cancelling(0, delta=0.15).sample(2000, seed=0)
    probs = sample.output.probs.clone()
    probs[:40] = torch.nn.functional.one_hot(1 - sample.labels[:40], 2).double()
    broken = Predictions.from_probs(
        probs, sample.labels, routing=sample.output.routing, expert_probs=sample.output.expert_probs
    )
    found = repair(broken)
    assert 10 < found.impossible < 40
    assert np.isfinite(found.nll.change.value)


def test_the_change_of_the_ece_holds_both_ends():
    """Off by 0.1, then by 0.02: the change is −0.08, and surely one."""
    random = np.random.default_rng(0)
    f = random.uniform(0.62, 1, 4000)
    labels = (random.random(4000) < f - 0.1).astype(int)
    answers = [np.stack([1 - p, p], axis=1) for p in (f, f - 0.08)]
    seen = [Configurations.of(Predictions.from_probs(p, labels), of=1) for p in answers]
    found = _eces(seen, 15, 0.95)
    assert found.change.low < -0.08 < found.change.high < 0
    assert found.change.value == pytest.approx(-0.08, abs=0.01)
    assert found.change.low < found.repaired.low - found.temperature.high
    assert _eces([seen[0], seen[0]], 15, 0.95).change == (0, 0, 0, 0)


def test_no_temperature_is_recommended_where_uniform_probabilities_do_better():
    probs = torch.rand(400, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    wrong = Predictions.from_probs(probs, probs.argmin(1))
    assert repair(wrong).fitted.temperature_.status_ == "uninformative"
    verdict = audit(wrong).verdict
    assert (verdict.worth, verdict.mended, verdict.action.kind) == ("none", None, "train")
