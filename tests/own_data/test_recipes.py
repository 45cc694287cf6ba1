"""Which recipe `calmoe train` takes for a network: images by sharp steps, texts by plain ones."""

import pytest

from calmoe.own_data.network_training import method_of, radius
from calmoe.own_data.spec import SHARP, NetworkSettings


@pytest.mark.parametrize(
    ("settings", "texts", "name"),
    [
        (NetworkSettings(), False, "recommended"),
        (NetworkSettings(experts=4), False, "sharp"),
        (NetworkSettings(), True, "single"),
        (NetworkSettings(experts=4), True, "vanilla"),
        (NetworkSettings(rho=0.05), True, "recommended"),
        (NetworkSettings(rho=0.0), False, "single"),
    ],
)
def test_data_choose_the_recipe_unless_the_user_does(settings, texts, name):
    method = method_of(settings, texts)
    assert method.name == name
    assert (method.gradient == "sharp") == (radius(settings, texts) > 0)


def test_images_look_as_far_as_validation_chose():
    assert radius(NetworkSettings(), texts=False) == SHARP == 0.2
