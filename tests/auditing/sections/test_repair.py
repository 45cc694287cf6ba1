"""What is recommended, told on rows that it was not fitted on."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from calmoe import worlds
from calmoe.auditing import audit, repair
from calmoe.auditing.repairs.measures import _gap
from calmoe.auditing.repairs.repair import TooFewRows
from calmoe.auditing.sections.repair import SECTION, candidates_table, sentences
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.calibration import Calibrator
from calmoe.predictions import Predictions
from calmoe.worlds import multiclass


@pytest.fixture(scope="module")
def sample():
    return worlds.cancelling(0, delta=0.15, rule="leading").sample(4000, seed=0)


@pytest.fixture(scope="module")
def found(sample):
    return repair(sample)


def test_a_cancelling_world_is_seen_to_be_mended(found):
    """Only routing tells the rows apart."""
    assert found.recommended == found.chosen == "routing"
    assert set(found.picked) == {"routing"}
    assert found.after is found.choosing
    assert found.after.nll.against_temperature.high < 0
    assert found.after.nll.against_nothing.high < 0
    assert found.fitted.kind == "RoutingRecalibration"
    assert found.candidates["vector"].nll.against_temperature.high > 0


def test_changes_are_differences_of_values(found):
    for candidate in (*found.candidates.values(), found.choosing):
        for part in (candidate.nll, candidate.ece, candidate.accuracy):
            for other, change in (
                ("nothing", part.against_nothing),
                ("temperature", part.against_temperature),
            ):
                name = {id(candidate.nll): "nll", id(candidate.ece): "ece"}.get(id(part), "accuracy")
                base = getattr(found.candidates[other], name).value
                assert change.value == pytest.approx(part.value.value - base.value, abs=1e-9)
                assert change.low <= change.value <= change.high
    assert found.before.nll.against_nothing[:3] == (0, 0, 0)


@pytest.mark.usefixtures("brief")
def test_a_clean_world_is_left_alone():
    found = repair(worlds.calibrated(1).sample(3000, seed=0))
    assert found.recommended is None
    assert found.after is found.before
    assert found.fitted.kind == "Identity"
    assert sentences(found).startswith("No repair is recommended")


@pytest.mark.usefixtures("brief")
def test_an_overconfident_world_gets_a_temperature():
    found = repair(multiclass.miscalibrated(3).sample(3000, seed=0))
    world = worlds.miscalibrated(3).sample(3000, seed=0)
    assert found.recommended is not None
    assert repair(world).recommended == "temperature"


def test_a_repair_that_raises_the_ece_is_not_recommended():
    """Confidences are true, but the wrong classes far too unlikely: a temperature lowers the NLL alone."""
    random = np.random.default_rng(0)
    f = random.uniform(0.5, 0.98, 4000)
    rest = np.stack([1 - f - 1e-9, np.full(4000, 5e-10), np.full(4000, 5e-10)], axis=1)
    labels = np.where(random.random(4000) < f, 0, random.integers(1, 4, 4000))
    found = repair(Predictions.from_probs(np.concatenate([f[:, None], rest], axis=1), labels))
    temperature = found.candidates["temperature"]
    assert temperature.nll.against_nothing.high < 0
    assert temperature.ece.value.value > found.before.ece.value.value + 0.05
    assert found.recommended != "temperature"
    assert found.after.ece.value.value < found.before.ece.value.value + 0.01


@pytest.mark.usefixtures("brief")
def test_impossible_labels_are_counted_and_left_out_of_the_nll():
    sample = worlds.cancelling(0, delta=0.15).sample(2000, seed=0)
    probs = sample.output.probs.clone()
    probs[:40] = torch.nn.functional.one_hot(1 - sample.labels[:40], 2).double()
    broken = Predictions.from_probs(
        probs, sample.labels, routing=sample.output.routing, expert_probs=sample.output.expert_probs
    )
    found = repair(broken)
    assert found.impossible == 40
    for candidate in found.candidates.values():
        assert np.isfinite(candidate.nll.value.value)


def test_the_change_of_an_ece_holds_both_ends():
    before, after = Estimate(0.1, 0.09, 0.11, 0.003), Estimate(0.02, 0.01, 0.03, 0.004)
    wide = {"a": Estimate(0.1, 0.08, 0.12, 0.003), "b": Estimate(0.02, 0.0, 0.04, 0.004)}
    change = _gap("b", "a", {"a": before, "b": after}, wide)
    assert change == pytest.approx((-0.08, -0.12, -0.04, 0.005))
    assert _gap("a", "a", {"a": before}, wide) == (0, 0, 0, 0)


@pytest.mark.usefixtures("brief")
def test_no_temperature_is_recommended_where_uniform_probabilities_do_better():
    probs = torch.rand(400, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    wrong = Predictions.from_probs(probs, probs.argmin(1))
    found = repair(wrong)
    assert found.temperature_status == "uninformative"
    assert found.recommended != "temperature"
    verdict = audit(wrong).verdict
    assert (verdict.worth, verdict.action.kind) == ("none", "train")


def test_too_few_rows_are_refused():
    with pytest.raises(TooFewRows, match="199 rows"):
        repair(worlds.calibrated(0).sample(199, seed=0))


@pytest.mark.usefixtures("hasty")
def test_one_class_may_be_judged():
    sample = multiclass.miscalibrated(0).sample(1500, seed=0)
    top, one = repair(sample), repair(sample, of=2)
    assert one.candidates["temperature"].nll == top.candidates["temperature"].nll
    assert one.before.ece.value != top.before.ece.value


def test_the_table_lists_each_candidate_and_the_choice(found):
    rows = candidates_table(found).rows
    assert [row[0].values[0] for row in rows] == [*found.candidates, "chosen"]
    assert "(recommended)" in rows[list(found.candidates).index(found.recommended)][0].text


def test_an_audit_writes_the_calibrator_with_its_classes(found, sample, tmp_path):
    (data,) = SECTION.files(SimpleNamespace(repair=found, class_names=("no", "yes"))).values()
    (tmp_path / "repair.json").write_bytes(data)
    read = Calibrator.load(tmp_path / "repair.json")
    assert read.classes == ("no", "yes")
    assert torch.equal(
        read.transform(sample.output).log_probs, found.fitted.transform(sample.output).log_probs
    )


def test_the_recommended_repair_is_kept_for_other_data(found, sample, tmp_path):
    found.fitted.save(tmp_path / "c.json")
    read = Calibrator.load(tmp_path / "c.json")
    assert torch.equal(
        read.transform(sample).output.log_probs, found.fitted.transform(sample).output.log_probs
    )
