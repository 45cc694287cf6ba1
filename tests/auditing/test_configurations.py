import numpy as np
import pytest
import torch

from calmoe import worlds
from calmoe.auditing import Configurations
from calmoe.defaults import BINS
from calmoe.errors import InputError
from calmoe.metrics import ece
from calmoe.predictions import Predictions
from strategies import generator, random_output


def predictions(n=40, classes=5, experts=3, seed=0):
    labels = torch.randint(classes, (n,), generator=generator(seed))
    return Predictions(output=random_output(seed, n, classes, experts), labels=labels)


def test_the_event_is_that_the_mixtures_top_class_is_right():
    given = predictions()
    found = Configurations.of(given)
    top, rows = given.output.probs.argmax(1), torch.arange(40)
    assert np.allclose(found.confidence, given.output.probs[rows, top])
    assert np.allclose(found.experts, given.output.expert_probs[rows, :, top], atol=1e-6)
    assert (found.outcome == (top == given.labels).numpy()).all()
    # f = Σ r_k f_k for the event as well
    assert np.allclose((found.routing * found.experts).sum(axis=1), found.confidence, atol=1e-6)
    own = given.output.expert_probs.max(2)
    assert np.allclose(found.own_confidence, own.values, atol=1e-6)
    assert (found.own_outcome == (own.indices == given.labels[:, None]).numpy()).all()


def test_the_event_may_be_one_class():
    given = predictions(classes=2)
    found = Configurations.of(given, of=1)
    assert np.allclose(found.confidence, given.output.probs[:, 1])
    assert (found.outcome == given.labels.numpy()).all()
    assert (found.own_outcome == given.labels.numpy()[:, None].astype(bool)).all()
    with pytest.raises(InputError, match=r"0\.\.1, got 2"):
        Configurations.of(given, of=2)


def test_its_bins_are_those_of_the_metrics():
    given = predictions(n=500)
    found = Configurations.of(given)
    sums = np.bincount(found.bins(BINS), found.residual)
    assert np.abs(sums).sum() / 500 == pytest.approx(ece(given.output.probs, given.labels))


def test_what_can_be_read_off():
    routing = np.array([[1.0, 0.0], [0.5, 0.5]])
    experts = np.array([[[0.8, 0.2], [0.4, 0.6]], [[0.9, 0.1], [0.5, 0.5]]])
    probs = (routing[:, :, None] * experts).sum(axis=1)
    found = Configurations.of(Predictions.from_probs(probs, routing=routing, expert_probs=experts))
    assert np.allclose(found.entropy, [0, 1])
    assert np.allclose(found.disagreement, [0, 0.2], atol=1e-6)
    assert np.allclose(found.dissent, [-0.2, 0.0], atol=1e-6)
    assert found.leading.tolist() == [0, 0]
    assert found.scalars().shape == (2, 8)
    assert found.features().numbers.shape == (2, 8)
    assert found.features().categories.tolist() == [[0, 0], [0, 0]]
    assert np.array_equal(found.features().table()[:, :8], found.scalars())
    with pytest.raises(InputError, match="carry no labels"):
        found.residual  # noqa: B018


def test_one_expert_has_no_entropy_and_no_disagreement():
    found = Configurations.of(Predictions.from_probs(np.array([[0.7, 0.3]] * 3), np.array([0, 0, 1])))
    assert (found.entropy == 0).all()
    assert np.allclose(found.disagreement, 0, atol=1e-6)
    assert np.isfinite(found.features().numbers).all()


def test_a_sampled_world_gives_back_its_configurations():
    world = worlds.calibrated_experts(1)
    given = world.sample(300, seed=0)
    drawn, found = given.groups["configuration"], Configurations.of(given)
    assert np.allclose(found.confidence, world.confidence[drawn])
    assert (found.bins(BINS) == world.bins()[drawn]).all()
    assert (found.leading == world.region[drawn]).all()


def test_features_hold_the_whole_configuration():
    given = predictions(n=300, classes=5, experts=3)
    found = Configurations.of(given)
    own, whole = found.own_features(), found.features()
    assert (own.categories[:, 0] == given.output.probs.argmax(1).numpy()).all()
    assert (whole.categories == np.stack([found.predicted, found.leading], axis=1)).all()
    probs = given.output.probs.double().numpy()
    for c in range(5):  # the mixture's vector stands in full
        assert any(np.allclose(column, probs[:, c], atol=1e-6) for column in own.numbers.T)
    apart = (given.output.expert_probs - given.output.probs[:, None]).abs().sum(2) / 2
    for k in range(3):
        for column in (apart[:, k], given.output.routing[:, k], given.output.expert_probs[:, k].max(1)[0]):
            assert any(np.allclose(column.numpy(), other, atol=1e-5) for other in whole.numbers.T)
    assert np.isfinite(whole.numbers).all()


def test_the_control_never_sees_router_or_experts():
    """The same mixture from other experts: the control's features are the same, the others are not."""
    world = worlds.cancellation.by_routing(0)
    one, other = (
        Configurations.of(
            Predictions.from_probs(
                world.mixture[part], routing=world.routing[part], expert_probs=world.experts[part]
            )
        )
        for part in (slice(0, None, 2), slice(1, None, 2))
    )
    assert np.allclose(one.own_features().numbers, other.own_features().numbers, atol=1e-6)
    assert np.array_equal(one.own_features().categories, other.own_features().categories)
    assert not np.allclose(one.features().numbers, other.features().numbers, atol=1e-3)


def test_many_classes_are_summarised():
    few, many = (Configurations.of(predictions(n=50, classes=c, experts=8)) for c in (20, 100))
    assert few.features().numbers.shape == many.features().numbers.shape
    assert many.features().numbers.shape[1] < 60


def test_two_classes_need_no_summary():
    found = Configurations.of(predictions(classes=2))
    assert found.vector.shape[1] == found.vectors.shape[1] == 0
    assert not found.confidence_is_all
    alone = Predictions.from_probs(np.array([[0.7, 0.3]] * 3))
    assert not Configurations.of(alone).confidence_is_all  # the predicted class may matter
    assert Configurations.of(alone, of=1).confidence_is_all
