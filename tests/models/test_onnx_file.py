"""ONNX files give PyTorch's probabilities, with preparation, views and temperatures inside."""

import functools
import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
from torch._export import utils as torch_operators
from torch.onnx._internal._lazy_import import onnxscript_apis as operators

from calmoe.calibration import (
    Calibrator,
    Identity,
    MatrixScaling,
    Temperature,
    TopLabelIsotonic,
    VectorScaling,
)
from calmoe.calibration.log_linear import Weights
from calmoe.data.text import token_ids
from calmoe.errors import InputError
from calmoe.models import onnx_file
from calmoe.models.calibrated_moe import CalibratedMoEClassifier
from calmoe.models.inputs import ArrayInputs, TextInputs
from calmoe.models.onnx_file import write_onnx
from calmoe.models.table_model import TableModel
from encoders import save_encoder
from saved_networks import IMAGES, network
from sizes import at_size

IMAGE_ROWS = torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
NUMBERS = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
TEXTS = ["you are good", "a bad, awful man"]


@pytest.fixture(scope="module", autouse=True)
def _operators_once():
    """The exporter goes through all operators there are, again and again; here once."""
    with pytest.MonkeyPatch.context() as patch:
        for place, name in ((operators, "get_torchlib_ops"), (torch_operators, "_materialize_cpp_cia_ops")):
            patch.setattr(place, name, functools.cache(getattr(place, name)))
        yield


def mlp_of_images(folder):
    return network(replace(IMAGES, views=3)), IMAGE_ROWS, IMAGE_ROWS.numpy()  # the third view is shifted


def mlp_of_numbers(folder):
    return network(ArrayInputs(shape=(4,))), NUMBERS, NUMBERS


def resnet(folder):
    options = {"stem": "cifar", "stages": 3, "variant": "v1.5"}
    return network(replace(IMAGES, views=1), "resnet18", **options), IMAGE_ROWS, IMAGE_ROWS.numpy()


def one_network_with_views(folder):
    """As calmoe's recipe trains it."""
    return network(replace(IMAGES, views=at_size(2, 10)), experts=1), IMAGE_ROWS, IMAGE_ROWS.numpy()


def encoder(folder):
    saved = save_encoder(folder / "encoder")
    model = network(TextInputs(), "encoder", saved, pooling="mean")
    return model, TEXTS, token_ids(TEXTS, str(saved)).numpy()


@pytest.mark.parametrize(
    "kind",
    [mlp_of_images, one_network_with_views, mlp_of_numbers, resnet, encoder],
    ids=lambda kind: kind.__name__,
)
def test_the_file_says_what_the_model_says(tmp_path, kind):
    """`given` is what the model's user has, `rows` the same as the file takes it."""
    model, given, rows = kind(tmp_path)
    assert write_onnx(model, tmp_path / "m.onnx") < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    probs, routing, expert_probs = session.run(None, {"rows": rows})
    output = model.output(given)
    np.testing.assert_allclose(probs, model.predict_proba(given), rtol=0, atol=1e-5)
    np.testing.assert_allclose(routing, output.log_routing.exp(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(expert_probs, output.expert_log_probs.exp(), rtol=0, atol=1e-5)
    check_temperature(model, probs, routing, expert_probs)
    if kind is resnet:
        check_preparation(model, rows, routing)
    (repeated,) = session.run(["probs"], {"rows": np.repeat(rows, 3, axis=0)})
    np.testing.assert_allclose(repeated, np.repeat(probs, 3, axis=0), rtol=0, atol=1e-6)
    note = json.loads(session.get_modelmeta().custom_metadata_map["calmoe"])
    assert (note["classes"], note["temperature"]) == (model.classes, model.temperature)


def check_temperature(model, probs, routing, expert_probs):
    """The file's experts, combined, are the mixture before its temperature; its own answer is after it."""
    before = np.einsum("nk,nkc->nc", routing, expert_probs)
    after = before ** (1 / model.temperature)
    np.testing.assert_allclose(probs, after / after.sum(axis=1, keepdims=True), rtol=0, atol=1e-5)
    assert np.abs(probs - before).max() > 1e-3


def check_preparation(model, rows, routing):
    """The network itself answers so for pixels that are scaled by hand."""
    mean, std = (np.reshape(values, (-1, 1, 1)) for values in (model.inputs.mean, model.inputs.std))
    by_hand = torch.from_numpy(((rows / 255 - mean) / std).astype(np.float32))
    with torch.no_grad():
        expected = model.network(by_hand).log_routing.exp()
    np.testing.assert_allclose(routing, expected, rtol=0, atol=1e-5)


LINEAR = (
    MatrixScaling().take(Weights(np.arange(9.0).reshape(3, 3) / 4, np.array([1.0, 0.0, -1.0])), 0.03),
    VectorScaling().take(Weights(np.array([0.5, 2.0, 1.0]), np.array([1.0, 0.0, -1.0]))),
    Temperature.from_dict(
        {"kind": "Temperature", "solver": "exact", "temperature": 0.4, "status": "optimum"}
    ),
    Identity(),
)


def repaired(fitted):
    return network(ArrayInputs(shape=(4,))).with_calibrator(Calibrator(fitted))


@pytest.mark.parametrize("fitted", at_size(LINEAR[:1], LINEAR), ids=lambda fitted: type(fitted).__name__)
def test_repairs_that_are_linear_are_inside(tmp_path, fitted):
    model = repaired(fitted)
    write_onnx(model, tmp_path / "m.onnx")
    (probs,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(["probs"], {"rows": NUMBERS})
    check_repair(model, probs)


@pytest.mark.parametrize("fitted", LINEAR, ids=lambda fitted: type(fitted).__name__)
def test_repairs_that_are_linear_are_in_what_is_exported(fitted):
    """`write_onnx` checks the file against this."""
    model = repaired(fitted)
    exported = onnx_file.Exported(model.deployed, onnx_file._repair(model)).eval()
    with torch.no_grad():
        check_repair(model, exported(torch.from_numpy(NUMBERS))[0].numpy())


def check_repair(model, probs):
    np.testing.assert_allclose(probs, model.predict_proba(NUMBERS), rtol=0, atol=1e-5)
    before = model.own_output(NUMBERS).log_probs.exp().numpy()
    assert (np.abs(probs - before).max() < 1e-5) == isinstance(model.calibrator.fitted, Identity)


def test_a_repair_by_other_means_is_refused(tmp_path):
    logs = torch.tensor([[0.6, 0.3, 0.1]] * 40).log()
    isotonic = TopLabelIsotonic().fit(logs, torch.tensor([0, 1] * 20))
    model = network(ArrayInputs(shape=(4,))).with_calibrator(Calibrator(isotonic))
    with pytest.raises(InputError, match="isotonic regression, which an ONNX file cannot hold"):
        write_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_other_names_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"ends in \.onnx"):
        write_onnx(network(IMAGES), tmp_path / "m.bin")


def test_models_of_tables_are_refused(tmp_path):
    """Their preparation reads words and dates, for which an ONNX file has no columns."""
    column, labels = {"x": np.linspace(0, 1, 40)}, np.array(["no", "yes"] * 20)
    fitted = CalibratedMoEClassifier(max_epochs=1, random_state=0).fit(column, labels)
    with pytest.raises(InputError, match="a model of tables has no ONNX file"):
        write_onnx(TableModel(fitted), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
