"""The reducers over two real processes: the global value on every rank, the plain gradient after DDP."""

import pytest
import torch

from calmoe.objectives import ERM, tilt_weights
from ranks import OBJECTIVES, SPLITS, on_processes, problem, work

pytestmark = pytest.mark.slow  # starting two processes takes seconds


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    on_processes(2, work, (str(folder / "init"), str(folder)))
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_processes_equal_one(ranks, name, split):
    head, x, y = problem()
    value = OBJECTIVES[name](head(x), y)
    value.backward()
    expected = [value.detach(), *(p.grad for p in head.parameters())]
    for rank in ranks:
        for given, wanted in zip(rank[f"{split}/{name}"], expected, strict=True):
            torch.testing.assert_close(given, wanted, rtol=1e-9, atol=1e-12)
        for given, wanted in zip(rank[f"{split}/{name}/weights"], expected[1:], strict=True):
            torch.testing.assert_close(given, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("split", SPLITS)
def test_the_local_weights_are_a_slice_of_the_global_ones(ranks, split):
    head, x, y = problem()
    q = tilt_weights(ERM().loss(head(x), y).detach(), 2.0)
    torch.testing.assert_close(torch.cat([rank[f"{split}/tilt"] for rank in ranks]), q)
