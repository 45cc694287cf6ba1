"""Training over several processes: the weights that one process would have, whatever each rank's share."""

import pytest
import torch

from calmoe.errors import InputError
from calmoe.training.batch_norm import over_ranks
from calmoe.training.ranks import Ranks
from ranks import on_processes
from sizes import at_size
from training_ranks import GROUPS, train_on_ranks, trained_group

TOLERANCE = {"float64": 1e-9, "sharded": 1e-9, "float32": 1e-5}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "epochs"),
    [
        (2, at_size({"float64": 1, "sharded": 1}, {"float64": 5, "float32": 5, "sharded": 5})),
        *at_size([], [(4, {"float64": 5, "float32": 5, "sharded": 5})]),
    ],
    ids=lambda each: f"{each} ranks" if isinstance(each, int) else "",
)
def test_ranks_have_the_weights_of_one_process(tmp_path, size, epochs):
    """Also its moments, batch norm's statistics, losses and predictions, for every objective."""
    on_processes(size, train_on_ranks, (size, str(tmp_path), epochs))
    together = torch.load(tmp_path / f"{size}.pt", weights_only=True)
    for group, count in epochs.items():
        alone = trained_group(group, count)
        assert alone.keys() == {key for key in together if key.startswith(f"{group}/")}
        for name, value in alone.items():
            bound = 1e-6 if "predictions" in name else TOLERANCE[group]  # predictions are float32
            torch.testing.assert_close(together[name], value, rtol=bound, atol=bound)
        first, *others = GROUPS[group][2]
        assert all(differ(alone, group, case, first) for case in others)
    whole, resumed = together["whole"], together["resumed"]
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def differ(results, group, case, other):
    key = "model.head.experts.weight"
    return not torch.allclose(results[f"{group}/{case}/{key}"], results[f"{group}/{other}/{key}"], atol=1e-4)


@pytest.mark.parametrize("shape", [(9, 3), (9, 3, 4, 4)])
def test_batch_norm_of_each_rank_is_torchs_wherever_there_is_a_variance(shape):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    kind = torch.nn.BatchNorm1d if len(shape) == 2 else torch.nn.BatchNorm2d
    theirs, ours = kind(3), over_ranks(torch.nn.Sequential(kind(3)), group=None, synchronised=False)
    torch.testing.assert_close(ours(rows), theirs(rows))
    torch.testing.assert_close(ours[0].running_var, theirs.running_var)
    assert ours.state_dict().keys() == torch.nn.Sequential(kind(3)).state_dict().keys()
    assert ours(rows[:0]).shape == rows[:0].shape
    assert torch.equal(ours[0].running_var, theirs.running_var)  # no rows, no change
    theirs.eval()
    if len(shape) == 2:
        torch.testing.assert_close(ours(rows[:1]), theirs(rows[:1]))


def test_shares_are_all_rows_in_order():
    for size in range(1, 7):
        for rows in range(20):
            shares = [Ranks(rank, size).share(rows) for rank in range(size)]
            assert [row for share in shares for row in share] == list(range(rows))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_process_that_is_alone_talks_to_nobody():
    alone, gradients = Ranks(), [torch.ones(2)]
    alone.order("train")
    alone.meet()
    assert alone.leads
    assert alone.agree(True)
    assert not alone.everywhere(False)
    assert alone.average(gradients)[0] is gradients[0]
    with pytest.raises(InputError, match="too few for 4 ranks"):
        Ranks(0, 4).check_batch(3)
