"""Auditors: the moments E[r_k φ(f) (Y − f)], expert by expert and level by level (multiaccuracy).

φ are the indicators of equal-width bins, or hats: piecewise linear, 1 at one node j/B and 0 at the others.
Both add up to 1 at every f, so that all moments of a kind together sum to E[Y − f].
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from calmoe.auditing.configurations import CHUNK, Configurations
from calmoe.auditing.statistics.estimates import RARE, Estimate, mean, within
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError

MOST_AUDITORS = 3000  # their joint law takes a matrix of its square
MOST_CELLS = 1 << 24  # rows times auditors at a time
ENOUGH = 100  # effective rows below which an auditor has no interval and no normalised residual
Kind = Literal["indicator", "hat"]


@dataclass(frozen=True, kw_only=True)
class Auditors:
    """The moments of K × J auditors g = r_k φ_j(f), with intervals that hold for all of them together.

    moments: E[g D]; normalised: E[g D] / E[g], the multicalibration residual. Intervals of both, and the
    normalised residual itself, are NaN where the auditor has fewer than 100 effective rows (Σ g)² / Σ g².
    bound: √J, J = E[D²]: no moment can exceed it (Cauchy-Schwarz, g ≤ 1). sharper: √(E[g²] J).
    critical: the intervals are ± this many standard errors; more, by Student's t with
        (Σ g² D²)² / Σ g⁴ D⁴ − 1 degrees of freedom, where few rows carry the variance.
    """

    kind: Kind
    nodes: np.ndarray  # [J] the centre of a bin, or where the hat is 1
    moments: np.ndarray  # [K, J]
    low: np.ndarray  # [K, J]
    high: np.ndarray  # [K, J]
    mass: np.ndarray  # [K, J] E[g]
    effective: np.ndarray  # [K, J]
    normalised: np.ndarray  # [K, J]
    normalised_low: np.ndarray  # [K, J]
    normalised_high: np.ndarray  # [K, J]
    sharper: np.ndarray  # [K, J]
    bound: Estimate
    critical: float

    @property
    def found(self) -> np.ndarray:
        """Which moments differ from zero. [K, J]"""
        return (self.low > 0) | (self.high < 0)


def levels(confidence: np.ndarray, bins: int, kind: Kind = "indicator") -> np.ndarray:
    """φ_j(f): [N, B] indicators of (j/B, (j + 1)/B], or [N, B + 1] hats.

    >>> levels(np.array([0.1, 0.5]), 4, "hat")
    array([[0.6, 0.4, 0. , 0. , 0. ],
           [0. , 0. , 1. , 0. , 0. ]])
    """
    if kind == "indicator":
        edges = np.arange(1, bins) / bins
        return np.eye(bins)[np.searchsorted(edges, confidence)]
    return np.maximum(1 - np.abs(confidence[:, None] * bins - np.arange(bins + 1)), 0.0)


def check_size(experts: int, bins: int) -> None:
    """Refuse more auditors than a machine can hold, before anything is computed."""
    if experts * bins > MOST_AUDITORS:
        raise InputError(
            f"{experts} experts x {bins} bins are more than the {MOST_AUDITORS} that an audit takes: "
            "give fewer bins"
        )


def auditors(
    configurations: Configurations,
    *,
    kind: Kind = "indicator",
    bins: int = BINS,
    level: float = LEVEL,
    draws: int = 4000,
) -> Auditors:
    """All moments of one kind; the critical value is the quantile of the largest |z| of their joint law."""
    residual, n = configurations.residual, len(configurations)
    experts = configurations.num_experts
    check_size(experts, bins)
    nodes = (np.arange(bins) + 0.5) / bins if kind == "indicator" else np.arange(bins + 1) / bins
    size = experts * len(nodes)
    mass, squares, fourth, signed, moments, expected = (np.zeros(size) for _ in range(6))
    products, chunk = np.zeros((size, size)), min(CHUNK, MOST_CELLS // size)
    for start in range(0, n, chunk):
        rows = slice(start, start + chunk)
        phi = levels(configurations.confidence[rows], bins, kind)
        g = (configurations.routing[rows, :, None].astype(np.float64) * phi[:, None, :]).reshape(-1, size)
        pushed = g * residual[rows, None]
        mass += g.sum(axis=0)
        moments += pushed.sum(axis=0)
        squares += (g**2).sum(axis=0)
        fourth += ((pushed**2) ** 2).sum(axis=0)
        signed += (g * pushed).sum(axis=0)
        expected += configurations.noise[rows] @ g**2
        products += pushed.T @ pushed
    mass, squares, fourth, signed, moments, products = (
        total / n for total in (mass, squares, fourth, signed, moments, products)
    )
    covariance = (products - np.outer(moments, moments)) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.where(squares > 0, n * mass**2 / squares, 0.0)
        freedom = np.diag(products) ** 2 * n / fourth - 1  # rows that carry the variance, less one
        ratio = moments / mass
        # two imagined rows of residual ½, as in Agresti and Coull's interval: few rows never look certain
        unit = np.where(mass > 0, (squares / mass) ** 2 / n, 0.0)  # what one row adds, of usual weight
        expected = np.minimum(expected / n, RARE * unit)  # errors that are expected though none was seen
        imagined = 0.5 * unit + np.maximum(expected - np.diag(products), 0.0)
        spread = np.diag(products) - 2 * ratio * signed + ratio**2 * squares
        ratio_variance = (spread + imagined) / mass**2 / n
        variance = np.diag(covariance) + imagined / n
    enough = (effective >= ENOUGH) & (np.diag(covariance) > 0)
    critical = _critical(covariance[np.ix_(enough, enough)], level, draws)
    wider = stdtrit(np.maximum(np.nan_to_num(freedom), 1.0), ndtr(critical))  # Student's t
    half = np.where(enough, wider * np.sqrt(variance), np.nan)
    ratio_half = np.where(enough, wider * np.sqrt(np.maximum(ratio_variance, 0.0)), np.nan)
    ratio = np.where(enough, ratio, np.nan)
    worst = within(mean(residual**2, level), 0.0, 1.0)

    def table(values: np.ndarray) -> np.ndarray:
        return values.reshape(experts, len(nodes))

    return Auditors(
        kind=kind,
        nodes=nodes,
        moments=table(moments),
        low=table(np.maximum(moments - half, -1.0)),
        high=table(np.minimum(moments + half, 1.0)),
        mass=table(mass),
        effective=table(effective),
        normalised=table(ratio),
        normalised_low=table(np.maximum(ratio - ratio_half, -1.0)),
        normalised_high=table(np.minimum(ratio + ratio_half, 1.0)),
        sharper=table(np.sqrt(squares * worst.value)),
        bound=Estimate(
            worst.value**0.5,
            worst.low**0.5,
            worst.high**0.5,
            worst.standard_error / (2 * max(worst.value, 1e-12) ** 0.5),
        ),
        critical=critical,
    )


def _critical(covariance: np.ndarray, level: float, draws: int) -> float:
    """The quantile of max_j |z_j| for z with this covariance's correlations; at least that of one |z|."""
    if not len(covariance):
        return float("nan")
    scale = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    largest = np.abs(np.random.default_rng(0).normal(size=(draws, len(scale))) @ root.T).max(axis=1)
    return max(float(np.quantile(largest, level)), float(ndtri((1 + level) / 2)))
