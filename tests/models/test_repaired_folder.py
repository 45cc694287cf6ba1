"""A model that carries a calibrator: it predicts with it after loading, and says so."""

import json
import shutil

import numpy as np
import pytest
import torch

import calmoe
from calmoe.calibration import Calibrator, VectorScaling
from calmoe.calibration.log_linear import Weights
from calmoe.errors import InputError
from calmoe.models.table_model import TableModel
from command_line import calmoe as command
from command_line import refused
from models.made_tables import noisy, quick_mixture, quick_network
from saved_networks import IMAGES, network
from small_calibrators import boosted


def of_images():
    return network(IMAGES), torch.randint(256, (40, 3, 8, 8), dtype=torch.uint8)


def of_tables(make=quick_mixture):
    X, y = noisy(80)
    return TableModel(make().fit(X, y)), X


def vector(model, note=""):
    c = len(model.classes)
    fitted = VectorScaling().take(Weights(np.linspace(0.5, 2, c), np.linspace(-1, 1, c)))
    return Calibrator(fitted, tuple(str(name) for name in model.classes), note)


def routing(model, X):
    output = model.output(X)
    labels = torch.randint(len(model.classes), (len(output.log_probs),))
    return Calibrator(boosted(output, labels, rounds=5))


@pytest.mark.parametrize("make", [of_images, of_tables, lambda: of_tables(quick_network)])
def test_a_folder_predicts_with_its_calibrator(make, tmp_path):
    model, X = make()
    for name, calibrator in (("vector", vector(model, "fitted on 9 rows")), ("routing", routing(model, X))):
        repaired = model.with_calibrator(calibrator)
        repaired.save(tmp_path / name)
        again = calmoe.load(tmp_path / name)
        expected = calibrator.transform(model.output(X))
        for ours, theirs in zip(again.output(X), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
        np.testing.assert_allclose(again.predict_proba(X), expected.probs, atol=1e-6)
        assert again.calibrator.to_dict() == calibrator.to_dict()
        assert calibrator.title in repr(again)
        assert calibrator.title in (tmp_path / name / "README.md").read_text()
        assert again.card == repaired.card
    assert model.calibrator is None
    assert not np.allclose(model.predict_proba(X), repaired.predict_proba(X))


def test_apply_makes_a_new_folder_and_leaves_the_old_one(tmp_path):
    model, X = of_tables()
    model.save(tmp_path / "model")
    before = {path: path.read_bytes() for path in (tmp_path / "model").rglob("*") if path.is_file()}
    vector(model, "fitted on 80 rows").save(tmp_path / "c.json")
    result = command("apply", tmp_path / "c.json", tmp_path / "model", "--out", tmp_path / "new")
    assert result.exit_code == 0, result.output
    assert {path: path.read_bytes() for path in before} == before
    again = calmoe.load(tmp_path / "new")
    np.testing.assert_allclose(again.predict_proba(X), vector(model).transform(model.output(X)).probs)
    assert "fitted on 80 rows" in again.card.calibrator
    for mistake in (
        ("apply", tmp_path / "c.json", tmp_path / "new", "--out", tmp_path / "twice"),  # carries one already
        ("apply", tmp_path / "c.json", tmp_path / "model", "--out", tmp_path / "new"),  # is there
        ("apply", tmp_path / "c.json", tmp_path / "model", "--out", tmp_path / "model"),
    ):
        refused(*mistake)
    assert not (tmp_path / "twice").exists()


def test_an_estimator_alone_does_not_forget_the_calibrator(tmp_path):
    for make, kind in (
        (quick_mixture, calmoe.MixtureOfModels),
        (quick_network, calmoe.CalibratedMoEClassifier),
    ):
        model, _ = of_tables(make)
        folder = tmp_path / kind.__name__
        model.with_calibrator(vector(model)).save(folder)
        with pytest.raises(InputError, match=r"use calmoe\.load"):
            kind.load(folder)


def test_calibrators_of_other_models_are_refused():
    model, _ = of_tables()
    other = Calibrator(VectorScaling().take(Weights(np.ones(7), np.zeros(7))))
    with pytest.raises(InputError, match="fitted on 7 classes, given 2"):
        model.with_calibrator(other)
    with pytest.raises(InputError, match="fitted on the classes"):
        model.with_calibrator(Calibrator(vector(model).fitted, ("x", "y")))
    images, rows = of_images()
    with pytest.raises(InputError, match="fitted on"):
        model.with_calibrator(routing(images, rows))


@pytest.mark.parametrize(
    "damage",
    [b"", b"[]", b'{"kind": "Oracle"}', b'{"kind": "VectorScaling", "weights": [1], "intercepts": [0]}'],
)
def test_a_damaged_calibrator_is_refused_in_one_line(tmp_path, damage):
    model, _ = of_images()
    model.with_calibrator(vector(model)).save(tmp_path / "model")
    (tmp_path / "model" / "calibrator.json").write_bytes(damage)
    with pytest.raises(InputError) as caught:
        calmoe.load(tmp_path / "model")
    assert "calibrator.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_from_before_have_none(tmp_path):
    model, X = of_images()
    model.save(tmp_path / "model")
    card = json.loads((tmp_path / "model" / "card.json").read_text())
    del card["calibrator"]
    (tmp_path / "model" / "card.json").write_text(json.dumps(card))
    again = calmoe.load(tmp_path / "model")
    assert again.calibrator is None
    assert not (tmp_path / "model" / "calibrator.json").exists()
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    shutil.rmtree(tmp_path / "model")
