"""Several splits make one answer that no dependence between them can fool."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from calmoe import worlds
from calmoe.auditing import Configurations, Estimate, hidden
from calmoe.auditing.statistics.estimates import at_least
from calmoe.auditing.statistics.sequential import Lessons
from calmoe.auditing.statistics.splits import (
    FEWER,
    LARGE,
    MEDIUM,
    SOME,
    SPLITS,
    decided,
    decided_p_value,
    how_many,
    level_each,
    middle,
    one_bound,
    one_p_value,
    price,
    seeds,
)
from calmoe.errors import InputError
from sizes import at_size

odd = st.sampled_from([1, 3, 5, 7, 9])


@given(odd, st.floats(0.001, 0.5))
def test_the_price_is_that_of_the_worst_dependence(splits, alpha):
    """The worst joint law: with chance t, (R + 1)/2 of the p-values, chosen at random, are uniform below a.

    Then each is below a with chance t (R + 1)/(2R), which may not exceed a: t ≤ c a, and c a is attained.
    """
    a = alpha / price(splits)
    low = (splits + 1) // 2
    chance = a * splits / low  # of the bad event, so that each p-value is below a with chance a
    assert chance == pytest.approx(alpha)
    bad = np.concatenate([np.full(low, a), np.ones(splits - low)])
    assert one_p_value(list(bad)) <= alpha * (1 + 1e-9)
    assert one_p_value(list(bad[::-1])) == one_p_value(list(bad))
    good = np.concatenate([np.full(low - 1, a), np.ones(splits - low + 1)])
    assert one_p_value(list(good)) == 1.0


@given(st.lists(st.floats(-1, 1), min_size=5, max_size=5), st.permutations(range(5)))
def test_the_order_of_splits_is_nothing(values, order):
    bounds = [at_least(value, 0.1) for value in values]
    assert one_bound(bounds) == one_bound([bounds[i] for i in order])
    assert one_bound(bounds).low == np.median([bound.low for bound in bounds])
    assert values[middle(values)] == np.median(values)


def test_one_split_is_what_it_was():
    assert price(1) == 1
    assert one_p_value([0.03]) == 0.03
    assert level_each(0.95, 1) == pytest.approx(0.95)
    bound = at_least(0.1, 0.02)
    assert one_bound([bound]) == bound


def test_equal_splits_still_pay():
    """If all splits agree, p is c times what each says, and a bound lies lower than a single one's."""
    assert one_p_value([0.01] * 5) == pytest.approx(0.01 * 5 / 3)
    each = level_each(0.95, 5)
    assert one_bound([at_least(0.1, 0.02, each)] * 5) == Estimate(
        0.1, pytest.approx(0.1 - 0.02 * ndtri(0.97)), float("inf"), 0.02
    )


def test_splits_are_odd_and_fewer_for_many_rows():
    assert SPLITS % 2 == SOME % 2 == FEWER % 2 == 1
    assert how_many(1000) == how_many(MEDIUM) == SPLITS
    assert how_many(MEDIUM + 1) == how_many(LARGE) == SOME
    assert how_many(LARGE + 1) == FEWER
    chosen = seeds(7, 5)
    assert chosen[0] == 7
    assert len({*chosen, *seeds(8, 5)}) == 10
    seen = Configurations.of(worlds.cancelling(0).sample(400, seed=0))
    for splits in (0, 2, -1):
        with pytest.raises(InputError, match="odd"):
            hidden(seen, splits=splits)


@pytest.mark.usefixtures("hasty")
def test_hidden_is_the_middle_of_its_splits():
    seen = Configurations.of(worlds.cancelling(0, delta=0.05).sample(1500, seed=0))
    alone = [hidden(seen, seed=seed, splits=1) for seed in seeds(3, 5)]
    found = hidden(seen, Lessons(seen, 3, splits=5), seed=3)
    assert found == hidden(seen, seed=3, splits=5)
    assert found.by_split == tuple(each.p_hidden for each in alone)
    assert found.p_hidden == one_p_value(found.by_split)
    assert found.witness.value == np.median([each.witness.value for each in alone])
    assert found.witness.low < np.median([each.witness.low for each in alone])
    chosen = alone[middle(found.by_split)]
    assert [rule.text for rule in found.rules] == [rule.text for rule in chosen.rules]
    assert [rule.gap.value for rule in found.rules] == [rule.gap.value for rule in chosen.rules]
    assert all(
        wide.gap.low < rule.gap.low for wide, rule in zip(found.rules, chosen.rules, strict=True)
    )  # they hold whichever split is shown


@given(odd, st.floats(-1, 1), st.floats(0.01, 1))
def test_equal_splits_are_decided_and_scattered_ones_are_not(splits, value, scatter):
    assert decided([value] * splits, value)
    if splits > 1:
        around = value + scatter * np.linspace(-1, 1, splits)
        assert not decided(list(around), value)
        assert decided(list(around), value + 10 * scatter)
        assert decided(list(around), value - 10 * scatter)


@pytest.mark.parametrize("splits", [5, 7])
def test_two_seeds_that_are_decided_agree(splits):
    """Splits that scatter about the threshold itself: hardly ever are two seeds sure of opposite things."""
    random, opposite, pairs = np.random.default_rng(0), 0, at_size(2000, 20_000)
    for _ in range(pairs):
        first, second = random.normal(size=(2, splits))
        if decided(list(first), 0.0) and decided(list(second), 0.0):
            opposite += (np.median(first) > 0) != (np.median(second) > 0)
    assert opposite <= 0.01 * pairs


def test_p_values_are_decided_on_the_normal_scale():
    critical = 0.05 / price(7)
    assert decided_p_value([critical / 1000 * (1 + i / 10) for i in range(7)])
    assert decided_p_value([0.4 + i / 20 for i in range(7)])
    assert not decided_p_value([critical * 4.0 ** (i - 3) for i in range(7)])


def test_every_split_is_learned_once():
    seen = Configurations.of(worlds.cancelling(0).sample(400, seed=0))
    lessons = Lessons(seen, seed=3, splits=3)
    assert len(lessons) == 3
    assert lessons[1] is lessons[1]
    assert [each.rows[0] for each in lessons] == [lessons[r].rows[0] for r in range(3)]
    assert not np.array_equal(lessons[0].rows, lessons[1].rows)
    with pytest.raises(IndexError):
        lessons[3]
