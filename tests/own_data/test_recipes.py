"""Which recipe `calmoe train` takes for a network: sharp steps, which look less far on texts."""

import pytest

from calmoe.methods import METHODS
from calmoe.own_data.recipe import method_of, patience, radius
from calmoe.own_data.settings import NetworkSettings


@pytest.mark.parametrize(
    ("settings", "texts", "name"),
    [
        (NetworkSettings(), False, "recommended"),
        (NetworkSettings(experts=4), False, "sharp"),
        (NetworkSettings(), True, "recommended"),
        (NetworkSettings(experts=4), True, "sharp"),
        (NetworkSettings(rho=0.0), True, "single"),
        (NetworkSettings(rho=0.0, experts=4), True, "vanilla"),
        (NetworkSettings(rho=0.0), False, "single"),
    ],
)
def test_data_choose_the_recipe_unless_the_user_does(settings, texts, name):
    method = method_of(settings, texts)
    assert method.name == name
    assert (method.gradient == "sharp") == (radius(settings, texts) > 0)


def test_steps_look_as_far_as_validation_chose():
    recommended = METHODS["recommended"]
    assert radius(NetworkSettings(), texts=False) == recommended.fixed_with("resnet18")["rho"] == 0.2
    assert radius(NetworkSettings(), texts=True) == recommended.fixed_with("encoder")["rho"] == 0.02
    assert radius(NetworkSettings(rho=0.05), texts=True) == 0.05


def test_an_encoder_that_is_only_adapted_stops_soon():
    assert patience(NetworkSettings(), 2e-5, texts=True) == 2
    assert (
        patience(NetworkSettings(), 1e-3, texts=True) == patience(NetworkSettings(), 1e-4, texts=False) == 10
    )
    assert patience(NetworkSettings(patience=7), 2e-5, texts=True) == 7
