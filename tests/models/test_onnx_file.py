"""ONNX files give PyTorch's probabilities, with preparation, views and temperatures inside."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from calmoe.data.text import token_ids
from calmoe.errors import InputError
from calmoe.models.inputs import TextInputs
from calmoe.models.onnx_file import write_onnx
from encoders import save_encoder
from saved_networks import IMAGES, network
from sizes import at_size

SEEN = replace(IMAGES, views=4)  # mirrored and shifted ones among them
onnxruntime = pytest.importorskip("onnxruntime", reason="the onnx extra is not installed")
pytest.importorskip("onnxscript", reason="the onnx extra is not installed")


@pytest.mark.parametrize("kind", at_size(["mlp", "encoder"], ["mlp", "resnet", "encoder"]))
def test_the_file_says_what_the_model_says(tmp_path, kind):
    if kind == "encoder":
        encoder = save_encoder(tmp_path / "encoder")
        model = network(TextInputs(), "encoder", encoder, pooling="mean")
        given = ["you are good", "a bad, awful man"]
        rows = token_ids(given, str(encoder)).numpy()
    else:
        options = {"stem": "cifar", "stages": 3, "variant": "v1.5"} if kind == "resnet" else {}
        model = network(SEEN, "resnet18" if kind == "resnet" else "mlp", **options)
        given = torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8)
        rows = given.numpy()
    assert write_onnx(model, tmp_path / "m.onnx") < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    probs, routing, _ = session.run(None, {"rows": rows})
    np.testing.assert_allclose(probs, model.predict_proba(given), rtol=0, atol=1e-5)
    assert routing.shape == (2, model.output(given).log_routing.shape[1])
    note = json.loads(session.get_modelmeta().custom_metadata_map["calmoe"])
    assert note["classes"] == model.classes


def test_other_names_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"ends in \.onnx"):
        write_onnx(network(IMAGES), tmp_path / "m.bin")
