"""scikit-learn's own checks, all of them, with no expected failures."""

import warnings

import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator

import calmoe
from models.made_tables import quick_mixture, quick_network
from sizes import at_size

SMALL = {
    "MixtureOfModels": lambda: quick_mixture(cv=2, random_state=None),
    "CalibratedMoEClassifier": lambda: quick_network(
        hidden=(16,), max_epochs=20, batch_size=32, random_state=None
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_check_estimator(name):
    """Small models, and at the full size those that people get by default too."""
    models = at_size([SMALL[name]()], [SMALL[name](), getattr(calmoe, name)()])
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkipTestWarning)  # array API needs a variable of SciPy's
            results = check_estimator(model)
        skipped = [result["check_name"] for result in results if result["status"] == "skipped"]
        assert set(skipped) <= {"check_array_api_input"}
        assert not [result for result in results if result["status"] == "xfail"]
