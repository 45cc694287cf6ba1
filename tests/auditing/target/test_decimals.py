"""Files of different decimals: found in what a reader makes of them, and no reason to tell files apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calmoe import read_predictions
from calmoe.auditing import predict_target
from calmoe.auditing.target.decimals import _some, decimals_of, written_alike
from calmoe.formats.rounding import renormalised, without_zeros
from calmoe.mixture import combine
from calmoe.predictions import Predictions
from calmoe.worlds import WORLDS
from sizes import at_size


def soft(random, rows, classes, scale, shift=0.0):
    logits = random.normal(0, scale, (rows, classes))
    logits[:, 0] += shift
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def read(folder, name, probs, decimals=None, labels=None):
    """What a reader makes of a CSV file."""
    columns = [f"prob_{number}" for number in range(probs.shape[1])]
    told = [f"{{:.{decimals}f}}".format if decimals is not None else repr] * probs.shape[1]
    lines = [[tell(float(value)) for tell, value in zip(told, row, strict=True)] for row in probs]
    if labels is not None:
        columns, lines = [*columns, "label"], [[*line, str(y)] for line, y in zip(lines, labels, strict=True)]
    (folder / name).write_text("\n".join(map(",".join, [columns, *lines])) + "\n")
    return read_predictions(folder / name)


def largest_difference(one, other):
    return float((one.output.probs - other.output.probs).abs().max())


@settings(deadline=None, max_examples=40)
@given(
    st.integers(2, 12), st.sampled_from([2, 3, 4, 5]), st.floats(0.5, 6), st.booleans(), st.integers(0, 999)
)
def test_decimals_are_found_though_rows_sum_to_one_again(classes, decimals, scale, float32, seed):
    probs = torch.from_numpy(soft(np.random.default_rng(seed), 300, classes, scale))
    assert decimals_of(probs) is None
    rounded = probs.round(decimals=decimals)
    again = renormalised(rounded)
    probs = rounded if again is None else without_zeros(again[0], decimals)
    if float32:
        probs = probs.log().float().double().exp()
    assert decimals_of(probs) == decimals


@pytest.mark.usefixtures(at_size("hasty", "brief"))
@pytest.mark.parametrize(("classes", "scale", "decimals"), [(2, 1.5, 2), (2, 6, 3), (3, 2, 2), (10, 3, 3)])
def test_rounding_does_not_tell_files_apart(tmp_path, classes, scale, decimals):
    """Nor does it hide a shift: what is found is what is found in files of full precision."""
    random = np.random.default_rng(0)
    source = soft(random, 2000, classes, scale)
    elsewhere = soft(random, 2000, classes, scale, shift=scale / 2)
    labels = (random.random((2000, 1)) > source.cumsum(axis=1)).sum(axis=1).clip(0, classes - 1)
    known = read(tmp_path, "source.csv", source, labels=labels)
    fine, coarse = (
        predict_target(known, read(tmp_path, f"{each}.csv", elsewhere, each)) for each in (None, decimals)
    )
    assert coarse.verdict is None
    assert fine.ratio.auc.low > 0.5
    assert coarse.ratio.auc.value == pytest.approx(fine.ratio.auc.value, abs=0.01)
    assert coarse.ratio.effective == pytest.approx(fine.ratio.effective, rel=0.1)


def test_files_of_the_same_rows_become_equal(tmp_path):
    random = np.random.default_rng(0)
    for classes, decimals in ((2, 2), (3, 3), (10, 2)):
        probs = soft(random, 500, classes, 2)
        files = [read(tmp_path, f"{each}.csv", probs, each) for each in (None, decimals, 5)]
        assert largest_difference(*files[:2]) > 10.0**-decimals / 4
        ours, theirs, third = written_alike(files)
        same = (ours.output.probs - theirs.output.probs).abs().amax(dim=1) < 1e-9
        assert same.double().mean() > 0.9  # else a value lay halfway
        assert largest_difference(ours, third) <= 1.1 * 10.0**-decimals


@pytest.mark.parametrize("sure", ["a rare event", "a sure model"])
def test_sure_files_of_full_precision_do_not_look_rounded(sure):
    """Nearly all of their values are nearly 0 or 1, and these have any number of decimals."""
    random = np.random.default_rng(0)
    for share in (0.99, 0.999, 0.9999):
        chance = np.where(
            random.random(20_000) < share, random.random(20_000) * 1e-4, random.random(20_000) / 99
        )
        if sure == "a sure model":
            chance = np.where(random.random(20_000) < 0.5, chance, 1 - chance)
        probs = torch.from_numpy(np.stack([1 - chance, chance], axis=1))
        assert decimals_of(probs) is None
        files = [Predictions.from_probs(probs), Predictions.from_probs(probs.flip(1))]
        assert all(one is other for one, other in zip(written_alike(files), files, strict=True))


@pytest.mark.parametrize(
    ("voters", "classes", "decimals"), [(3, 2, None), (7, 3, None), (8, 2, 3), (10, 2, 2)]
)
def test_shares_of_votes_have_the_decimals_that_they_have(voters, classes, decimals):
    votes = np.random.default_rng(0).multinomial(voters, np.ones(classes) / classes, 500)
    assert decimals_of(torch.from_numpy(votes / voters)) == decimals


def test_rows_of_large_files_are_looked_at_from_end_to_end():
    for rows in (1, 10_000, 10_001, 16_777_220):
        some = _some(torch.empty(1, 2).expand(rows, 2))
        assert (int(some.min()), int(some.max())) == (0, rows - 1)


def test_files_of_full_precision_stay_as_they_are():
    files = [WORLDS["cancelling"](0).sample(200, seed=seed) for seed in (0, 1)]
    probs = torch.from_numpy(soft(np.random.default_rng(0), 200, 3, 2))
    for given_files in (files, [Predictions.from_probs(probs), Predictions.from_probs(probs.flip(0))]):
        alike = written_alike(given_files)
        assert all(one.output is other.output for one, other in zip(alike, given_files, strict=True))


def test_rounded_experts_are_mixed_again_but_not_after_a_temperature():
    random = np.random.default_rng(0)
    experts = torch.from_numpy(soft(random, 600, 3, 1.5).reshape(300, 2, 3))
    routing = torch.from_numpy(soft(random, 300, 2, 1))
    fine = Predictions(output=combine(routing.log(), experts.log()))
    rounded = experts.round(decimals=2)
    coarse = Predictions(output=combine(routing.log(), (rounded / rounded.sum(dim=-1, keepdim=True)).log()))
    for one in written_alike([fine, coarse]):
        assert decimals_of(one.output.expert_log_probs.exp().flatten(0, 1)) == 2
        mixed = combine(one.output.log_routing, one.output.expert_log_probs)
        assert torch.allclose(mixed.log_probs, one.output.log_probs)
    warm = replace(fine, output=fine.output._replace(log_probs=(fine.output.log_probs / 2).log_softmax(1)))
    kept, _ = written_alike([warm, coarse])
    assert torch.equal(kept.output.log_probs, warm.output.log_probs)


def test_rows_of_which_rounding_leaves_nothing_stay_as_they_were():
    """With two decimals each of 300 classes of nearly equal probability is a zero."""
    level = Predictions.from_probs(torch.from_numpy(soft(np.random.default_rng(0), 200, 300, 0.1)))
    sure = torch.zeros(200, 300, dtype=torch.float64)
    sure[:, 0] = (torch.arange(200) / 400 + 0.5).round(decimals=2)
    sure[:, 1] = 1 - sure[:, 0]
    kept, _ = written_alike([level, Predictions.from_probs(sure)])
    assert torch.allclose(kept.output.probs, level.output.probs)
