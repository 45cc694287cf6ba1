"""Random inputs for property tests: losses and mixtures, with the awkward ones among them; and the KL."""

import numpy as np
import torch
from hypothesis import strategies as st

from calmoe.mixture import MixtureOutput, combine

seeds = st.integers(0, 2**32 - 1)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@st.composite
def losses(draw, min_size: int = 1, max_size: int = 40, largest: float = 20.0) -> torch.Tensor:
    """Loss values ≥ 0 in float64: spread out, tied, or all equal."""
    values = st.floats(0, largest, allow_nan=False, allow_subnormal=False)
    kind = draw(st.sampled_from(["spread", "tied", "equal"]))
    if kind == "equal":
        return torch.full((draw(st.integers(min_size, max_size)),), draw(values), dtype=torch.float64)
    if kind == "tied":
        values = st.sampled_from(draw(st.lists(values, min_size=1, max_size=3)))
    return torch.tensor(draw(st.lists(values, min_size=min_size, max_size=max_size)), dtype=torch.float64)


def random_output(
    seed: int, n: int = 32, classes: int = 5, experts: int = 4, scale: float = 2.0, dtype=torch.float64
) -> MixtureOutput:
    source = generator(seed)
    routing = scale * torch.randn(n, experts, generator=source, dtype=dtype)
    logits = scale * torch.randn(n, experts, classes, generator=source, dtype=dtype)
    return combine(routing.log_softmax(1), logits.log_softmax(2))


def divergence(density: np.ndarray, probability: np.ndarray | None = None) -> float:
    """KL = E[a log a] of a density a of mean 1, over rows of equal or of these probabilities."""
    logs = np.log(np.where(density > 0, density, 1.0))
    return float(np.mean(density * logs) if probability is None else (probability * density * logs).sum())
