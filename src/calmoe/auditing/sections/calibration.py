"""The audit's section on calibration: of the aggregate, of each expert, and the balance between them.

The audit judges expert k by the class that the expert itself predicts, on its routing-weighted view
dQ_k ∝ r_k dP and on the rows where it leads. If all experts are calibrated on their views, the mixture has
the marginal balance Σ_k E[r_k (Y − f_k)] = E[Y − f] = 0 (section 4.1); it is calibrated only if they agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.figures import BLACK, BLUE, COLUMN, ORANGE, Figure
from calmoe.auditing.presentation.glossary import rate_name, subject_name
from calmoe.auditing.presentation.numbers import cells, headings, in_words
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section
from calmoe.auditing.statistics.estimates import (
    NONE,
    Estimate,
    at_least,
    binned_gap,
    mean,
    normal,
    proportion,
    spread,
    within,
)
from calmoe.auditing.statistics.gaps import classwise, experts_gap, smooth
from calmoe.defaults import BINS, LEVEL
from calmoe.escaping import drawable
from calmoe.metrics.binned import mass_bins, width_bins
from calmoe.predictions import Predictions
from calmoe.render.grid import Grid, label
from calmoe.render.page import Picture, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.auditing.audit_report import AuditReport

FEWEST_EFFECTIVE = 30  # effective rows: with fewer, the audit does not judge an expert


@dataclass(frozen=True, kw_only=True)
class Expert:
    """One expert; intervals hold for all experts together (level 1 − (1 − level)/K each).

    Attributes:
        share: E[r_k].
        leads: The share of rows where its routing weight is the largest.
        view: The ECE Σ_b |E[r_k D_k 1_b]| / E[r_k] of the class that the expert predicts, of the population
            at equal-width bins; NaN below 30 effective rows.
        region: The ECE where it leads; NaN below 30 effective rows.
        balance: E[r_k (Y − f_k)] for the mixture's predicted class.
        excess: A lower bound on the mixture's ECE less the view's, both measured on the same rows; its
            interval alone holds for each expert by itself.

    Example:
        >>> from calmoe.worlds import cancelling
        >>> judged = aggregate(Configurations.of(cancelling(seed=0).sample(300, seed=0)))
        >>> round(sum(expert.share.value for expert in judged.experts), 6)
        1.0
    """

    share: Estimate  # E[r_k]
    leads: Estimate  # the share of rows where its routing weight is the largest
    view: Estimate
    region: Estimate
    balance: Estimate
    excess: Estimate


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """The mixture and its experts, Σ_b |E[D 1_b]| with D = Y − f.

    Attributes:
        ece: Σ_b |E[D 1_b]| of the population at equal-width bins.
        adaptive_ece: The same at bins of equal mass, with their edges taken as fixed.
        smooth_ece: ∫ |E[D K_σ(t, f)]| dt at the bandwidth that the smooth ECE chooses, taken as fixed.
        classwise_ece: The mean over classes; NaN without `predictions`.
        plain_ece: The usual estimate, biased upward, with ece's interval, as both estimate the same number.
        accuracy: E[Y].
        balance: E[Y − f].
        experts_ece: The experts' ECE on their views averaged by their shares, Σ_k Σ_b |E[r_k D_k 1_b]|.
        experts: Each expert.

    Example:
        >>> from calmoe.worlds import cancelling
        >>> judged = aggregate(Configurations.of(cancelling(seed=0).sample(300, seed=0)))
        >>> judged.accuracy.low < 0.75 < judged.accuracy.high, len(judged.experts)
        (True, 3)
    """

    ece: Estimate
    adaptive_ece: Estimate
    smooth_ece: Estimate
    classwise_ece: Estimate
    plain_ece: Estimate
    accuracy: Estimate
    balance: Estimate
    experts_ece: Estimate
    experts: tuple[Expert, ...]

    @property
    def worse_than_experts(self) -> bool:
        """The mixture's ECE is above that of every expert on its view, each compared on the same rows."""
        lows = [expert.excess.low for expert in self.experts if not np.isnan(expert.excess.low)]
        return len(self.experts) > 1 and bool(lows) and min(lows) > 0

    @property
    def calibrated_unlike_experts(self) -> bool:
        """The mixture may be calibrated (its interval holds 0), while some expert is not on its view."""
        return len(self.experts) > 1 and self.ece.low == 0 and any(e.view.low > 0 for e in self.experts)


def aggregate(
    configurations: Configurations,
    predictions: Predictions | None = None,
    *,
    bins: int = BINS,
    level: float = LEVEL,
) -> Aggregate:
    """Judge the mixture and each expert by their ECE, Σ_b |E[D 1_b]|.

    Args:
        configurations: The rows, with labels.
        predictions: The same rows, for the class-wise ECE, which needs all classes.
        bins: The number of equal-width bins.
        level: The certainty of intervals.

    Returns:
        The mixture's numbers and each expert's.

    Example:
        >>> from calmoe.worlds import miscalibrated
        >>> rows = miscalibrated(seed=0).sample(2000, seed=0)
        >>> judged = aggregate(Configurations.of(rows), rows)
        >>> judged.ece.low > 0, judged.balance.high < 0  # off, and overconfident
        (True, True)
    """
    residual, n, noise = configurations.residual, len(configurations), configurations.noise
    index, mass = configurations.bins(bins), equal_masses(configurations.confidence, bins)
    each = 1 - (1 - level) / configurations.num_experts
    ece = binned_gap(residual, index, bins, level=level, noise=noise)
    plain = _Plain.of(residual, index, bins)
    return Aggregate(
        ece=ece,
        adaptive_ece=binned_gap(residual, mass, bins, level=level, noise=noise),
        smooth_ece=smooth(configurations, level=level),
        classwise_ece=NONE if predictions is None else classwise(predictions, bins=bins, level=level),
        plain_ece=ece._replace(value=plain.value),
        accuracy=proportion(float(configurations.known_outcome.mean()), n, level),
        balance=within(normal(float(residual.mean()), spread(residual, noise), level), -1.0, 1.0),
        experts_ece=experts_gap(configurations, bins=bins, level=level),
        experts=tuple(
            _expert(configurations, k, bins, each, (ece, plain, level))
            for k in range(configurations.num_experts)
        ),
    )


def equal_masses(confidence: np.ndarray, bins: int) -> np.ndarray:
    """The bin of equal mass of each confidence; no edge separates values that differ by rounding only. [N]"""
    rounded = torch.as_tensor(confidence.round(9))
    return mass_bins(rounded, torch.ones_like(rounded), bins).numpy()


def _expert(
    configurations: Configurations,
    k: int,
    bins: int,
    level: float,
    mixture: tuple[Estimate, "_Plain", float],
) -> Expert:
    assert configurations.own_outcome is not None
    routing = configurations.routing[:, k].astype(np.float64)
    confidence = configurations.own_confidence[:, k].astype(np.float64)
    residual, noise = configurations.own_outcome[:, k] - confidence, confidence * (1 - confidence)
    index = width_bins(torch.as_tensor(configurations.own_confidence[:, k]), bins).numpy()
    leads = (configurations.leading == k).astype(np.float64)

    def ece_under(weights: np.ndarray) -> Estimate:
        total = weights.sum()
        if total <= 0 or total**2 / (weights**2).sum() < FEWEST_EFFECTIVE:
            return NONE
        return binned_gap(residual, index, bins, weights, level, noise=noise)

    view, answer = ece_under(routing), configurations.experts[:, k].astype(np.float64)
    balance = routing * (configurations.known_outcome - answer)
    error = spread(balance, routing**2 * answer * (1 - answer))
    return Expert(
        share=within(mean(routing, level), 0.0, 1.0),
        leads=proportion(float(leads.mean()), len(leads), level),
        view=view,
        region=ece_under(leads),
        balance=within(normal(float(balance.mean()), error, level), -1.0, 1.0),
        excess=_excess(*mixture, view, _Plain.of(residual, index, bins, routing)),
    )


class _Plain(NamedTuple):
    """The plain ECE T = Σ_b |gap_b|, each row's influence on it, and the most that it is biased upward."""

    value: float
    influence: np.ndarray  # [N], of mean 0
    bias: float

    @classmethod
    def of(
        cls, residual: np.ndarray, index: np.ndarray, bins: int, weights: np.ndarray | None = None
    ) -> "_Plain":
        weight = np.ones(len(residual)) if weights is None else weights / max(weights.mean(), 1e-12)
        pushed = weight * residual
        gaps, squares = (np.bincount(index, values, minlength=bins) for values in (pushed, pushed**2))
        signed = np.where(gaps < 0, -1.0, 1.0)[index] * pushed
        value, n = float(np.abs(gaps).sum()) / len(residual), len(residual)
        # E|μ + σZ| − |μ| is largest at μ = 0: σ √(2/π)
        return cls(value, signed - weight * value, float(np.sqrt(2 / np.pi * squares).sum()) / n)


def _excess(ece: Estimate, mixture: _Plain, level: float, view: Estimate, expert: _Plain) -> Estimate:
    """A lower bound on ECE − ECE_k: T − T_k less the largest bias of T; the bias of T_k lowers it further."""
    if np.isnan(view.value):
        return NONE
    difference = mixture.influence - expert.influence
    error = float(np.sqrt((difference**2).sum())) / len(difference)
    bound = at_least(mixture.value - mixture.bias - expert.value, error, level)
    return bound._replace(value=max(ece.value - view.value, bound.low))


# --- how the report shows it --------------------------------------------------------------------------------

CAPTION = (
    "A mark is an estimate and its bar the interval; one that touches 0 may well be calibrated. "
    "A mixture right of all its experts is worse than they are; one at 0, beside experts that are not, leans "
    "on their errors cancelling."
)


def sentences(aggregate: Aggregate, rate: str, subject: str) -> str:
    """The mixture's numbers and how they compare with its experts'."""
    text = f"the {subject}'s ECE is {in_words(aggregate.ece)}, its {rate} {in_words(aggregate.accuracy)}"
    text += f"; on average it is off by {in_words(aggregate.balance)} ({rate} less confidence)."
    if aggregate.ece.value < abs(aggregate.balance.value):
        text += (
            " (The ECE is freed from its upward bias, and so may read below what it is off by on average.)"
        )
    if len(aggregate.experts) == 1:
        return text
    average = in_words(aggregate.experts_ece)
    text += f" On their routing-weighted views its experts' ECE is {average} on average."
    if aggregate.worse_than_experts:
        text += " The mixture is calibrated worse than every one of its experts."
    if aggregate.calibrated_unlike_experts:
        text += " The mixture may well be calibrated while some of its experts are not."
    return text


def draw_experts(aggregate: Aggregate, expert_names: Sequence[str], canvas: "Canvas") -> str:
    """The ECE of the mixture and of each expert, on its routing-weighted view and where it leads."""
    axes, experts = canvas.add_subplot(), aggregate.experts
    names = ["mixture", *expert_names]
    series = {
        "all rows": (-0.0, BLACK, "s", [aggregate.ece] + [None] * len(experts)),
        "routing-weighted view": (-0.12, BLUE, "o", [None, *(e.view for e in experts)]),
        "where it leads": (0.12, ORANGE, "^", [None, *(e.region for e in experts)]),
    }
    for title, (shift, colour, marker, estimates) in series.items():
        known = [(i, e) for i, e in enumerate(estimates) if e is not None and not np.isnan(e.value)]
        if known:
            values = np.array([(i + shift, e.value, e.value - e.low, e.high - e.value) for i, e in known])
            y, x, error = values[:, 0], values[:, 1], values[:, 2:].T
            axes.errorbar(x, y, xerr=error, fmt=marker, color=colour, label=title, lw=0.8)
    axes.set_yticks(range(len(names)), map(drawable, names))
    axes.set(xlabel="ECE", xlim=(0, None), ylim=(len(names) - 0.5, -0.5))
    axes.legend(loc="best")
    views = "; ".join(f"{name} {in_words(e.view)}" for name, e in zip(expert_names, experts, strict=True))
    return f"ECE of the mixture {in_words(aggregate.ece)}; on routing-weighted views: {views}."


def _numbers_table(report: "AuditReport") -> Grid:
    """Every way to measure the whole mixture."""
    numbers, rate = report.aggregate, rate_name(report.judged)
    rows = (
        (label(rate, "accuracy"), *cells(numbers.accuracy)),
        (label(f"balance: {rate} less confidence", "balance"), *cells(numbers.balance, sign=True)),
        (label("ECE, bins of equal width", "ece"), *cells(numbers.ece)),
        (label("ECE, bins of equal mass", "adaptive_ece"), *cells(numbers.adaptive_ece)),
        (label("smooth ECE", "smooth_ece"), *cells(numbers.smooth_ece)),
        (label("class-wise ECE", "classwise_ece"), *cells(numbers.classwise_ece)),
        (label("the usual ECE, biased upward", "plain_ece"), *cells(numbers.plain_ece)),
        (label("the experts' ECE on their views, on average", "experts_ece"), *cells(numbers.experts_ece)),
    )
    shown = rows if report.num_experts > 1 else rows[:-1]
    return Grid(
        f"The {subject_name(report)}", headings(("measure", "what"), ("estimate", "value*")), (shown,)
    )


def _experts_table(report: "AuditReport") -> Grid:
    """Each expert by its own predictions."""
    rows = tuple(
        (label(report.expert_names[k], f"expert_{k}"), *cells(e.share), *cells(e.view), *cells(e.region))
        for k, e in enumerate(report.aggregate.experts)
    )
    columns = headings(
        ("expert", "who"),
        ("share", "share*"),
        ("ECE on its view", "view*"),
        ("ECE where it leads", "region*"),
    )
    event = "the class that it predicts itself" if report.of == "top" else f"label {report.judged}"
    return Grid(f"The experts, each by {event}", columns, (rows,))


def _comparison_table(report: "AuditReport") -> Grid:
    """Each expert beside the mixture."""
    rows = tuple(
        (
            label(report.expert_names[k], f"expert_{k}"),
            *cells(e.balance, sign=True),
            *cells(e.excess, sign=True),
        )
        for k, e in enumerate(report.aggregate.experts)
    )
    columns = headings(
        ("expert", "who"), ("balance", "balance*"), ("the mixture's ECE less that on its view", "excess*")
    )
    return Grid("The experts beside the mixture: an expert's balance is E[r_k (Y − f_k)]", columns, (rows,))


def _compute(material: Material, inside: Inside) -> Findings:
    numbers = aggregate(
        material.configurations, material.predictions, bins=material.bins, level=material.level
    )
    return Findings({"aggregate": numbers})


def _summary(report: "AuditReport") -> Point:
    return Point("Aggregate", sentences(report.aggregate, rate_name(report.judged), subject_name(report)))


def _figures(report: "AuditReport") -> list[Figure]:
    experts = report.num_experts
    draw = partial(draw_experts, report.aggregate, report.expert_names)
    return [Figure("experts", CAPTION, COLUMN, 1.0 + 0.28 * experts, draw)] if experts > 1 else []


def _page(report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    mixed = report.num_experts > 1
    compared = [_experts_table(report), _comparison_table(report)] if mixed else []
    return PageSection(
        heading="The aggregate and its experts" if mixed else "The aggregate",
        how="ECE of the population at fixed bins: the usual upward bias is taken off, and an interval "
        "that starts at 0 means that calibrated predictions could look like this.",
        tables=[_numbers_table(report), *compared],
        figures=pictures,
    )


SECTION = Section(
    name="calibration", cost=2, compute=_compute, summary=_summary, figures=_figures, page=_page
)
