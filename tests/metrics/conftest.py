"""Random predictions for the tests of metrics."""

import numpy as np
import pytest


def _draw(seed, rows=200, classes=5):
    """Dirichlet predictions, and labels that follow them half of the time."""
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.full(classes, 0.5), rows)
    followed = (probs.cumsum(1) > generator.random((rows, 1))).argmax(1)
    return probs, np.where(generator.random(rows) < 0.5, followed, generator.integers(classes, size=rows))


@pytest.fixture
def draw():
    return _draw


@pytest.fixture
def sample():
    return _draw(0)
