"""Tests are deterministic and leave the second core to the other worker."""

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("calmoe", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("calmoe")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
