"""What routing adds beyond the mixture's own vector: exact with an oracle, then honest with learning."""

import numpy as np
import pytest

from calmoe.auditing import Configurations
from calmoe.auditing.statistics.origin import added
from calmoe.worlds.cancellation import by_class, by_routing, by_vectors
from oracle import oracle, taught
from sizes import at_size, least, most


def known(world, rows, seed):
    """A sample, and who knows m(S) − f and m(V) − f of it."""
    sample = world.sample(rows, seed=seed)
    learned = oracle(world, sample)
    without = taught(world.visible_gap[sample.groups["configuration"]]).expected
    return Configurations.of(sample), learned, without


@pytest.mark.parametrize("make", [by_routing, by_vectors])
def test_who_knows_the_truth_finds_what_routing_adds(make):
    world = make(0)
    found = added(*known(world, 40_000, 0), 0.95)
    assert found.p_value < 1e-30
    assert found.bound.low <= world.routing_adds
    assert found.bound.value == pytest.approx(world.routing_adds, rel=0.1)


def test_a_function_of_the_vector_adds_nothing():
    """Whatever S and V have learned of it: here S knows twice what V does, and all of it is of V."""
    times, rejected, honest = at_size(40, 400), 0, 0
    for seed in range(times):
        world = by_class(seed)
        seen, learned, _ = known(world, 2000, 1000 + seed)
        found = added(seen, learned, learned.expected / 2, 0.95)
        rejected += found.p_value < 0.05
        honest += found.bound.low <= 0
    assert rejected <= most(times)
    assert honest >= least(times)


def test_one_expert_adds_nothing():
    world = by_class(0, experts=1)
    found = added(*known(world, 1000, 0), 0.95)
    assert found.p_value == 1
    assert found.bound.value == found.bound.low == 0


def test_labels_of_judged_rows_choose_nothing():
    """Other labels change the score alone: the witness is fixed before them."""
    world = by_routing(0)
    seen, learned, without = known(world, 2000, 0)
    flipped = Configurations(**{**vars(seen), "outcome": 1 - seen.outcome})
    once, again = (added(each, learned, without, 0.95).bound.value for each in (seen, flipped))
    centre = Configurations(**{**vars(seen), "outcome": np.full(len(seen), 0.5)})
    assert added(centre, learned, without, 0.95).bound.value == pytest.approx((once + again) / 2)
