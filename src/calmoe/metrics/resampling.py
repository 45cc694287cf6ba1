"""Uncertainty: the bootstrap of any metric, and differences over paired seeds.

A resample is a vector of counts, one a row: the metric of the resample is the metric with weights x counts.
A metric of weighted means then costs one sparse product a resample, with no second look at the data.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.special import stdtrit
from torch import Tensor

from calmoe.arrays import Array, as_count, as_number, as_tensor, check_bins, check_word
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError
from calmoe.metrics.binned import classwise_ece, classwise_gaps, ece, gaps, width_bins
from calmoe.metrics.checks import Of, as_ids, check, check_log, events, select
from calmoe.metrics.scores import accuracy, brier_score, hits, log_losses, nll, squared_errors


class Interval(NamedTuple):
    """An estimate, its interval and standard error, and the samples they come from.

    Attributes:
        estimate: The metric on the data as they are.
        low: The interval's lower end.
        high: The interval's upper end.
        standard_error: The standard deviation of the samples, or of their mean for `paired_difference`.
        samples: The metric on each resample, or the differences.

    Example:
        >>> Interval(0.8, 0.72, 0.88, 0.04, np.zeros(200))
        Interval(estimate=0.8, low=0.72, high=0.88, standard_error=0.04, samples=[200 values])
    """

    estimate: float
    low: float
    high: float
    standard_error: float
    samples: np.ndarray

    def __repr__(self) -> str:
        numbers = (f"{name}={value:.4g}" for name, value in zip(self._fields[:4], self[:4], strict=True))
        return f"Interval({', '.join(numbers)}, samples=[{len(self.samples)} values])"


def bootstrap(
    metric: Callable[..., float],
    probs: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    resamples: int = 1000,
    level: float = LEVEL,
    clusters: Array | None = None,
    strata: Array | None = None,
    method: Literal["percentile", "basic"] = "percentile",
    seed: int = 0,
    **options: Any,
) -> Interval:
    """A confidence interval by resampling rows, or whole clusters, within strata where given.

    `metric` is any metric of this package or your own `f(probs, labels, weights, **options)`. Rows of weight
    zero take no part. An ECE is biased upward in small samples, and its resamples are biased once more: the
    percentile interval then lies too high and may even exclude the estimate e. method="basic",
    [2e - q_high, 2e - q_low], takes that bias off by reflection at e; it may reach below zero. Quantiles q
    are samples, never between two: where samples are infinite, a bound may be, and so is the standard error.

    Args:
        metric: A metric of this package, or your own f(probs, labels, weights, ...).
        probs: What the metric takes: probabilities, or log-probabilities for `nll`. [N, C]
        labels: The true classes. [N]
        weights: Sample weights ≥ 0 [N]; equal unless given.
        resamples: How many times to draw.
        level: The share of cases in which the interval should hold the truth.
        clusters: One id a row [N]: rows of a cluster are drawn together.
        strata: One id a row [N]: rows are drawn within their stratum.
        method: "percentile" or "basic".
        seed: The seed of the draws.
        options: What else the metric takes, such as bins=10.

    Returns:
        The estimate with its interval.

    Example:
        >>> probs = np.tile([[0.8, 0.2]], (100, 1))
        >>> bootstrap(accuracy, probs, np.repeat([0, 1], [80, 20]), resamples=200)
        Interval(estimate=0.8, low=0.7..., high=0.8..., standard_error=0.0..., samples=[200 values])
    """
    check_word("method", method, ("percentile", "basic"))
    level, resamples = _checked_level(level), as_count("resamples", resamples, 2)
    seed = as_count("seed", seed, 0)
    estimate = float(metric(probs, labels, weights, **options))
    mass = np.ones(len(labels)) if weights is None else as_tensor(weights).double().cpu().numpy()
    if not mass.all():
        kept = mass > 0
        probs, labels, mass = select(probs, kept), select(labels, kept), mass[kept]
        clusters, strata = (None if x is None else select(x, kept) for x in (clusters, strata))
    resampled = (mass * counts for counts in _counts(len(mass), resamples, clusters, strata, seed))
    if metric in _ADDITIVE:
        samples = _ADDITIVE[metric](probs, labels, **options).over(resampled)
    else:
        samples = np.array([float(metric(probs, labels, _like(w, probs), **options)) for w in resampled])
    ends = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    low, high = (float(end) for end in ends)
    if method == "basic":
        low, high = (end if end == estimate else 2 * estimate - end for end in (high, low))  # not inf - inf
    error = float("inf") if np.isinf(samples).any() else float(samples.std(ddof=1))
    return Interval(estimate, low, high, error, samples)


def paired_difference(a: Array, b: Array, level: float = LEVEL) -> Interval:
    """Mean of a - b over paired runs (the same seeds), with Student's t interval.

    `samples` are the differences. One pair gives the difference, and NaN for the rest.

    Args:
        a: One score a run. [M]
        b: The scores of the other method, run by run. [M]
        level: The share of cases in which the interval should hold the truth.

    Returns:
        The mean difference with its interval.

    Example:
        >>> result = paired_difference(np.array([3.0, 5.0, 4.0]), np.array([2.0, 3.0, 1.0]))
        >>> result.estimate, round(result.low, 3), round(result.high, 3)
        (2.0, -0.484, 4.484)
    """
    first, second = (as_tensor(values).double().cpu().numpy() for values in (a, b))
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise InputError(
            f"a and b must be equally many values, one a seed, got shapes {first.shape} and {second.shape}: "
            "give both methods' values in the same order of seeds"
        )
    differences, n, level = first - second, len(first), _checked_level(level)
    mean = float(differences.mean())
    error = float(differences.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
    half = float(stdtrit(n - 1, (1 + level) / 2)) * error if n > 1 else float("nan")
    return Interval(mean, mean - half, mean + half, error, differences)


def _checked_level(level: float) -> float:
    if not 0 < as_number("level", level, 0, 1) < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.95, not {level}")
    return float(level)


def _counts(
    rows: int, resamples: int, clusters: Array | None, strata: Array | None, seed: int
) -> Iterator[np.ndarray]:
    """How often each row is drawn, [N], once a resample; units are numbered by stratum: each is a range."""
    cluster = np.arange(rows) if clusters is None else _codes(clusters, rows, "clusters")
    stratum = np.zeros(rows, int) if strata is None else _codes(strata, rows, "strata")
    span = cluster.max() + 1
    keys, unit = np.unique(stratum * span + cluster, return_inverse=True)
    if len(keys) > span:
        raise InputError(
            "a cluster lies in more than one stratum: give clusters that are whole within a stratum"
        )
    home = keys // span
    low = 0 if strata is None else np.searchsorted(home, home, "left")
    high = len(keys) if strata is None else np.searchsorted(home, home, "right")
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        drawn = generator.integers(low, high, size=len(keys))
        yield np.bincount(drawn, minlength=len(keys))[unit]


def _codes(values: Array, rows: int, name: str) -> np.ndarray:
    ids = as_ids(values, name)
    if ids.shape != (rows,):
        raise InputError(f"{name} must be [N] = [{rows}], got shape {ids.shape}: give one id a row")
    return np.unique(ids, return_inverse=True)[1]


def _like(weights: np.ndarray, probs: Array) -> Array:
    return torch.as_tensor(weights, device=probs.device) if isinstance(probs, Tensor) else weights


class _Additive(NamedTuple):
    """A metric finish(E[features]): each row adds `value` to the features at `cell`, both [N, m]."""

    cell: Tensor
    value: Tensor
    size: int
    finish: Callable[[np.ndarray], np.ndarray]

    def over(self, resampled: Iterator[np.ndarray]) -> np.ndarray:
        """The metric for each vector of weights, [R]."""
        rows = np.repeat(np.arange(len(self.cell)), self.cell.shape[1])
        entries = self.value.cpu().numpy().ravel(), (self.cell.cpu().numpy().ravel(), rows)
        features = csr_array(entries, shape=(self.size, len(self.cell)))
        return self.finish(np.stack([features @ weights / weights.sum() for weights in resampled]))


def _ece(probs: Array, labels: Array, bins: int = BINS, of: Of = "top") -> _Additive:
    (confidence, outcome), bins = events(check(probs, labels), of), check_bins(bins)
    cell, gap = width_bins(confidence, bins)[:, None], gaps(confidence, outcome)[:, None]
    return _Additive(cell, gap, bins, lambda means: np.abs(means).sum(1))


def _classwise_ece(probs: Array, labels: Array, bins: int = BINS) -> _Additive:
    rows, bins = check(probs, labels), check_bins(bins)
    cell, gap = classwise_gaps(rows, bins)
    classes = gap.shape[1]
    return _Additive(cell, gap, classes * bins, lambda means: np.abs(means).sum(1) / classes)


def _mean(values: Tensor) -> _Additive:
    return _Additive(
        torch.zeros_like(values[:, None], dtype=torch.long), values[:, None], 1, lambda x: x[:, 0]
    )


def _nll(log_probs: Array, labels: Array) -> _Additive:
    """Two features, the finite losses and the infinite rows: 0 x inf never arises."""
    rows = check_log(log_probs, labels)
    losses = log_losses(rows.probs, rows.labels)
    value = torch.stack([losses.masked_fill(losses.isinf(), 0.0), losses.isinf().double()], 1)
    cell = torch.arange(2).expand(len(losses), 2)
    return _Additive(cell, value, 2, lambda x: np.where(x[:, 1] > 0, np.inf, x[:, 0]))


_ADDITIVE: dict[Callable[..., float], Callable[..., _Additive]] = {
    ece: _ece,
    classwise_ece: _classwise_ece,
    nll: _nll,
    accuracy: lambda probs, labels: _mean(hits(check(probs, labels))),
    brier_score: lambda probs, labels: _mean(squared_errors(check(probs, labels))),
}
