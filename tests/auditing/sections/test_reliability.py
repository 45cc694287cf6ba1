"""What a reader sees first: the diagram, the words in short, and where it comes from."""

import json
from dataclasses import replace

import numpy as np
import pytest

import calmoe
from calmoe import worlds
from calmoe.auditing import Configurations
from calmoe.auditing.sections.reliability import surface
from calmoe.errors import InputError
from calmoe.metrics import reliability
from calmoe.predictions import Predictions


@pytest.fixture(scope="module")
def predictions():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, 3000)
    honest = np.arange(3000) < 2000
    right = rng.random(3000) < np.where(honest, confidence, confidence - 0.3)
    probs = np.stack([confidence, 1 - confidence], axis=1)
    columns = {"honest": honest, "domain": np.where(honest, "here", "there"), "id": np.arange(3000)}
    return Predictions.from_probs(probs, np.where(right, 0, 1), groups=columns)


def test_the_diagram_is_that_of_the_metrics(predictions):
    found = surface(Configurations.of(predictions)).diagram
    table = reliability(predictions.output.probs, predictions.labels)
    used = found.count > 0
    assert found.count.tolist() == np.asarray(table.count).tolist()
    np.testing.assert_allclose(found.right[used], np.asarray(table.accuracy)[used], rtol=1e-12)
    np.testing.assert_allclose(found.confidence[used], np.asarray(table.confidence)[used], rtol=1e-6)
    assert np.isnan(found.right[~used]).all()
    assert (found.right_low[used] <= found.right[used]).all()


@pytest.mark.usefixtures("hasty")
def test_it_says_in_short_what_was_found(predictions):
    verdict = calmoe.audit(predictions).verdict
    assert (verdict.truth, verdict.side, verdict.slight) == ("off", "too high", False)
    assert verdict.groups_worse[0].name in ("domain there", "not honest")


@pytest.mark.usefixtures("hasty")
def test_probabilities_that_are_not_the_experts_mixture_are_noted():
    sample = worlds.cancelling(seed=0).sample(600, seed=0)
    assert calmoe.audit(sample.take(np.arange(100))).unlike < 1e-6
    shifted = sample.output._replace(log_probs=sample.output.log_probs.roll(1, dims=0))
    report = calmoe.audit(Predictions(output=shifted, labels=sample.labels))
    assert report.unlike > 0.05
    assert report.verdict.out_of_order
    assert "out of order" in report.summary()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("temperature", [0.4, 3.0])
def test_a_temperature_is_no_disorder(temperature):
    sample = worlds.multiclass.miscalibrated(seed=0).sample(600, seed=0)
    tempered = (sample.output.log_probs / temperature).log_softmax(dim=1)
    report = calmoe.audit(replace(sample, output=sample.output._replace(log_probs=tempered)))
    assert report.unlike > 0.01
    assert not report.verdict.out_of_order


@pytest.mark.usefixtures("hasty", "unrendered")
def test_a_second_audit_leaves_nothing_of_the_first(tmp_path):
    calmoe.audit(worlds.cancelling(seed=0).sample(300, seed=0)).save(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    few = Predictions.from_probs(np.array([[0.6, 0.4]] * 50), np.arange(50) % 2)
    calmoe.audit(few).save(tmp_path, {"file": "few.npz", "date": "today"})
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"report.html", "audit.json", "mine.txt", "figures/reliability.png"} <= found
    assert not {"figures/fragility.png", "repair.json", "reweightings.safetensors"} & found
    assert json.loads((tmp_path / "audit.json").read_text())["origin"] == {"file": "few.npz", "date": "today"}
    assert "Calibration audit of few.npz" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("given", ["test.npz", np.zeros((3, 2))])
def test_it_wants_predictions(given):
    with pytest.raises(InputError, match=r"audit needs Predictions, not .*Predictions.load"):
        calmoe.audit(given)
