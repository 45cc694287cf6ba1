import pytest
import torch

from calmoe.backbones import MLP, build_backbone
from calmoe.errors import InputError


def test_shapes():
    model = MLP(64, hidden=(32, 16))
    assert model.out_features == 16
    assert model(torch.zeros(5, 1, 8, 8)).shape == (5, 16)
    assert (model(torch.randn(5, 64)) >= 0).all()


def test_no_hidden_layer_is_the_identity():
    x = torch.randn(2, 3)
    assert torch.equal(MLP(3, hidden=())(x), x)


def test_by_name():
    assert build_backbone("mlp", (1, 8, 8)).out_features == 128
    assert build_backbone("mlp", (20,), hidden=[7]).layers[0].weight.shape == (7, 20)
    with pytest.raises(InputError, match="did you mean 'hidden'"):
        build_backbone("mlp", (20,), hiden=[7])
