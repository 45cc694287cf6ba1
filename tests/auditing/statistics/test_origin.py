"""What routing adds beyond the mixture's own vector: exact with an oracle, then honest with learning."""

import numpy as np
import pytest

from calmoe.auditing import Configurations
from calmoe.auditing.configurations import Features
from calmoe.auditing.statistics.origin import ALIKE, added, alike
from calmoe.worlds import calibrated_experts
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


def test_where_each_vector_is_one_configuration_nothing_is_added():
    """Calibrated experts: m jumps from one vector to the next, and who knows S knows no more than V says."""
    for seed in range(at_size(5, 50)):
        seen, learned, _ = known(calibrated_experts(seed), 2000, 1000 + seed)
        found = added(seen, learned, np.zeros(len(learned.rows)), 0.95)
        assert found.bound.low <= 0
        assert found.p_value == 1


@pytest.mark.parametrize("make", [by_class, by_routing])
def test_rows_without_twins_are_compared_with_neighbours(make):
    """Every row has its own vector. What V says half of is not routing's; what it does not say is."""
    times, rejected, honest = at_size(6, 100), 0, 0
    for seed in range(times):
        world = make(seed, levels=5000)
        seen, learned, without = known(world, 2000, 1000 + seed)
        found = added(seen, learned, without / 2, 0.95)
        rejected += found.p_value < 0.05
        honest += found.bound.low <= world.routing_adds + 1e-9
    assert rejected <= most(times) if make is by_class else rejected >= least(times)
    assert honest >= least(times)


def test_twins_are_together_and_the_rest_among_neighbours():
    random = np.random.default_rng(0)
    vector, control = random.random((1000, 3)).astype(np.float32), random.normal(size=1000)
    vector[900:] = vector[np.arange(100) % 4]  # four sets of twins
    classes = np.zeros((1000, 1), int)
    strata = alike(Features(vector, classes), control, random.normal(size=1000))
    for first in range(4):
        twins = [first, *range(900 + first, 1000, 4)]
        assert set(np.flatnonzero(strata == strata[first])) == set(twins)
    lonely = np.bincount(strata)[np.unique(strata[4:900])]
    assert lonely.min() >= ALIKE
    assert lonely.max() < 2 * ALIKE
    classes[4:900, 0] = np.arange(4, 900)
    few = alike(Features(vector[870:], classes[870:]), control[870:], control[870:])
    assert np.bincount(few).max() < 2 * ALIKE + 30


def test_rows_without_twins_stay_alone_where_the_vector_is_discrete():
    vector = np.repeat(np.arange(20, dtype=np.float32), 5)[:, None]
    vector[:3] = [[50], [51], [52]]
    strata = alike(Features(vector, np.zeros((100, 1), int)), np.zeros(100), np.arange(100.0))
    assert np.bincount(strata)[strata[:3]].tolist() == [1, 1, 1]
    assert (np.bincount(strata)[strata[5:]] == 5).all()
