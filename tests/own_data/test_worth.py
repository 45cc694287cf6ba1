"""Whether a model is better than the best baseline: the numbers, and the words that follow from them."""

import numpy as np
import pytest
from scipy import stats

from calmoe.own_data.baselines import BASE_RATE
from calmoe.own_data.parts import HELD_OUT, SHIFT
from calmoe.own_data.scores import Row, score_grids
from calmoe.own_data.worth import Worth, worth_sentences
from calmoe.predictions import Predictions


def rows_of(name, logits, labels, parts=(HELD_OUT,), ours=False):
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    predictions = Predictions.from_probs(probs, labels=labels)
    return Row.of(name, dict.fromkeys(parts, predictions), ours=ours)


def drawn(classes, rows=2000, parts=(HELD_OUT,)):
    """A sharp row that mostly knows, one that knows half as much, and one that knows nothing."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(rows, classes)) * 3
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return [
        rows_of("Sharp model", logits, labels, parts, ours=True),
        rows_of("Logistic regression", logits / 2, labels, parts),
        rows_of(BASE_RATE, logits * 0, labels, parts),
    ]


@pytest.mark.parametrize("classes", [2, 5])
def test_the_gain_is_that_of_a_paired_t_test_over_rows(classes):
    ours, *baselines = drawn(classes)
    worth = Worth.of(ours, baselines)
    losses = [
        -np.log(row.parts[HELD_OUT].output.probs.numpy()[np.arange(2000), row.parts[HELD_OUT].labels.numpy()])
        for row in (ours, baselines[0])
    ]
    test = stats.ttest_rel(losses[1], losses[0])
    low, high = test.confidence_interval(0.975)  # two baselines
    assert worth.baseline == "Logistic regression"
    assert worth.rows == 2000
    assert worth.gain == pytest.approx((losses[1] - losses[0]).mean())
    assert (worth.low, worth.high) == pytest.approx((low, high))
    assert worth.low > 0


@pytest.mark.parametrize("gap", [0.5, float("inf")])
def test_few_rows_give_no_verdict(gap):
    few, many = (str(Worth("Logistic regression", rows, -gap, -gap, -gap)) for rows in (6, 600))
    assert few.startswith("not distinguishable from logistic regression on these 6 rows")
    assert many.startswith("worse than")


def test_better_worse_and_neither():
    sharp, half, nothing = drawn(2)
    better, worse = Worth.of(sharp, [half, nothing]), Worth.of(half, [sharp, nothing])
    assert str(better).startswith("better than logistic regression: ")
    assert str(worse).startswith("worse than sharp model: ")
    assert (worse.gain, worse.low, worse.high) == pytest.approx((-better.gain, -better.high, -better.low))
    assert "use that instead" in str(worse)
    assert "use that instead" not in str(better)
    same = Worth.of(sharp, [sharp])
    assert (same.gain, same.low, same.high) == (0, 0, 0)
    assert "not distinguishable from sharp model on these 2,000 rows" in str(same)
    assert str(Worth.of(half, [nothing])).startswith("better than the base rate: ")


def test_an_interval_around_zero_names_its_sides():
    lower, higher = (
        str(Worth("Gradient boosting", 600, *ends)) for ends in ((3e-3, -9e-3, 15e-3), (-3e-3, -15e-3, 9e-3))
    )
    assert lower.endswith("log loss 0.003 lower (0.015 lower to 0.009 higher)")
    assert higher.endswith("log loss 0.003 higher (0.009 lower to 0.015 higher)")


def test_a_difference_near_zero_shows_on_which_side_it_lies():
    assert "0.00030 [0.00002, 0.00060]" in str(Worth("Gradient boosting", 10**6, 3e-4, 2e-5, 6e-4))


def test_one_row_tells_nothing():
    sharp, half, _ = drawn(2, rows=1)
    assert str(Worth.of(sharp, [half])) == "not distinguishable from logistic regression on 1 row"


def test_the_shift_has_a_verdict_of_its_own():
    assert len(worth_sentences(*_split(drawn(2)))) == 1
    told = worth_sentences(*_split(drawn(2, parts=(HELD_OUT, SHIFT))))
    assert len(told) == 2
    assert "on the shift" in told[1]


def _split(rows):
    return rows[0], rows[1:]


def test_every_row_of_the_table_has_an_ece_and_how_large_it_may_be():
    (grid,) = score_grids(drawn(2))
    names = [name for heading in grid.headings for name in heading.names]
    for row in grid.rows:
        ece, most = (row[names.index(name)] for name in ("ece", "ece_high"))
        assert names.index("ece_high") < names.index("ece")  # an estimate of nothing is no proof
        assert 0 <= ece.values[0] < most.values[0]
        assert [ece.text, most.text] == [f"{each.values[0]:.3f}" for each in (ece, most)]
