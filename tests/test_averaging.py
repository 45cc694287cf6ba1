"""Averaged weights in a loop of one's own: batch norm's statistics for them."""

import pytest
import torch
from torch import nn

from calmoe.averaging import estimate_statistics
from calmoe.errors import InputError


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    )
    made[1].momentum = 0.3
    return made


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_each_module_keeps_its_own_mode_and_momentum(model):
    model.train()
    model[1].eval()  # frozen by its user
    estimate_statistics(model, torch.randn(5, 8, 3))
    assert [module.training for module in model.modules()] == [True, True, False, True, True, True]
    assert (model[1].momentum, model[2][1].momentum) == (0.3, 0.1)


def test_statistics_are_the_mean_over_batches_and_equal_torchs_own(model):
    batches = torch.randn(5, 8, 3)
    twin = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    )
    twin.load_state_dict(model.state_dict())
    torch.optim.swa_utils.update_bn(batches, twin)
    estimate_statistics(model, batches)
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value)


@pytest.mark.parametrize(
    ("batches", "error"),
    [([], InputError), ([torch.randn(8, 3), torch.randn(1, 3)], ValueError)],  # batch norm of one row
    ids=["none", "a batch that fails"],
)
def test_statistics_stay_where_they_cannot_be_estimated(model, batches, error):
    model(torch.randn(8, 3))
    before = state(model)
    with pytest.raises(error):
        estimate_statistics(model, iter(batches))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


def test_without_batch_norm_no_batch_is_drawn():
    estimate_statistics(nn.Linear(3, 2), iter([]))
