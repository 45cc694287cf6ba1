import numpy as np
import pytest
from scipy.stats import binom

import sizes


@pytest.mark.parametrize("times", [5, 12, 60, 200])
@pytest.mark.parametrize("chance", [0.02, 0.05, 0.5])
def test_chance_seldom_breaks_a_bound_and_one_event_fewer_would_not_do(times, chance):
    top = sizes.most(times, chance)
    assert binom.sf(top, times, chance) <= sizes.ALARM
    assert top == 0 or binom.sf(top - 1, times, chance) > sizes.ALARM
    assert sizes.least(times, 1 - chance) == times - top


def test_a_bound_on_squares_comes_close_to_the_variance():
    assert sizes.most_square(10) > sizes.most_square(100) > sizes.most_square(10_000) > 1
    assert sizes.most_square(10_000) < 1.05
    errors = np.random.default_rng(0).normal(size=400)
    assert np.mean(errors**2) < sizes.most_square(400) < np.mean((errors / 0.8) ** 2)


@pytest.mark.parametrize(("value", "expected"), [("", 2), ("1", 3)])
def test_the_size_is_the_runs(value, expected, monkeypatch):
    monkeypatch.setenv(sizes.VARIABLE, value)
    assert sizes.at_size(2, 3) == expected
