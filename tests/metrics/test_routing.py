"""Entropy and disagreement of a mixture's rows, against loops over experts."""

import math

import numpy as np
import pytest

from calmoe.metrics.routing import expert_variance, routing_entropy


@pytest.fixture
def mixture():
    random = np.random.default_rng(0)
    return random.dirichlet(np.ones(4), 50), random.dirichlet(np.ones(3), (50, 4))


def test_entropy_is_a_share_of_its_largest_value(mixture):
    routing, _ = mixture
    for row, entropy in zip(routing, routing_entropy(routing), strict=True):
        assert entropy == pytest.approx(-sum(r * math.log(r) for r in row) / math.log(4))
    assert routing_entropy(np.full((1, 4), 0.25))[0] == pytest.approx(1)
    assert routing_entropy(np.eye(4)).tolist() == [0, 0, 0, 0]
    assert routing_entropy(np.ones((2, 1))).tolist() == [0, 0]


def test_variance_of_vectors_and_of_one_number_each(mixture):
    routing, experts = mixture
    for i, variance in enumerate(expert_variance(routing, experts)):
        mean = sum(r * f for r, f in zip(routing[i], experts[i], strict=True))
        apart = (r * ((f - mean) ** 2).sum() for r, f in zip(routing[i], experts[i], strict=True))
        assert variance == pytest.approx(sum(apart))
    one = experts[:, :, 0]
    assert expert_variance(routing, one) == pytest.approx(expert_variance(routing, one[:, :, None]))
    assert expert_variance(routing, np.ones((50, 4, 3))) == pytest.approx(np.zeros(50), abs=1e-15)
