"""Several ranks on digits against one process: five rules, 50 steps, batches that do not divide evenly.

In float32 two right runs differ. One process that sees the rows of each batch in another order says by how
much: `python -m benchmarks.ranks` has the numbers, and why they grow.
"""

import pytest
import torch

from benchmarks.ranks import RULES, STEPS, Case, Comparison, train_on_ranks
from ranks import on_processes
from sizes import at_size

EXACT = [Case(rule, dtype=torch.float64) for rule in RULES]
ROUNDED = [Case(rule, smooth=True, warm=True) for rule in RULES]  # without what makes rounding grow
GRADIENTS = [Case(rule, along=True) for rule in at_size(("tilted", "sharp"), RULES)]
CASES = [*EXACT, *ROUNDED, *GRADIENTS]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    return Comparison(CASES, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def shuffled(comparison):
    return comparison.shuffled(GRADIENTS, order=0)


@pytest.mark.slow
@pytest.mark.parametrize("size", at_size([2], [2, 4]))
def test_ranks_train_as_one_process_does(comparison, shuffled, size):
    on_processes(size, train_on_ranks, (size, str(comparison.folder), CASES))
    differences = comparison.ranks(size)
    assert max(differences[case] for case in EXACT) < 1e-9
    assert max(differences[case] for case in ROUNDED) < 1e-5
    for case in GRADIENTS:  # of each step, at one process's weights: ranks add no error of their own
        assert differences[case].shape == (STEPS,)
        assert differences[case].median() < 1.5 * shuffled[case].median() < 1e-6
