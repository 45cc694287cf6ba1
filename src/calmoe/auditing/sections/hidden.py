"""The audit's section on hidden miscalibration: what cancels between configurations, unseen by any ECE.

E|m(S) − f| is set against the level-set error, which is all that an ECE sees.
sup over |g| ≤ 1 of E[(Y − f) g(S)] = E|m(S) − f|. So the mean of D g(S), with a witness g learned on other
rows, is an honest lower bound: it errs on the low side only, by what g has not learned. Several random splits
choose the other rows; `statistics.splits` makes one answer out of all.

A control learns from the mixture's own vector V alone, on the same rows: what it finds is visible without
router and experts. `statistics.origin` says what they add to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.glossary import rate_name
from calmoe.auditing.presentation.hidden_findings import bounds_table, rules_table, sentences
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section, if_found
from calmoe.auditing.statistics.estimates import (
    Estimate,
    at_least,
    binned_gap,
    spread,
)
from calmoe.auditing.statistics.origin import BOTH, NOT_DECIDED, OWN_VECTOR, ROUTING, added
from calmoe.auditing.statistics.rules import Rule, rules_of
from calmoe.auditing.statistics.sequential import Learned, Lessons, learn_without_routing
from calmoe.auditing.statistics.splits import (
    decided,
    decided_p_value,
    level_each,
    middle,
    one_bound,
    one_p_value,
    seeds,
)
from calmoe.defaults import BINS, LEVEL
from calmoe.render.page import Picture, Point

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

STRATUM = 50  # rows of nearly equal confidence among which the test exchanges residuals
FOUND = 0.05  # a p-value below it counts as a finding


@dataclass(frozen=True, kw_only=True)
class Hidden:
    """How much of the calibration is cancellation between configurations, and where it comes from.

    Attributes:
        level_set: Σ_b |E[D 1_b]|, the ECE of the population at equal-width bins; two-sided.
        witness: E[D g(S)] ≤ E|m(S) − f| for the learned g = sign of the expected m(S) − f; a lower bound.
        cancelled: E|m(S) − f| − Σ_b |E[D 1_b]|, what the ECE cannot see; a lower bound. It subtracts the
            judged rows' ECE with its upward bias, and so errs on the low side.
        without_routing: E[D g(V)] ≤ E|m(V) − f|: what the mixture's own vector V (its predicted class
            included) shows without router and experts; a lower bound on the same rows.
        routing_adds: E|m(S) − m(V)|: by how much rows with the same V differ by routing and experts; a lower
            bound, among rows alike in V (`statistics.origin`). Zero for one expert.
        p_calibrated: Of the null "calibrated in every configuration", m(S) = f: the sum of D ĥ(S) against its
            variance Σ ĥ² f (1 − f) under that null.
        p_hidden: Of the null "given f, the configuration says nothing more": the same sum, with the trend in
            f removed from both factors, against its law when rows of nearly equal f exchange their residuals.
        p_without_routing: The same of the null "given f, the mixture's own vector says nothing more".
        p_routing: Of the null "given the mixture's own vector, router and experts say nothing more".
        splits: Random splits of the rows; bounds and p-values are the middle ones over the splits, at a level
            or times a factor that pays for it (`calmoe.auditing.statistics.splits`).
        by_split: p_hidden of each split.
        undecided: The names of those numbers above whose verdict (a p-value below 0.05, a lower end above 0)
            another seed might change: the splits do not agree on it.
        rules: Those of the split with the middle p_hidden.

    Example:
        >>> from calmoe.worlds import calibrated
        >>> rows = Configurations.of(calibrated(seed=0).sample(300, seed=0))
        >>> hidden(rows, splits=1).witness.high  # a lower bound has no upper end
        inf
    """

    level_set: Estimate
    witness: Estimate
    cancelled: Estimate
    without_routing: Estimate
    routing_adds: Estimate
    p_calibrated: float
    p_hidden: float
    p_without_routing: float
    p_routing: float
    splits: int
    by_split: tuple[float, ...]
    undecided: tuple[str, ...]
    rules: tuple[Rule, ...]

    @property
    def decided(self) -> bool:
        """Whether all splits together say clearly that something is hidden, or that nothing was found."""
        return "p_hidden" not in self.undecided

    @property
    def origin(self) -> str | None:
        """Where what is hidden comes from; None where nothing was found hidden.

        "mixture's own vector": a model of it alone finds it, and routing is not shown to add anything.
        "routing": router and experts add to it, and the vector alone shows nothing. "both", "not decided".
        """
        if self.p_hidden >= FOUND:
            return None
        own, routing = self.p_without_routing < FOUND, self.p_routing < FOUND
        unclear = {"p_without_routing": own, "p_routing": routing}.keys() & set(self.undecided)
        if unclear or not (own or routing):
            return NOT_DECIDED
        return BOTH if own and routing else OWN_VECTOR if own else ROUTING


BOUNDS = ("witness", "cancelled", "without_routing", "routing_adds")
P_VALUES = ("p_calibrated", "p_hidden", "p_without_routing", "p_routing")


class _Split(NamedTuple):
    """The answer of one split."""

    witness: Estimate
    cancelled: Estimate
    without_routing: Estimate
    routing_adds: Estimate
    p_calibrated: float
    p_hidden: float
    p_without_routing: float
    p_routing: float
    rules: tuple[Rule, ...]


def hidden(
    configurations: Configurations,
    learned: Sequence[Learned] = (),
    *,
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    splits: int | None = None,
    inside: Callable[[float], None] = lambda share: None,
) -> Hidden:
    """Bound E|m(S) − f| from below: learn the sign of m(S) − f on some rows, and judge it on others.

    Args:
        configurations: The rows, with labels.
        learned: What each split learned, if the caller has it (`Lessons`).
        bins: The number of equal-width bins.
        level: The certainty of intervals.
        seed: Which rows teach and which are judged.
        splits: An odd number of random splits; by default fewer for many rows.
        inside: Hears which share of the work is done.

    Returns:
        What is hidden, and where it comes from.

    Example:
        >>> from calmoe.worlds import cancelling
        >>> rows = Configurations.of(cancelling(seed=0, delta=0.15).sample(2000, seed=0))
        >>> result = hidden(rows, splits=1)
        >>> result.level_set.low, result.witness.low > 0.05  # the ECE may be zero, and yet
        (0.0, True)
    """
    learned = learned or Lessons(configurations, seed, splits)
    splits = len(learned)
    answers = []
    for r, split_seed in enumerate(seeds(seed, splits)):
        inside(r / splits)
        answers.append(_split(configurations, learned[r], bins, level, split_seed, splits))
    bounds = {name: [getattr(answer, name) for answer in answers] for name in BOUNDS}
    p_values = {name: [getattr(answer, name) for answer in answers] for name in P_VALUES}
    unsure = [
        *(name for name, each in bounds.items() if not decided([bound.low for bound in each], 0.0)),
        *(name for name, each in p_values.items() if not decided_p_value(each, FOUND)),
    ]
    return Hidden(
        level_set=binned_gap(
            configurations.residual,
            configurations.bins(bins),
            bins,
            level=level,
            noise=configurations.noise,
        ),
        witness=one_bound(bounds["witness"]),
        cancelled=one_bound(bounds["cancelled"]),
        without_routing=one_bound(bounds["without_routing"]),
        routing_adds=one_bound(bounds["routing_adds"]),
        p_calibrated=one_p_value(p_values["p_calibrated"]),
        p_hidden=one_p_value(p_values["p_hidden"]),
        p_without_routing=one_p_value(p_values["p_without_routing"]),
        p_routing=one_p_value(p_values["p_routing"]),
        splits=splits,
        by_split=tuple(p_values["p_hidden"]),
        undecided=tuple(unsure),
        rules=answers[middle(p_values["p_hidden"])].rules,
    )


def _split(
    configurations: Configurations, learned: Learned, bins: int, level: float, seed: int, splits: int
) -> _Split:
    residual, index = configurations.residual, configurations.bins(bins)
    judged, binned = residual[learned.rows], index[learned.rows]
    control = replace(learned, expected=learn_without_routing(configurations, learned, seed))
    witness, own = (np.where(each.expected >= 0, 1.0, -1.0) for each in (learned, control))
    signs = np.where(np.bincount(binned, judged, minlength=bins) >= 0, 1.0, -1.0)
    noise, each = configurations.noise[learned.rows], level_each(level, splits)
    more = added(configurations, learned, control.expected, each)
    return _Split(
        witness=_lower(judged, witness, noise, each),
        cancelled=_lower(judged, witness - signs[binned], noise, each),
        without_routing=_lower(judged, own, noise, each),
        routing_adds=more.bound,
        p_calibrated=_p_calibrated(judged, configurations.confidence[learned.rows], learned.expected),
        p_hidden=_p_hidden(configurations, learned, seed),
        p_without_routing=_p_hidden(configurations, control, seed),
        p_routing=more.p_value,
        rules=rules_of(configurations, learned, index, bins, 1 - (1 - level) / splits),
    )


def _lower(residual: np.ndarray, weights: np.ndarray, noise: np.ndarray, level: float) -> Estimate:
    """A bound from below on E[w D]."""
    values = weights * residual
    return at_least(float(values.mean()), spread(values, weights**2 * noise), level)


def _p_calibrated(residual: np.ndarray, confidence: np.ndarray, expected: np.ndarray) -> float:
    variance = float((expected**2 * confidence * (1 - confidence)).sum())
    score = float((residual * expected).sum())
    return float(ndtr(-score / variance**0.5)) if variance > 0 else float(score <= 0)


def _p_hidden(configurations: Configurations, learned: Learned, seed: int) -> float:
    """Within a stratum of m rows, let u and e be ĥ and D less their lines in f: Σ u e has mean 0.

    Without removing the trend in f, an ECE that changes inside a stratum would pass for something hidden.
    Exchanging the e (Freedman and Lane) gives Σ u e the variance SS_u SS_e / (m − 2); where the noise changes
    with u, it is Σ u² e² m / (m − 2). The test uses the larger of the two sums over all strata.
    """
    confidence, residual = configurations.confidence[learned.rows], configurations.residual[learned.rows]
    score = exchanged = own = 0.0
    ties = np.random.default_rng(seed).random(len(confidence))
    for part in learned.parts():
        order = part[np.lexsort((ties[part], confidence[part]))]
        stratum = np.arange(len(order)) * max(len(order) // STRATUM, 1) // len(order)
        counts = np.bincount(stratum)
        f = _centred(confidence[order], stratum, counts)
        left, right = (
            _detrended(_centred(values[order], stratum, counts), f, stratum)
            for values in (learned.expected, residual)
        )
        free = np.maximum(counts - 2, 1)
        score += float((left * right).sum())
        squares = np.bincount(stratum, left**2) * np.bincount(stratum, right**2)
        exchanged += float((squares / free).sum())
        own += float((np.bincount(stratum, (left * right) ** 2) * counts / free).sum())
    variance = max(exchanged, own)
    return float(ndtr(-score / variance**0.5)) if variance > 0 else 1.0


def _centred(values: np.ndarray, stratum: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return values - (np.bincount(stratum, values) / counts)[stratum]


def _detrended(values: np.ndarray, f: np.ndarray, stratum: np.ndarray) -> np.ndarray:
    """Centred values less their line in the centred f, stratum by stratum; rounding errors become zero."""
    squares = np.bincount(stratum, f**2)
    slope = np.bincount(stratum, values * f) / np.where(squares > 1e-16, squares, np.inf)
    rest = values - slope[stratum] * f
    return np.where(np.abs(rest) > 1e-12, rest, 0.0)


def _compute(material: Material, inside: Inside) -> Findings:
    reason = material.why_not_learned
    if reason is not None:
        return Findings({"hidden": None}, {"hidden miscalibration": reason})
    return Findings({"hidden": material.measured(hidden, inside)})


def _summary(hidden: Hidden, report: "AuditReport") -> Point:
    return Point("Hidden miscalibration", sentences(hidden, report.routed))


def _page(hidden: Hidden, report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    return PageSection(
        heading="Hidden miscalibration",
        how="A witness, learned on other rows, bounds E|m(S) − f| from below; what cancels inside a "
        "bin is calibrated by proportions only. A small second p-value says that configurations of "
        "equal confidence differ.",
        tables=[
            bounds_table(hidden, report.num_experts, report.routed),
            rules_table(hidden, rate_name(report.judged)),
        ],
    )


SECTION = Section(
    name="hidden miscalibration",
    cost=3,
    compute=_compute,
    summary=if_found("hidden", _summary, None),
    page=if_found("hidden", _page, None),
)
