"""The sample is uniform, and the same whatever the batches, the order and the shards."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calmoe.auditing.streaming.sample import Draw, keys, smallest
from strategies import seeds
from streaming_tables import part, random_predictions

ROWS = 200


def drawn(predictions, edges, most, seed):
    draw = Draw(most, len(predictions), seed)
    for first, last in pairwise(edges):
        draw.add(first, part(predictions, first, last))
    return draw.sample()


@given(seeds, st.lists(st.integers(1, ROWS - 1), min_size=1, max_size=8, unique=True), st.randoms())
def test_neither_batches_nor_shards_change_it(seed, cuts, random):
    predictions, most = random_predictions(0, ROWS), 1 + seed % (ROWS + 50)
    edges = [0, *sorted(cuts), ROWS]
    once = drawn(predictions, [0, ROWS], most, seed)
    batches = drawn(predictions, edges, most, seed)
    shards = [drawn(predictions, [a, b], most, seed) for a, b in pairwise(edges)]
    random.shuffle(shards)
    shards = [shard for shard in shards if shard is not None]
    for other in (batches, smallest(shards, most, seed)):
        np.testing.assert_array_equal(other.numbers, once.numbers)
        assert other.predictions.output.log_probs.equal(once.predictions.output.log_probs)
        np.testing.assert_array_equal(other.predictions.groups["name"], once.predictions.groups["name"])
    assert len(once.numbers) == min(most, ROWS)
    assert once.predictions.groups["name"].tolist() == [f"row {i}" for i in once.numbers]


def test_a_table_far_larger_than_the_sample_leaves_little_more_than_the_sample():
    predictions, draw = random_predictions(0, 1000), Draw(100, 200_000, seed=3)
    for first in range(0, 200_000, 1000):
        draw.add(first, predictions)
    assert 100 <= sum(len(each.numbers) for each in draw.parts) <= 100 + 12 * 10 + 10
    expected = np.sort(np.argsort(keys(np.arange(200_000), 3))[:100])
    np.testing.assert_array_equal(draw.sample().numbers, expected)


def test_keys_are_one_to_one_and_even():
    numbers = np.arange(100_000)
    for seed in (0, 1, 2**32 - 1):
        drawn = keys(numbers, seed)
        assert len(np.unique(drawn)) == len(numbers)
        shares = np.bincount((drawn >> np.uint64(60)).astype(int), minlength=16) / len(numbers)
        assert np.abs(shares - 1 / 16).max() < 5 * (1 / 16 / len(numbers)) ** 0.5  # five standard errors
    assert np.corrcoef(keys(numbers, 0).astype(float), keys(numbers, 1).astype(float))[0, 1] < 0.02
