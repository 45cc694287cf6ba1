"""One loader for every kind of calibrator: exact round trips, one line for whatever is wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from calmoe.calibration import Calibrator
from calmoe.calibration.calibrator import KINDS
from calmoe.errors import InputError
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions
from small_calibrators import every_kind, overconfident
from strategies import random_output


@pytest.fixture(scope="module")
def fitted():
    return every_kind(*overconfident())


def test_every_kind_is_tried(fitted):
    assert set(fitted) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_back_exactly_what_was_saved(fitted, kind, tmp_path):
    output, _ = overconfident()
    named = Calibrator(fitted[kind], ("a", "b", "ż"), "fitted on rows")
    named.save(tmp_path / "c.json")
    read = Calibrator.load(tmp_path / "c.json")
    assert (read.kind, read.classes, read.note) == (kind, named.classes, named.note)
    assert read.to_dict() == named.to_dict()
    assert torch.equal(read.transform(output).log_probs, named.transform(output).log_probs)
    fitted[kind].save(tmp_path / "own.json")  # a kind's own file is read too, and its own loader reads ours
    assert Calibrator.load(tmp_path / "own.json").to_dict() == Calibrator(fitted[kind]).to_dict()
    again = type(fitted[kind]).load(tmp_path / "c.json")
    assert again.to_dict() == fitted[kind].to_dict()
    assert {name for name in vars(fitted[kind]) if name.endswith("_")} <= vars(again).keys()


def test_effective_rows_may_be_missing_in_an_older_file(fitted, tmp_path):
    older = fitted["ShiftedTemperature"].to_dict()
    assert older.pop("effective") == 600
    (tmp_path / "c.json").write_text(json.dumps(older))
    assert Calibrator.load(tmp_path / "c.json").fitted.effective_ is None


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_outputs_and_log_probabilities_agree(fitted, kind):
    output, labels = overconfident()
    calibrator = Calibrator(fitted[kind])
    given = Predictions(output=output, labels=labels, groups={"g": np.arange(600)})
    after = calibrator.transform(given)
    assert torch.equal(after.labels, labels)
    assert (after.groups["g"] == np.arange(600)).all()
    assert torch.equal(after.output.log_routing, output.log_routing)
    assert torch.equal(after.output.log_probs, calibrator.transform(output).log_probs)
    if KINDS[kind].of_experts:
        with pytest.raises(InputError, match="routing and experts"):
            calibrator.transform(output.log_probs)
    else:
        assert torch.equal(calibrator.transform(output.log_probs), after.output.log_probs)
        assert torch.equal(calibrator.transform(output.log_probs.numpy()), after.output.log_probs)


def test_other_classes_are_refused(fitted):
    output, labels = overconfident()
    given = Predictions(output=output, labels=labels, metadata={"classes": ["a", "b", "c"]})
    calibrator = Calibrator(fitted["VectorScaling"], ("b", "a", "c"))
    with pytest.raises(InputError, match="same order"):
        calibrator.transform(given)
    assert len(replace(calibrator, classes=("a", "b", "c")).transform(given)) == 600


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("ShiftedTemperature", "effective", 99),
        ("ShiftedTemperature", "effective", "600"),
        ("VectorScaling", "weights", [1.0, 2.0]),
        ("VectorScaling", "weights", [1.0, 2.0, "3"]),
        ("VectorScaling", "weights", [1.0, 2.0, 1e300]),
        ("VectorScaling", "intercepts", []),
        ("MatrixScaling", "matrix", [[1.0] * 3] * 2),
        ("MatrixScaling", "matrix", None),
        ("MatrixScaling", "strength", -1),
        ("MatrixScaling", "intercepts", [0.0] * 500),
        ("TopLabelIsotonic", "probabilities", [0.0]),
        ("TopLabelIsotonic", "confidences", [0.5, 0.5]),
        ("TopLabelIsotonic", "temperature", 0),
        ("Temperature", "temperature", "hot"),
        ("Identity", "classes", [1, 2]),
        ("Identity", "classes", "abc"),
        ("Identity", "note", 3),
    ],
)
def test_a_wrong_field_is_named_in_one_line(fitted, tmp_path, kind, field, value):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(Calibrator(fitted[kind]).to_dict() | {field: value}))
    with pytest.raises(InputError) as caught:
        Calibrator.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


def test_a_curve_that_falls_is_refused(fitted, tmp_path):
    saved = fitted["TopLabelIsotonic"].to_dict()
    saved["probabilities"] = saved["probabilities"][::-1]
    (tmp_path / "c.json").write_text(json.dumps(saved))
    with pytest.raises(InputError, match="never fall"):
        Calibrator.load(tmp_path / "c.json")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "3",
        "null",
        "{}",
        '{"kind": "Oracle"}',
        '{"kind": ["Identity"]}',
        '{"kind": "VectorScaling"}',
    ],
)
def test_what_is_no_calibrator_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(InputError) as caught:
        Calibrator.load(tmp_path / "c.json")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="there is no file"):
        Calibrator.load(tmp_path / "none.json")


def test_sizes_that_do_not_fit_are_refused(fitted):
    small = random_output(0, n=10, classes=4, experts=3)
    for kind in ("VectorScaling", "MatrixScaling", "RoutingRecalibration", "PerExpertTemperature"):
        with pytest.raises(InputError, match="fitted on"):
            Calibrator(fitted[kind]).transform(small)


def test_float32_stays_float32(fitted):
    output, _ = overconfident(20)
    single = MixtureOutput(*(part.float() for part in output))
    for kind, one in fitted.items():
        after = Calibrator(one).transform(single).log_probs
        assert after.dtype == torch.float32, kind
        expected = Calibrator(one).transform(output).log_probs
        torch.testing.assert_close(after.double(), expected, atol=1e-4, rtol=0)
