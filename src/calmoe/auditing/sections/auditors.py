"""The audit's section on auditors: the moments E[r_k φ(f) (Y − f)], by expert and level (multiaccuracy).

φ are the indicators of equal-width bins, or hats: piecewise linear, 1 at one node j/B and 0 at the others.
Both add up to 1 at every f, so that all moments of a kind together sum to E[Y − f].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from calmoe.auditing.configurations import CHUNK, Configurations
from calmoe.auditing.presentation.figures import FULL, Figure
from calmoe.auditing.presentation.numbers import headings, in_words
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section
from calmoe.auditing.statistics.estimates import RARE, Estimate, mean, within
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError
from calmoe.escaping import drawable
from calmoe.render.grid import Grid, interval, label, number, signed
from calmoe.render.page import Picture, Point
from calmoe.render.wording import decimal

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.auditing.audit_report import AuditReport

MOST_AUDITORS = 3000  # their joint law takes a matrix with the square of that many entries
MOST_CELLS = 1 << 24  # rows times auditors at a time
ENOUGH = 100  # effective rows: with fewer, an auditor has no interval and no normalised residual
Kind = Literal["indicator", "hat"]


@dataclass(frozen=True, kw_only=True)
class Auditors:
    """The moments E[g D] of K × J auditors g = r_k φ_j(f), with intervals that hold for all of them together.

    Intervals, and the normalised residual itself, are NaN where the auditor has fewer than 100 effective rows
    (Σ g)² / Σ g².

    Attributes:
        kind: "indicator" for bins, "hat" for hats.
        nodes: The centre of a bin, or where the hat is 1. [J]
        moments: E[g D]. [K, J]
        low: The lower ends of their intervals. [K, J]
        high: The upper ends. [K, J]
        mass: E[g]. [K, J]
        effective: The effective rows. [K, J]
        normalised: E[g D] / E[g], the multicalibration residual. [K, J]
        normalised_low: The lower ends of its intervals. [K, J]
        normalised_high: The upper ends. [K, J]
        sharper: √(E[g²] J), a bound for each auditor. [K, J]
        bound: √J, J = E[D²]: no moment can exceed it (Cauchy-Schwarz, g ≤ 1).
        critical: The intervals are ± this many standard errors; more, by Student's t with (Σ g² D²)² / Σ g⁴
            D⁴ − 1 degrees of freedom, where few rows carry the variance.

    Example:
        >>> from calmoe.worlds import cancelling
        >>> moments = auditors(Configurations.of(cancelling(seed=0).sample(300, seed=0)), bins=5)
        >>> moments.moments.shape, bool(abs(moments.moments).max() <= moments.bound.value)
        ((3, 5), True)
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


def check_number(experts: int, bins: int) -> None:
    """Refuse more auditors than a machine can hold, before the work begins."""
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
    """All moments E[r_k φ_j(f) D] of one kind.

    Args:
        configurations: The rows, with labels.
        kind: "indicator" for bins of confidence, "hat" for overlapping hats.
        bins: The number of bins.
        level: The certainty of all intervals together.
        draws: How many draws of the moments' joint law give the critical value, the quantile of its largest
            |z|.

    Returns:
        The moments with their intervals.

    Example:
        >>> from calmoe.worlds import miscalibrated
        >>> rows = Configurations.of(miscalibrated(seed=0).sample(2000, seed=0))
        >>> bool(auditors(rows).found.any())  # some moment surely differs from zero
        True
    """
    experts, n = configurations.num_experts, len(configurations)
    check_number(experts, bins)
    nodes = (np.arange(bins) + 0.5) / bins if kind == "indicator" else np.arange(bins + 1) / bins
    means = _means(configurations, kind, bins, experts * len(nodes))
    covariance = (means.products - np.outer(means.moments, means.moments)) / n
    ratio, variance, ratio_variance = _variances(means, np.diag(covariance), n)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.where(means.squares > 0, n * means.mass**2 / means.squares, 0.0)
        carrying = np.diag(means.products) ** 2 * n / means.fourth  # effective rows that carry the variance
    enough = (effective >= ENOUGH) & (np.diag(covariance) > 0)
    critical = _critical(covariance[np.ix_(enough, enough)], level, draws)
    wider = stdtrit(np.maximum(np.nan_to_num(carrying - 1), 1.0), ndtr(critical))  # Student's t
    half = np.where(enough, wider * np.sqrt(variance), np.nan)
    ratio_half = np.where(enough, wider * np.sqrt(np.maximum(ratio_variance, 0.0)), np.nan)
    ratio = np.where(enough, ratio, np.nan)
    worst = within(mean(configurations.residual**2, level), 0.0, 1.0)

    def table(values: np.ndarray) -> np.ndarray:
        return values.reshape(experts, len(nodes))

    return Auditors(
        kind=kind,
        nodes=nodes,
        moments=table(means.moments),
        low=table(np.maximum(means.moments - half, -1.0)),
        high=table(np.minimum(means.moments + half, 1.0)),
        mass=table(means.mass),
        effective=table(effective),
        normalised=table(ratio),
        normalised_low=table(np.maximum(ratio - ratio_half, -1.0)),
        normalised_high=table(np.minimum(ratio + ratio_half, 1.0)),
        sharper=table(np.sqrt(means.squares * worst.value)),
        bound=_root(worst),
        critical=critical,
    )


class _Means(NamedTuple):
    """Means over all rows, auditor by auditor [A]."""

    mass: np.ndarray  # E[g]
    squares: np.ndarray  # E[g²]
    moments: np.ndarray  # E[g D]
    signed: np.ndarray  # E[g² D]
    fourth: np.ndarray  # E[g⁴ D⁴]
    expected: np.ndarray  # E[g² f (1 − f)]
    products: np.ndarray  # [A, A] E[g g' D²]


def _means(configurations: Configurations, kind: Kind, bins: int, size: int) -> _Means:
    residual, n = configurations.residual, len(configurations)
    mass, squares, moments, signed, fourth, expected = (np.zeros(size) for _ in range(6))
    products, chunk = np.zeros((size, size)), min(CHUNK, MOST_CELLS // size)
    for start in range(0, n, chunk):
        rows = slice(start, start + chunk)
        phi = levels(configurations.confidence[rows], bins, kind)
        g = (configurations.routing[rows, :, None].astype(np.float64) * phi[:, None, :]).reshape(-1, size)
        weighted = g * residual[rows, None]
        mass += g.sum(axis=0)
        moments += weighted.sum(axis=0)
        squares += (g**2).sum(axis=0)
        fourth += ((weighted**2) ** 2).sum(axis=0)
        signed += (g * weighted).sum(axis=0)
        expected += configurations.noise[rows] @ g**2
        products += weighted.T @ weighted
    totals = (mass, squares, moments, signed, fourth, expected, products)
    return _Means(*(total / n for total in totals))


def _variances(means: _Means, sampled: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The normalised residuals E[g D] / E[g], the variance of the moments, and that of these residuals. [A]

    sampled: the variance of the moments as the rows show it.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = means.moments / means.mass
        # two imagined rows of residual ½, as in Agresti and Coull's interval: few rows never look certain
        unit = np.where(means.mass > 0, (means.squares / means.mass) ** 2 / n, 0.0)  # one row of usual weight
        expected = np.minimum(means.expected, RARE * unit)  # errors expected even where the rows show none
        squares = np.diag(means.products)
        imagined = 0.5 * unit + np.maximum(expected - squares, 0.0)
        spread = squares - 2 * ratio * means.signed + ratio**2 * means.squares
        return ratio, sampled + imagined / n, (spread + imagined) / means.mass**2 / n


def _root(square: Estimate) -> Estimate:
    error = square.standard_error / (2 * max(square.value, 1e-12) ** 0.5)
    return Estimate(square.value**0.5, square.low**0.5, square.high**0.5, error)


def _critical(covariance: np.ndarray, level: float, draws: int) -> float:
    """The quantile of max_j |z_j| for z with this covariance's correlations; at least that of one |z|."""
    if not len(covariance):
        return float("nan")
    scale = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    largest = np.abs(np.random.default_rng(0).normal(size=(draws, len(scale))) @ root.T).max(axis=1)
    return max(float(np.quantile(largest, level)), float(ndtri((1 + level) / 2)))


# --- how the report shows it --------------------------------------------------------------------------------

CAPTION = (
    "Red cells are more often right than they say and blue ones less, where that expert has "
    "weight and the mixture that confidence; a dot marks what differs from zero, all cells taken together. "
    "A row of one colour blames an expert, a column a level of confidence, and colours that change within a "
    "column are errors that cancel."
)
ALONE_CAPTION = (  # without experts
    "Red bins are more often right than they say and blue ones less; a dot marks what differs "
    "from zero, all bins taken together. Colours that change along the line are errors of both signs."
)
HATS_CAPTION = (
    "The same with hats, 1 at one node and 0 at the next, so that a row counts for the two nodes "
    "beside it. What shows in both figures does not hang on where the bins' edges fall."
)
NODES = {"indicator": "bin's centre", "hat": "where the hat is 1"}
LISTED = 10  # moments in the table


def sentences(auditors: Auditors, experts: Sequence[str]) -> str:
    """How many moments differ from zero, and the largest; experts: their names."""
    mixed = len(experts) > 1
    judged = int((~np.isnan(auditors.low)).sum())
    if not judged:
        nobody = f"no expert has {ENOUGH} effective rows in any bin" if mixed else f"no bin has {ENOUGH} rows"
        text = f"{nobody}, so that no moment is judged"
    else:
        moments = "expert-and-bin moments" if mixed else "bins' moments"
        text = f"{int(auditors.found.sum())} of {judged} {moments} differ from zero"
    if auditors.found.any():
        clear = np.where(auditors.found, auditors.moments, 0)
        k, j = np.unravel_index(np.abs(clear).argmax(), clear.shape)
        whose, largest = f"{experts[int(k)]}'s " if mixed else "", decimal(auditors.moments[k, j], 4, "+")
        text += f"; the largest, {largest}, is {whose}at confidence {auditors.nodes[j]:.2f}"
        if not np.isnan(auditors.normalised[k, j]):
            text += f" (a residual of {decimal(auditors.normalised[k, j], 3, '+')} there)"
    return text + f". The bound √J on every one of them is {in_words(auditors.bound)}."


def draw_heat_map(auditors: Auditors, experts: Sequence[str], canvas: "Canvas") -> str:
    """The moments, experts down and confidence across; dots mark those that differ from zero."""
    from matplotlib.colors import TwoSlopeNorm

    used = auditors.mass.sum(axis=0) > 0
    moments, marked = auditors.moments[:, used], auditors.found[:, used]
    mixed = len(moments) > 1
    axes = canvas.add_subplot()
    widest = np.nan_to_num(auditors.high - auditors.moments).max()  # on this scale mere noise stays pale
    most = max(float(np.abs(moments).max()), float(widest), 1e-6)
    image = axes.imshow(moments, cmap="RdBu_r", norm=TwoSlopeNorm(0, -most, most), aspect="auto")
    for k, j in np.argwhere(marked):
        axes.plot(j, k, marker="o", color="black", markersize=3)
    axes.set_xticks(range(int(used.sum())), [f"{node:.2f}" for node in auditors.nodes[used]])
    axes.set_yticks(range(len(moments)), map(drawable, experts if mixed else ["all rows"]))
    axes.set(xlabel=f"confidence of the {'mixture' if mixed else 'model'} ({NODES[auditors.kind]})")
    canvas.colorbar(image, ax=axes, label="E[r φ(f) (Y − f)]")
    return (
        f"Moments of {moments.size} {auditors.kind} auditors, largest {np.abs(moments).max():.4f}; "
        f"{int(marked.sum())} differ from zero. The bound √J is {in_words(auditors.bound)}."
    )


def _largest_table(auditors: Auditors, experts: Sequence[str]) -> Grid:
    """The largest moments that differ from zero."""
    clear = np.abs(np.where(auditors.found, auditors.moments, 0.0))
    order = np.argsort(-clear, axis=None)[: min(LISTED, int(auditors.found.sum()))]
    rows = tuple(
        (
            label(experts[k] if len(experts) > 1 else "all rows", f"expert_{k}"),
            number(float(auditors.nodes[j])),
            signed(float(auditors.moments[k, j]), decimals=4),
            interval(float(auditors.low[k, j]), float(auditors.high[k, j])),
            signed(float(auditors.normalised[k, j])),
            interval(float(auditors.normalised_low[k, j]), float(auditors.normalised_high[k, j])),
        )
        for k, j in zip(*np.unravel_index(order, clear.shape), strict=True)
    )
    columns = headings(
        ("auditor", "expert"),
        ("confidence", "confidence"),
        ("moment", "moment*"),
        ("normalised", "normalised*"),
    )
    return Grid("The largest moments that differ from zero", columns, (rows,))


def _check(material: Material) -> None:
    check_number(material.predictions.num_experts, material.bins)


def _compute(material: Material, inside: Inside) -> Findings:
    def measured(kind: Kind) -> Auditors:
        return auditors(material.configurations, kind=kind, bins=material.bins, level=material.level)

    return Findings({"indicators": measured("indicator"), "hats": measured("hat")})


def _summary(report: "AuditReport") -> Point:
    return Point("Auditors", sentences(report.indicators, report.expert_names))


def _figures(report: "AuditReport") -> list[Figure]:
    experts, names = report.num_experts, report.expert_names
    height, caption = 0.9 + 0.28 * experts, CAPTION if experts > 1 else ALONE_CAPTION
    return [
        Figure("auditors", caption, FULL, height, partial(draw_heat_map, report.indicators, names)),
        Figure("hats", HATS_CAPTION, FULL, height, partial(draw_heat_map, report.hats, names)),
    ]


def _page(report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    mixed = report.num_experts > 1
    largest = _largest_table(report.indicators, report.expert_names)
    return PageSection(
        heading="Auditors",
        how=f"E[r φ(f) (Y − f)] by {'expert and ' if mixed else ''}confidence. Red: more often right "
        f"than said; blue: less. No moment can exceed √J = {report.indicators.bound.value:.3f}.",
        tables=[largest] if largest.rows else [],
        notes=[] if largest.rows else ["No moment differs from zero."],
        figures=pictures,
    )


SECTION = Section(
    name="auditors",
    cost=1,
    compute=_compute,
    check=_check,
    summary=_summary,
    figures=_figures,
    page=_page,
)
