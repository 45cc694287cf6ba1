"""CalibratedMoEClassifier: learns, stops, repeats itself, and counts weights as repetitions."""

import numpy as np
import pytest
from sklearn.base import clone

import calmoe
from calmoe.errors import InputError
from calmoe.models.calibrated_moe import _split
from calmoe.models.classifier import Rows
from calmoe.models.network import merge_equal
from models.made_tables import log_loss, mixed, noisy, quick_network


def test_it_learns_a_mixed_table_and_stops_early():
    table, y = mixed(300)
    model = quick_network(max_epochs=60, patience=2).fit(table, y)
    assert len(model.validation_log_loss_) < 60
    assert log_loss(model, table, y) < 0.6
    assert model.temperature_ > 0
    predictions = model.predictions(table, y, groups={"town": table["klasa"]})
    assert predictions.num_experts == 4
    assert predictions.output.log_probs.dtype.is_floating_point


def test_probabilities_are_double_and_rows_do_not_see_each_other():
    X, y = noisy(200, classes=3)
    model = quick_network().fit(X, y)
    probs = model.predict_proba(X)
    assert probs.dtype == np.float64
    one_by_one = np.concatenate([model.predict_proba(X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(one_by_one, probs[:20], atol=1e-12)


def test_the_same_seed_gives_the_same_bits_whatever_the_order_of_rows():
    X, y = noisy(150)
    order = np.random.default_rng(0).permutation(150)
    first = quick_network().fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(quick_network().fit(X[order], y[order]).predict_proba(X), first)
    assert (quick_network(random_state=1).fit(X, y).predict_proba(X) != first).any()


def test_weights_are_repetitions():
    X, y = noisy(100)
    weights = np.random.default_rng(0).integers(0, 3, 100)
    repeated = quick_network().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    weighted = quick_network().fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(weighted.predict_proba(X), repeated.predict_proba(X))


def test_equal_rows_become_one():
    merged = merge_equal(np.array([[1.0, -0.0], [1.0, 0.0], [2.0, 0.0]]), np.array([0, 0, 0]), np.ones(3))
    assert len(merged) == 2


@pytest.mark.parametrize("objective", ["entropic", "tilted", "filtered", "cvar"])
def test_every_objective_trains_with_weights(objective):
    X, y = noisy(120)
    model = quick_network(objective=objective, max_epochs=2).fit(X, y, sample_weight=1 + y)
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_few_rows_are_all_learned_from():
    X, y = noisy(30)
    model = quick_network().fit(X, y)
    assert (model.validation_log_loss_, model.temperature_) == ([], 1.0)


def test_the_global_generator_is_left_alone():
    import torch

    X, y = noisy(80)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    quick_network().fit(X, y)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_experts": 0}, "num_experts must be"),
        ({"hidden": ()}, "hidden must be"),
        ({"rho": -1}, "rho must be"),
        ({"average": 1.0}, "average must be"),
        ({"validation_fraction": 0.9}, "validation_fraction must be"),
        ({"max_epochs": 0}, "max_epochs must be"),
        ({"learning_rate": 0}, "learning_rate must be"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, said):
    X, y = noisy(80)
    with pytest.raises(InputError, match=said):
        quick_network(**settings).fit(X, y)


def test_public_and_cloneable():
    assert clone(calmoe.CalibratedMoEClassifier(num_experts=2)).num_experts == 2


def test_groups_are_whole_on_either_side_of_the_validation():
    random = np.random.default_rng(0)
    group = random.permutation(np.repeat(np.arange(60), 5))
    features = np.stack([group, random.normal(size=300)], axis=1)
    labels = random.integers(0, 2, 300)
    rows = Rows({}, labels, np.ones(300), np.arange(300))
    training, held_out = _split(features, rows, group, 0.2, seed=0)
    sides = [set(side.features[:, 0].int().tolist()) for side in (training, held_out)]
    assert sides[0] | sides[1] == set(range(60))
    assert not sides[0] & sides[1]
    assert len(sides[1]) == 12
    X = {"x": features[:, 1]}
    fitted = quick_network().fit(X, labels, groups=group)
    assert fitted.predict_proba(X).shape == (300, 2)
    with pytest.raises(InputError, match="one value a row"):
        quick_network().fit(X, labels, groups=group[:5])
