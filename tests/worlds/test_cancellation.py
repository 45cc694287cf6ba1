"""Worlds by what their cancellation follows: what each part of a configuration shows is exact."""

import numpy as np
import pytest

from calmoe import worlds
from calmoe.worlds import cancellation
from calmoe.worlds.cancellation import by_class, by_routing, by_vectors, clean

PAIRED = {"class": by_class, "vectors": by_vectors, "routing": by_routing}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PAIRED)
def test_pairs_cancel_at_every_level(name, seed):
    world = PAIRED[name](seed, delta=0.08)
    assert world.probability.sum() == pytest.approx(1)
    assert np.allclose(world.routing.sum(axis=1), 1)
    assert np.allclose(world.experts.sum(axis=2), 1)
    assert world.experts.min() >= 0
    assert np.allclose(world.truth.sum(axis=1), 1)
    assert world.truth.min() >= 0
    assert world.hidden == pytest.approx(0.08)
    assert world.level_set_error == pytest.approx(0, abs=1e-9)
    assert np.allclose(world.confidence[::2], world.confidence[1::2])


@pytest.mark.parametrize("seed", range(3))
def test_a_class_world_differs_in_the_predicted_class_alone(seed):
    world = by_class(seed)
    assert np.array_equal(world.routing[::2], world.routing[1::2])
    predicted = world.mixture.argmax(axis=1)
    up, down = (set(predicted[start::2]) for start in (0, 1))
    assert up.isdisjoint(down)
    for vectors in (world.mixture, world.experts):  # the same numbers in another order
        assert np.allclose(np.sort(vectors[::2], axis=-1), np.sort(vectors[1::2], axis=-1))
    assert world.without_routing == pytest.approx(0.1)
    assert world.routing_adds == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_vector_world_is_blind_to_all_but_the_experts_other_classes(seed):
    world = by_vectors(seed)
    assert np.allclose(world.mixture[::2], world.mixture[1::2])
    assert np.array_equal(world.routing[::2], world.routing[1::2])
    rows, predicted = np.arange(len(world.routing)), world.mixture.argmax(axis=1)
    sure = world.experts[rows, :, predicted]
    assert np.allclose(sure[::2], sure[1::2])
    assert not np.allclose(world.experts[::2], world.experts[1::2])
    assert world.without_routing == pytest.approx(0, abs=1e-9)
    assert world.routing_adds == pytest.approx(0.1)


@pytest.mark.parametrize("seed", range(3))
def test_a_routing_world_has_the_same_vectors_by_other_experts(seed):
    world = by_routing(seed)
    assert np.allclose(world.mixture[::2], world.mixture[1::2])
    assert (world.region[::2] != world.region[1::2]).all()
    assert world.without_routing == pytest.approx(0, abs=1e-9)
    assert world.routing_adds == pytest.approx(0.1)


@pytest.mark.parametrize("classes", [3, 10, 100])
def test_clean_worlds_are_calibrated_in_every_configuration(classes):
    world = clean(0, classes=classes)
    assert world.truth.shape[1] == classes
    assert np.abs(world.gap).max() < 1e-12
    assert world.confidence.min() < 0.5 < 0.8 < world.confidence.max()


def test_what_vector_and_routing_show_bounds_what_is_hidden():
    """E|m(V) − f| ≤ E|m(S) − f| ≤ E|m(V) − f| + E|m(S) − m(V)|: Jensen, triangle."""
    for make in {**cancellation.WORLDS, **worlds.WORLDS, **worlds.multiclass.WORLDS}.values():
        world = make(1)
        assert world.without_routing <= world.hidden + 1e-12
        assert world.hidden <= world.without_routing + world.routing_adds + 1e-12
        best = np.sign(world.gap - world.visible_gap)
        assert world.moments(best) - world.probability @ (world.visible_gap * best) == pytest.approx(
            world.routing_adds
        )
