"""Mixes of rows: cells give the numbers that rows give, and the search finds what is bad."""

from dataclasses import replace

import numpy as np
import pytest

from calmoe import worlds
from calmoe.auditing import Configurations
from calmoe.auditing.sections.explorer import BUDGETS, LIMIT, MOST_CELLS, MOST_COLUMNS, STEP, explorer
from calmoe.metrics import accuracy, ece
from calmoe.predictions import Predictions
from strategies import divergence


def sample(n=3000, seed=0):
    predictions = worlds.cancelling(seed, experts=4, delta=0.15).sample(n, seed=seed)
    random = np.random.default_rng(99)
    columns = {"site": random.choice(["a", "b", "c"], n), "hard": random.random(n) < 0.2}
    return replace(predictions, groups=columns)


@pytest.fixture(scope="module")
def given():
    return sample()


@pytest.fixture(scope="module")
def found(given):
    return explorer(Configurations.of(given), given)


def row_weights(given, found, settings):
    """The weight of each row, from its own levels and not from cells."""
    configurations = Configurations.of(given)
    logs = np.zeros(len(given))
    for factor, tilts in zip(found.factors, settings, strict=True):
        if factor.title == "Leading expert":
            level = [factor.levels.index(f"expert {k}") for k in configurations.leading]
        elif factor.title == "site":
            level = [factor.levels.index(value) for value in given.groups["site"]]
        elif factor.title == "hard":
            level = [factor.levels.index("hard" if hard else "not hard") for hard in given.groups["hard"]]
        else:
            assert not any(tilts), factor
            continue
        logs += np.asarray(tilts)[level]
    return np.exp(logs)


def settings_of(found, chosen):
    return tuple(tuple(chosen.get((f.title, level), 0.0) for level in f.levels) for f in found.factors)


def test_cells_give_the_numbers_of_the_rows(given, found):
    chosen = {("Leading expert", "expert 2"): 1.4, ("site", "b"): -0.7, ("hard", "hard"): 0.9}
    settings = settings_of(found, chosen)
    weights = row_weights(given, found, settings)
    mix, probs = found.cells.mix(settings), given.output.probs
    assert mix.ece == pytest.approx(ece(probs, given.labels, weights), abs=1e-7)
    assert mix.accuracy == pytest.approx(accuracy(probs, given.labels, weights), abs=1e-9)
    assert mix.kl == pytest.approx(divergence(weights / weights.mean()), abs=1e-9)
    share = weights[given.groups["site"] == "b"].sum() / weights.sum()
    at = [f.title for f in found.factors].index("site")
    assert mix.shares[at][found.factors[at].levels.index("b")] == pytest.approx(share, abs=1e-9)
    still = found.cells.mix()
    assert still.ece == pytest.approx(ece(probs, given.labels), abs=1e-7)
    assert (still.kl, still.reach) == (0.0, 1.0)


def test_a_mix_beyond_the_budget_goes_as_far_as_it_reaches(found):
    far = settings_of(found, {("Leading expert", "expert 1"): 3.0})
    for budget in BUDGETS:
        mix = found.cells.mix(far, budget)
        assert mix.kl <= budget + 1e-12
        assert (mix.reach < 1) == (found.cells.mix(far).kl > budget)
        if mix.reach < 1:
            assert mix.kl == pytest.approx(budget, rel=1e-6)


def test_the_worst_case_is_within_its_budget_and_grows_with_it(found):
    errors = [found.cells.mix(w, b).ece for w, b in zip(found.worst, found.budgets, strict=True)]
    assert errors == sorted(errors)
    assert errors[BUDGETS.index(0.1)] > found.cells.mix().ece + 0.02
    for settings, budget in zip(found.worst, found.budgets, strict=True):
        assert found.cells.mix(settings, budget).kl <= budget + 1e-12
        for value in np.concatenate(settings):
            assert abs(value) <= LIMIT
            assert round(value / STEP) * STEP == pytest.approx(value, abs=1e-9)


def test_the_worst_case_beats_mixes_taken_at_random(found):
    random, budget = np.random.default_rng(0), 0.1
    worst = found.cells.mix(found.worst[BUDGETS.index(budget)], budget).ece
    for _ in range(50):
        tried = tuple(tuple(random.uniform(-3, 3, size)) for size in found.cells.levels)
        assert found.cells.mix(tried, budget).ece <= worst


def test_a_mix_says_what_there_is_more_of(found):
    more = settings_of(found, {("Leading expert", "expert 2"): 2.0})
    said = found.describe(found.cells.mix(more))
    assert said.startswith("more rows ")
    assert "on which expert 2 leads" in said
    assert found.describe(found.cells.mix()) == "the rows as they are"


@pytest.mark.usefixtures("brief")
def test_many_classes_rows_and_groups_stay_few_cells():
    random, n, c, k = np.random.default_rng(0), 20_000, 40, 8
    experts = random.dirichlet(np.full(c, 0.3), (n, k)).astype(np.float32)
    routing = random.dirichlet(np.ones(k), n).astype(np.float32)
    probs = np.einsum("nk,nkc->nc", routing, experts)
    columns = {f"column {i}": random.choice([f"v{j}" for j in range(25)], n) for i in range(4)}
    given = Predictions.from_probs(
        probs, random.integers(0, c, n), routing=routing, expert_probs=experts, groups=columns
    )
    found = explorer(Configurations.of(given), given)
    assert len(found.cells.count) <= MOST_CELLS
    assert found.cells.count.sum() == n
    titles = [factor.title for factor in found.factors]
    assert len(titles) + len(found.left_out) == 3 + MOST_COLUMNS + 1
    assert {"Confidence", "Leading expert", "Do the experts agree?"} <= {*titles}
    assert not {*titles} & {*found.left_out}
    assert found.cells.mix().ece == pytest.approx(ece(given.output.probs, given.labels), abs=1e-6)


def test_one_expert_and_one_confidence_have_nothing_to_mix():
    given = Predictions.from_probs(np.tile([[0.8, 0.2]], (100, 1)), np.arange(100) % 2)
    found = explorer(Configurations.of(given), given)
    assert found.factors == ()
    assert found.cells.mix().accuracy == 0.5
