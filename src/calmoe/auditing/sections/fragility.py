"""The audit's section on fragility: the worst calibration error that a reweighting can force.

Within a KL radius ε of the configurations as they are:
F(ε) = sup { Σ_b |E[a(S) (m(S) − f) 1_b]| : E[a] = 1, KL(a) ≤ ε } = max over signs s of sup E[a s_b (m − f)],
and for given signs the best a is the exponential tilt of s_b (m − f). An adversary chooses its signs on
earlier rows, tilts the judged rows by what it learned from earlier rows (`statistics.sequential`), and is
demonstrated on the judged rows' labels: the mean of a s_b D is an unbiased estimate of an error that a
reweighting within the radius forces, and so of something no larger than F(ε). (Signs chosen on the judged
rows' configurations, even without their labels, would follow the accidents of the sample: too high by about
E|m − f| √(bins/n).) An adversary chooses its signs once, before the first judged block: blocks that push a
bin to opposite sides cancel, and their joint reweighting would force less than each alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import safetensors.numpy

from calmoe.arrays import UNSAVED
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.figures import (
    BLUE,
    COLUMN,
    GREEN,
    GREY,
    PURPLE,
    VERMILION,
    Figure,
)
from calmoe.auditing.presentation.numbers import cells, headings, in_words
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section, if_found
from calmoe.auditing.statistics.adversaries import ATTACKS, Attack, Seen
from calmoe.auditing.statistics.estimates import RARE, Estimate, binned_gap, normal, within
from calmoe.auditing.statistics.sequential import Learned, learn
from calmoe.defaults import BINS, LEVEL
from calmoe.render.grid import Grid, count, label, number
from calmoe.render.page import Picture, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.auditing.audit_report import AuditReport

RADII = (0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
QUOTED = 0.1  # the radius that sentences speak of
SMALLEST = 0.01  # "twice the ECE" takes an ECE below one point for one point


def quoted(radii: np.ndarray) -> int:
    """The index of the first radius of at least 0.1, or of the last one."""
    return min(int(np.searchsorted(radii, QUOTED)), len(radii) - 1)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What one kind of adversary forces, radius by radius, demonstrated on labels.

    error: E[a s_b D], the signs s chosen without these labels: unbiased for the population's
        Σ_b s_b E[a D 1_b] ≤ F(ε); two-sided interval.
    ece: the ECE of the population under the density a, at equal-width bins, with `total_gap`'s interval.
    plain_ece: what `calmoe.metrics.ece` gives on the judged rows with a as weights; biased upward.
    effective: Kish's effective number of rows under a, (Σ a)² / Σ a².
    """

    name: str
    radii: np.ndarray  # [R]
    error: tuple[Estimate, ...]
    ece: tuple[Estimate, ...]
    plain_ece: np.ndarray  # [R]
    effective: np.ndarray  # [R]
    densities: np.ndarray = field(metadata=UNSAVED)  # [R, J] float32: the reweighting of the judged rows

    def reaches(self, error: float) -> Estimate:
        """The smallest radius, interpolated, at which the error is forced; infinite: not within the radii.

        Its interval: where the curve's upper ends reach the error, and where its lower ends do.
        """
        ends = (np.array([getattr(point, end) for point in self.error]) for end in ("value", "high", "low"))
        value, low, high = (self._crosses(values, error) for values in ends)
        return Estimate(value, low, high, float("nan"))

    def _crosses(self, values: np.ndarray, error: float) -> float:
        above = np.flatnonzero(values >= error)
        if not len(above):
            return float("inf")
        i = int(above[0])
        if i == 0:
            return float(self.radii[0])
        part = (error - values[i - 1]) / (values[i] - values[i - 1])
        return float(self.radii[i - 1] + part * (self.radii[i] - self.radii[i - 1]))


@dataclass(frozen=True, kw_only=True)
class Fragility:
    """The curves of four adversaries, and the one number to quote.

    configurations: knows the learned m(S) − f. regions: only changes how often each expert leads, the shifts
    that leave a hard-routed mixture calibrated. disagreement, entropy: tilt towards more or less of it, which
    needs no label.
    doubling: the smallest KL at which the first curve reaches `doubled`: twice the ECE, or twice 0.01 where
    the ECE is smaller. Since the true curve lies above the demonstrated one, the true KL is below the
    interval's upper end, and may be below its lower one. Infinite: not within the radii.
    """

    configurations: Curve
    regions: Curve
    disagreement: Curve
    entropy: Curve
    rows: np.ndarray = field(metadata=UNSAVED)  # [J] the judged rows, in the order of `densities`
    doubled: float
    doubling: Estimate

    @property
    def curves(self) -> tuple[Curve, ...]:
        return self.configurations, self.regions, self.disagreement, self.entropy

    @property
    def has_regions(self) -> bool:
        """Whether more than one expert leads somewhere: else reweighting regions changes nothing."""
        return bool(np.ptp([point.value for point in self.regions.error]) > 1e-12)

    @property
    def shown(self) -> tuple[Curve, ...]:
        """The curves that say something."""
        return tuple(curve for curve in self.curves if curve is not self.regions or self.has_regions)

    def reweightings(self) -> dict[str, np.ndarray]:
        """`rows`, the judged rows' indices [J]; each curve's `NAME.radii` [R] and `NAME.densities` [R, J]."""
        parts = {
            f"{curve.name}.{part}": getattr(curve, part)
            for curve in self.curves
            for part in ("radii", "densities")
        }
        return {"rows": self.rows, **parts}


def fragility(
    configurations: Configurations,
    learned: Learned | None = None,
    *,
    radii: tuple[float, ...] = RADII,
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    inside: Callable[[float], None] = lambda share: None,
) -> Fragility:
    """Attack and demonstrate. learned: the learned m(S) − f, if the caller has it; inside: hears progress."""
    learned = learned or learn(configurations, seed)
    everywhere, residual = configurations.bins(bins), configurations.residual
    leading, noise = configurations.leading, configurations.noise

    def seen(rows: np.ndarray, expected: np.ndarray, values: np.ndarray) -> Seen:
        return Seen(expected, everywhere[rows], leading[rows], values[rows], residual[rows], noise[rows])

    def curve(name: str, attack: Attack, values: np.ndarray) -> Curve:
        inside(list(ATTACKS).index(name) / len(ATTACKS))
        blocks = [
            (
                part,
                seen(past, recalled, values),
                seen(learned.rows[part], learned.expected[part], values),
            )
            for part, past, recalled in zip(learned.parts(), learned.past, learned.recalled, strict=True)
        ]
        return _demonstrate(name, attack, blocks, radii, bins, level)

    values = {"disagreement": configurations.disagreement, "entropy": configurations.entropy}
    curves = {name: curve(name, attack, values.get(name, residual)) for name, attack in ATTACKS.items()}
    ece = binned_gap(residual, everywhere, bins, level=level, noise=noise)
    doubled = 2 * max(ece.value, SMALLEST)
    return Fragility(
        **curves,
        rows=learned.rows,
        doubled=doubled,
        doubling=curves["configurations"].reaches(doubled),
    )


def _demonstrate(
    name: str,
    attack: Attack,
    blocks: list[tuple[np.ndarray, Seen, Seen]],
    radii: tuple[float, ...],
    bins: int,
    level: float,
) -> Curve:
    """Attack block by block; densities have mean 1 in each block, so that all blocks weigh the same."""
    index = np.concatenate([now.binned for *_, now in blocks])
    residual, noise = (
        np.concatenate([getattr(now, name) for *_, now in blocks]) for name in ("residual", "noise")
    )
    errors, eces, plain, effective = [], [], [], []
    densities = np.ones((len(radii), len(residual)), np.float32)
    for i, radius in enumerate(radii):
        forced, variance, signs = 0.0, 0.0, None
        for part, past, now in blocks:
            density, signs = attack(past, now, radius, bins, signs)
            pushed = signs[now.binned] * now.residual
            here = float((density * pushed).mean())
            forced += here * len(part)
            seldom = min(float((density**2 * now.noise).sum()), RARE * float(density.max()) ** 2)
            variance += max(float((density**2 * (pushed - here) ** 2).sum()), seldom)
            densities[i, part] = density
        error = normal(forced / len(residual), variance**0.5 / len(residual), level)
        errors.append(within(error, -1.0, 1.0))
        weights = densities[i].astype(np.float64)
        eces.append(binned_gap(residual, index, bins, weights, level, noise=noise))
        plain.append(np.abs(np.bincount(index, weights * residual, minlength=bins)).sum() / weights.sum())
        effective.append(float(weights.sum() ** 2 / (weights**2).sum()))
    return Curve(
        name=name,
        radii=np.array(radii),
        error=tuple(errors),
        ece=tuple(eces),
        plain_ece=np.array(plain),
        effective=np.array(effective),
        densities=densities,
    )


# --- how the report shows it --------------------------------------------------------------------------------

CAPTION = (
    "A line says how large the calibration error becomes, on labels it was not chosen on, when "
    "the configurations are reweighted by as much as the KL below; bands are intervals. "
    "A line that climbs at once belongs to a mixture that a small shift breaks, a flat one to calibration "
    "that does not hang on the mix."
)
LOOKS = {
    "configurations": ("any configurations", VERMILION, "o"),
    "regions": ("the experts' regions", BLUE, "s"),
    "disagreement": ("more or less disagreement", GREEN, "^"),
    "entropy": ("more or less routing entropy", PURPLE, "v"),
}


def sentences(fragility: Fragility) -> str:
    """What a reweighting with KL 0.1 forces, and how far it takes to double the ECE."""
    curve, at = fragility.configurations, quoted(fragility.configurations.radii)
    force = "forces" if curve.error[at].low > 0 else "is not shown to force"
    text = (
        f"a reweighting of the configurations with KL {curve.radii[at]:g} {force} a calibration error: "
        f"{in_words(curve.error[at])} on labels it was not chosen on"
    )
    if fragility.has_regions:
        text += f"; reweighting the experts' regions alone gives {in_words(fragility.regions.error[at])}"
    text += "."
    doubled, doubling = fragility.doubled, fragility.doubling
    twice = "the ECE" if doubled > 2 * SMALLEST else f"{SMALLEST:g} (the ECE is smaller)"
    if np.isinf(doubling.high):
        return text + f" No KL up to {curve.radii[-1]:g} is shown to force {doubled:.3f}, twice {twice}."
    text += f" {doubled:.3f}, twice {twice}, is reached at KL {doubling.value:.3f}"
    return text + f", and by the lower ends of the intervals at {doubling.high:.3f}."


def draw_curves(fragility: Fragility, canvas: "Canvas") -> str:
    """The demonstrated calibration error against the KL radius with intervals, a line an adversary."""
    axes = canvas.add_subplot()
    for curve in fragility.shown:
        title, colour, marker = LOOKS[curve.name]
        value, low, high = (
            np.array([getattr(p, end) for p in curve.error]) for end in ("value", "low", "high")
        )
        axes.plot(curve.radii, value, color=colour, marker=marker, label=title)
        axes.fill_between(curve.radii, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(fragility.doubled, color=GREY, linewidth=0.6, linestyle=":")
    axes.annotate(
        "twice the ECE",
        (1, fragility.doubled),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="bottom",
        color=GREY,
    )
    axes.set(
        xlabel="KL radius ε",
        ylabel="calibration error on held-out labels",
        ylim=(min(0, *axes.get_ylim()), None),
    )
    axes.legend(title="reweighting", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    ends = ", ".join(f"{LOOKS[c.name][0]} {in_words(c.error[-1])}" for c in fragility.shown)
    furthest = fragility.configurations.radii[-1]
    return f"Calibration error under the worst reweighting; at KL {furthest:g}: {ends}."


def _curves_table(fragility: Fragility) -> Grid:
    rows = tuple(
        tuple(
            (
                label(curve.name, curve.name),
                number(float(radius)),
                *cells(curve.error[i], sign=True),
                *cells(curve.ece[i]),
                count(round(curve.effective[i])),
            )
            for i, radius in enumerate(curve.radii)
        )
        for curve in fragility.shown
    )
    columns = headings(
        ("reweighting of", "curve"),
        ("KL", "kl"),
        ("error forced", "error*"),
        ("ECE", "ece*"),
        ("effective rows", "effective"),
    )
    return Grid("Every point of the curves", columns, rows)


def _compute(material: Material, inside: Inside) -> Findings:
    reason = material.why_not_learned
    if reason is not None:
        return Findings({"fragility": None}, {"fragility": reason})
    curves = material.measured(fragility, inside)
    one_leads = len(np.unique(material.configurations.leading)) == 1
    why = "one expert leads everywhere: there are no regions to reweight"
    return Findings({"fragility": curves}, {"region reweighting": why} if one_leads else {})


def _summary(fragility: Fragility, report: "AuditReport") -> Point:
    return Point("Fragility", sentences(fragility))


def _figures(fragility: Fragility, report: "AuditReport") -> list[Figure]:
    return [Figure("fragility", CAPTION, COLUMN, 3.1, partial(draw_curves, fragility))]


def _page(fragility: Fragility, report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    return PageSection(
        heading="Fragility",
        how="Each point is a reweighting chosen without the labels it is shown on: the true worst "
        "case is at least that bad.",
        folded=[_curves_table(fragility)],
        figures=pictures,
    )


def _files(fragility: Fragility, report: "AuditReport") -> dict[str, bytes]:
    tensors = {name: np.ascontiguousarray(array) for name, array in fragility.reweightings().items()}
    return {"reweightings.safetensors": safetensors.numpy.save(tensors)}


SECTION = Section(
    name="fragility",
    cost=1,
    compute=_compute,
    summary=if_found("fragility", _summary, None),
    figures=if_found("fragility", _figures, []),
    page=if_found("fragility", _page, None),
    files=if_found("fragility", _files, {}),
)
