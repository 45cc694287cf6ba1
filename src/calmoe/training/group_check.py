"""Before a plug-in's objective trains on several ranks: is it that of all rows, or of each rank's own?"""

import torch
from torch import Tensor

from calmoe.mixture import MixtureOutput, combine
from calmoe.objectives import Objective
from calmoe.training.ranks import Ranks

ROWS = 3  # a rank


def knows_its_group(objective: Objective, ranks: Ranks, device: torch.device) -> bool:
    """Whether its value and gradient are those of one process, on a few rows; all ranks ask at once.

    A rank's gradient is N times its part of the whole one: the mean over N ranks is then the whole.
    """
    rows = ROWS * ranks.size
    logits = torch.linspace(-2, 2, 4 * rows, device=device).view(2, 2, rows).permute(2, 0, 1)
    output = combine(logits.new_full((rows, 2), 0.5).log(), logits.log_softmax(2))
    labels = torch.arange(rows, device=device) % 2
    share = ranks.share(rows)
    own = slice(share.start, share.stop)
    part = MixtureOutput(*(values[own] for values in output))
    value, slopes = _value_and_slopes(objective, output, labels)
    try:
        here, own_slopes = _value_and_slopes(objective, part, labels[own], ranks.group)
    except TypeError:  # it takes no group
        return ranks.everywhere(False)
    same = torch.allclose(here, value, rtol=1e-3) and torch.allclose(
        own_slopes, ranks.size * slopes[own], rtol=1e-3, atol=1e-5
    )
    return ranks.everywhere(same)


def _value_and_slopes(
    objective: Objective, output: MixtureOutput, labels: Tensor, *group: object
) -> tuple[Tensor, Tensor]:
    """The objective, and its derivative by each row's loss."""
    losses = objective.loss(output, labels).detach().requires_grad_()
    value = objective.reduce(losses, output, labels, *group)
    return value.detach(), torch.autograd.grad(value, losses)[0]
