"""The bootstrap: the fast way is the plain way, units stay whole, and intervals cover."""

import numpy as np
import pytest
import torch

from calmoe.errors import InputError
from calmoe.metrics import accuracy, adaptive_ece, bootstrap, brier_score, classwise_ece, ece, nll

OPTIONS = {ece: {"bins": 7, "of": 1}, classwise_ece: {"bins": 7}, accuracy: {}, brier_score: {}, nll: {}}


@pytest.mark.parametrize("metric", OPTIONS, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_additive_metrics_are_resampled_as_any_function_is(metric, kind, sample):
    probs, labels = sample
    generator = np.random.default_rng(1)
    weights = generator.integers(0, 4, len(labels)) / 2
    rows = kind(np.log(probs) if metric is nll else probs), kind(labels), kind(weights)
    units = {"clusters": generator.integers(0, 40, len(labels)), "resamples": 50, "seed": 3}
    fast = bootstrap(metric, *rows, **units, **OPTIONS[metric])
    plain = bootstrap(lambda *args, **options: metric(*args, **options), *rows, **units, **OPTIONS[metric])
    assert fast.samples == pytest.approx(plain.samples, abs=1e-12)
    assert fast[:4] == pytest.approx(plain[:4], abs=1e-12)
    assert fast.estimate == metric(*rows, **OPTIONS[metric])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["percentile", "basic"])
def test_infinite_nll_arises_only_where_its_row_is_drawn(method):
    log_probs = torch.tensor([[1.0, 0.0]] + [[0.5, 0.5]] * 9).log()
    labels = torch.ones(10, dtype=torch.long)
    result = bootstrap(nll, log_probs, labels, resamples=300, method=method)
    assert np.isinf(result.samples).mean() == pytest.approx(1 - 0.9**10, abs=0.1)
    assert result.samples[np.isfinite(result.samples)] == pytest.approx(np.log(2))
    assert result.estimate == result.high == result.standard_error == np.inf
    assert result.low == (pytest.approx(np.log(2)) if method == "percentile" else np.inf)
    always = bootstrap(nll, log_probs[:1], labels[:1], resamples=10, method=method)
    assert always[:4] == (np.inf,) * 4


def drawn(rows, weights=None, **units):
    """The counts of each resample: what a metric sees as weights."""
    seen = []
    bootstrap(
        lambda probs, labels, weights: seen.append(weights) or 0.0,
        np.zeros(rows),
        np.zeros(rows),
        weights,
        **units,
    )
    return np.stack(seen[1:])


def test_a_resample_weighs_each_row_by_its_weight_times_its_count():
    weights = np.array([0.5, 0.0, 3.0, 1.0, 0.0])
    expected = drawn(3, resamples=20) * [0.5, 3.0, 1.0]  # rows without weight take no part
    assert (drawn(5, weights, resamples=20) == expected).all()
    probs, labels = np.tile([[0.8, 0.2]], (100, 1)), np.repeat([0, 1], 50)
    heavy = bootstrap(accuracy, probs, labels, np.repeat([99.0, 1.0], 50), resamples=50)
    assert heavy.samples.min() > 0.97
    assert heavy.samples.mean() == pytest.approx(heavy.estimate, abs=0.01)


def test_every_unit_is_drawn_once_on_average():
    """400 resamples: the mean count of a unit is 1 +- 0.05."""
    clusters, strata = np.repeat(np.arange(10), 2), np.repeat([0, 1], 10)
    for units in ({}, {"clusters": clusters}, {"strata": strata}, {"clusters": clusters, "strata": strata}):
        assert drawn(20, resamples=400, **units).mean(0) == pytest.approx(1, abs=0.25)


def test_an_interval_prints_without_its_samples(sample):
    result = bootstrap(ece, *sample)
    assert isinstance(result, tuple)
    assert repr(result).endswith(", samples=[1000 values])")
    assert len(repr(result)) < 120
    assert f"estimate={result.estimate:.4g}, low={result.low:.4g}, high={result.high:.4g}" in repr(result)


def test_resamples_keep_the_number_of_rows_clusters_whole_and_strata_sized():
    assert (drawn(20, resamples=30).sum(1) == 20).all()
    clusters, strata = np.repeat(list("dacb"), 5), np.repeat([1, 0], 10)
    counts = drawn(20, resamples=30, clusters=clusters)
    assert (counts.reshape(30, 4, 5) == counts.reshape(30, 4, 5)[..., :1]).all()
    assert (drawn(20, resamples=30, strata=strata).reshape(30, 2, 10).sum(2) == 10).all()
    both = drawn(20, resamples=30, clusters=clusters, strata=strata).reshape(30, 2, 2, 5)
    assert (both == both[..., :1]).all()
    assert (both[..., 0].sum(2) == 2).all()
    with pytest.raises(InputError, match="more than one stratum"):
        drawn(20, clusters=clusters, strata=np.arange(20) % 2)
    with pytest.raises(InputError, match=r"clusters must be \[N\]"):
        drawn(20, clusters=clusters[1:])


def test_seed_decides(sample):
    first, again, other = (bootstrap(ece, *sample, resamples=20, seed=seed).samples for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_basic_is_the_reflected_percentile_interval(sample):
    percentile = bootstrap(adaptive_ece, *sample, resamples=100)
    basic = bootstrap(adaptive_ece, *sample, resamples=100, method="basic")
    assert basic.low == pytest.approx(2 * percentile.estimate - percentile.high)
    assert basic.high == pytest.approx(2 * percentile.estimate - percentile.low)


def test_intervals_of_the_accuracy_cover_it():
    """300 samples of 100 rows: coverage of a 90% interval is 0.9 +- 0.05 (three standard errors)."""
    probs = np.tile([[0.7, 0.3]], (100, 1))
    generator = np.random.default_rng(0)
    samples = [(generator.random(100) < 0.3).astype(int) for _ in range(300)]
    intervals = [bootstrap(accuracy, probs, labels, level=0.9, resamples=200) for labels in samples]
    assert np.mean([i.low <= 0.7 <= i.high for i in intervals]) == pytest.approx(0.9, abs=0.05)
    assert np.mean([i.standard_error for i in intervals]) == pytest.approx(np.sqrt(0.21 / 100), rel=0.03)


def test_the_eces_resamples_are_biased_upward_and_basic_takes_the_bias_off():
    """A calibrated model has the ECE 0; its estimate is noise, and percentiles never reach 0."""
    generator = np.random.default_rng(0)
    p = generator.random(300)
    probs, labels = np.stack([1 - p, p], 1), (generator.random(300) < p).astype(int)
    percentile, basic = (bootstrap(ece, probs, labels, method=m) for m in ("percentile", "basic"))
    assert percentile.samples.mean() > percentile.estimate
    assert basic.low < percentile.low
    assert basic.high < percentile.high
