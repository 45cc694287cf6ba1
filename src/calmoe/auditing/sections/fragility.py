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

Several random splits choose the earlier rows. Each error is the middle one of the splits, its interval's ends
are the middle ends, at a level that pays for it; so no seed decides alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

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
from calmoe.auditing.statistics.adversaries import ATTACKS, Seen
from calmoe.auditing.statistics.estimates import RARE, Estimate, binned_gap, normal, within
from calmoe.auditing.statistics.sequential import Learned, Lessons
from calmoe.auditing.statistics.splits import decided, level_each, middle
from calmoe.defaults import BINS, LEVEL
from calmoe.render.grid import Grid, count, label, number
from calmoe.render.page import Picture, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.auditing.audit_report import AuditReport

RADII = (0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
QUOTED = 0.1  # the radius that sentences speak of
SMALLEST = 0.01  # "twice the ECE" takes an ECE below one point for one point
MOST_ATTACKED = 200_000  # judged rows of a split


def quoted(radii: np.ndarray) -> int:
    """The index of the first radius of at least 0.1, or of the last one."""
    return min(int(np.searchsorted(radii, QUOTED)), len(radii) - 1)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What one kind of adversary forces, radius by radius, demonstrated on labels.

    Attributes:
        name: Which adversary.
        radii: KL in nats. [R]
        error: E[a s_b D], the signs s chosen without these labels: unbiased for the population's Σ_b s_b E[a
            D 1_b] ≤ F(ε). The middle of the splits; the lower end is a lower bound of F(ε).
        by_split: The error of each split. The rest is of the split with the middle error. [splits, R]
        ece: The ECE of the population under the density a, at equal-width bins, with `total_gap`'s interval.
        plain_ece: What `calmoe.metrics.ece` gives on the judged rows with a as weights; biased upward. [R]
        effective: Kish's effective number of rows under a, (Σ a)² / Σ a². [R]
        densities: The reweighting of the judged rows, float32. [R, J]

    Example:
        >>> from calmoe.worlds import miscalibrated
        >>> rows = Configurations.of(miscalibrated(seed=0).sample(400, seed=0))
        >>> curve = fragility(rows, radii=(0.0, 0.1), splits=1).configurations
        >>> curve.reaches(0.0).value
        0.0
    """

    name: str
    radii: np.ndarray  # [R]
    error: tuple[Estimate, ...]
    by_split: np.ndarray  # [splits, R]
    ece: tuple[Estimate, ...]
    plain_ece: np.ndarray  # [R]
    effective: np.ndarray  # [R]
    densities: np.ndarray = field(metadata=UNSAVED)  # [R, J] float32: the reweighting of the judged rows

    @property
    def spread(self) -> np.ndarray:
        """The smallest and the largest error of a split, radius by radius. [2, R]"""
        return np.stack([self.by_split.min(axis=0), self.by_split.max(axis=0)])

    def reaches(self, error: float) -> Estimate:
        """The smallest radius, interpolated, at which this `error` is forced; infinite: not within the radii.

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

    Attributes:
        configurations: Knows the learned m(S) − f.
        regions: Only changes how often each expert leads, the shifts that leave a hard-routed mixture
            calibrated.
        disagreement: Tilts towards more or less of it, which needs no label.
        entropy: Tilts towards more or less of it, which needs no label.
        rows: The judged rows, in the order of `densities`. [J]
        doubled: Twice the ECE, or twice 0.01 where the ECE is smaller.
        doubling: The smallest KL at which the first curve reaches `doubled`. Since the true curve lies above
            the demonstrated one, the true KL is below the interval's upper end, and may be below its lower
            one. Infinite: not within the radii.
        splits: Random splits of the rows.
        undecided: The curves of which another seed might say otherwise whether they force an error at the
            radius that sentences quote (its lower end above 0).

    Example:
        >>> from calmoe.worlds import miscalibrated
        >>> rows = Configurations.of(miscalibrated(seed=0).sample(400, seed=0))
        >>> [curve.name for curve in fragility(rows, radii=(0.0, 0.1), splits=1).curves]
        ['configurations', 'regions', 'disagreement', 'entropy']
    """

    configurations: Curve
    regions: Curve
    disagreement: Curve
    entropy: Curve
    rows: np.ndarray = field(metadata=UNSAVED)  # [J] the judged rows, in the order of `densities`
    doubled: float
    doubling: Estimate
    splits: int
    undecided: tuple[str, ...]

    @property
    def decided(self) -> bool:
        """Whether all splits together say clearly that the first curve forces an error, or does not."""
        return "configurations" not in self.undecided

    @property
    def curves(self) -> tuple[Curve, ...]:
        """All four."""
        return self.configurations, self.regions, self.disagreement, self.entropy

    @property
    def moving(self) -> tuple[Curve, ...]:
        """The curves that have something to reweight: no regions where one expert leads everywhere."""
        return tuple(c for c in self.curves if c is self.configurations or np.ptp(c.densities) > 0)

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
    learned: Sequence[Learned] = (),
    *,
    radii: tuple[float, ...] = RADII,
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    splits: int | None = None,
    inside: Callable[[float], None] = lambda share: None,
) -> Fragility:
    """F(ε) = sup over KL(a) ≤ ε of Σ_b |E[a D 1_b]|: attack with what some rows taught, judge on others.

    Args:
        configurations: The rows, with labels.
        learned: What each split learned, if the caller has it.
        radii: The sizes of shifts, KL in nats.
        bins: The number of equal-width bins.
        level: The certainty of intervals.
        seed: Which rows teach and which are judged.
        splits: An odd number of random splits; by default fewer for many rows.
        inside: Hears which share of the work is done.

    Returns:
        The curves of four adversaries.

    Example:
        >>> from calmoe.worlds import cancelling
        >>> rows = Configurations.of(cancelling(seed=0, delta=0.15).sample(2000, seed=0))
        >>> curve = fragility(rows, radii=(0.0, 0.1), splits=1).configurations
        >>> curve.error[0].value < curve.error[1].value  # a larger shift forces a larger error
        True
    """
    learned = learned or Lessons(configurations, seed, splits)
    splits, at = len(learned), quoted(np.array(radii))
    scene = _Scene(configurations, bins)
    forced: dict[str, list[_Forced]] = {name: [] for name in ATTACKS}
    for r in range(splits):
        for name in ATTACKS:
            inside((r + list(ATTACKS).index(name) / len(ATTACKS)) / (splits + 1))
            forced[name].append(_attack(name, scene.blocks(learned[r], name), radii, bins)[0])
    shown = learned[middle([each.value[at] for each in forced["configurations"]])]
    rows, each = shown.rows[_attacked(shown)], level_each((1 + level) / 2, splits)
    curves, undecided = {}, []
    for name in ATTACKS:
        _, densities = _attack(name, scene.blocks(shown, name), radii, bins)
        errors = [_one_interval([part.at(i, each) for part in forced[name]]) for i in range(len(radii))]
        curves[name] = _curve(name, scene, rows, densities, errors, forced[name], radii, level)
        if not decided([part.at(at, each).low for part in forced[name]], 0.0):
            undecided.append(name)
    ece = binned_gap(configurations.residual, scene.index, bins, level=level, noise=configurations.noise)
    doubled = 2 * max(ece.value, SMALLEST)
    return Fragility(
        **curves,
        rows=rows,
        doubled=doubled,
        doubling=curves["configurations"].reaches(doubled),
        splits=splits,
        undecided=tuple(undecided),
    )


class _Forced(NamedTuple):
    """What an adversary forces on the judged rows of one split, and its standard error."""

    value: np.ndarray  # [R]
    error: np.ndarray  # [R]

    def at(self, i: int, one_sided: float) -> Estimate:
        """With an interval each of whose ends has this level."""
        return within(normal(float(self.value[i]), float(self.error[i]), 2 * one_sided - 1), -1.0, 1.0)


class _Scene:
    """The rows as adversaries see them."""

    def __init__(self, configurations: Configurations, bins: int) -> None:
        self.bins, self.index = bins, configurations.bins(bins)
        self.residual, self.noise = configurations.residual, configurations.noise
        self.leading = configurations.leading
        self.values = {"disagreement": configurations.disagreement, "entropy": configurations.entropy}

    def blocks(self, learned: Learned, name: str) -> list[tuple[Seen, Seen]]:
        """Earlier rows and judged ones, block by block."""
        values = self.values.get(name, self.residual)

        def seen(rows: np.ndarray, expected: np.ndarray) -> Seen:
            return Seen(
                expected,
                self.index[rows],
                self.leading[rows],
                values[rows],
                self.residual[rows],
                self.noise[rows],
            )

        kept = _attacked(learned)
        return [
            (seen(past, recalled), seen(learned.rows[part], learned.expected[part]))
            for part, past, recalled in zip(
                (kept[learned.block[kept] == b] for b in range(1, len(learned.past) + 1)),
                learned.past,
                learned.recalled,
                strict=True,
            )
        ]


def _attacked(learned: Learned) -> np.ndarray:
    """Positions of the judged rows that are attacked: of each block the first ones, in proportion."""
    share = min(1.0, MOST_ATTACKED / len(learned.rows))
    return np.concatenate([part[: int(np.ceil(share * len(part)))] for part in learned.parts()])


def _attack(
    name: str, blocks: list[tuple[Seen, Seen]], radii: tuple[float, ...], bins: int
) -> tuple[_Forced, np.ndarray]:
    """Attack block by block; densities [R, J] have mean 1 in each block, so that all rows weigh the same."""
    rows = sum(len(now.binned) for _, now in blocks)
    values, errors = np.empty(len(radii)), np.empty(len(radii))
    densities = np.ones((len(radii), rows), np.float32)
    for i, radius in enumerate(radii):
        forced, variance, signs, start = 0.0, 0.0, None, 0
        for past, now in blocks:
            density, signs = ATTACKS[name](past, now, radius, bins, signs)
            pushed = signs[now.binned] * now.residual
            here = float((density * pushed).mean())
            forced += here * len(pushed)
            seldom = min(float((density**2 * now.noise).sum()), RARE * float(density.max()) ** 2)
            variance += max(float((density**2 * (pushed - here) ** 2).sum()), seldom)
            densities[i, start : start + len(pushed)] = density
            start += len(pushed)
        values[i], errors[i] = forced / rows, variance**0.5 / rows
    return _Forced(values, errors), densities


def _one_interval(splits: list[Estimate]) -> Estimate:
    """The middle value, ends and error of the splits."""
    return Estimate(*(float(np.median(part)) for part in zip(*splits, strict=True)))


def _curve(
    name: str,
    scene: _Scene,
    rows: np.ndarray,
    densities: np.ndarray,
    errors: list[Estimate],
    forced: list[_Forced],
    radii: tuple[float, ...],
    level: float,
) -> Curve:
    """rows [J] and densities [R, J]: of the split that is shown."""
    residual, index, noise = scene.residual[rows], scene.index[rows], scene.noise[rows]
    eces, plain, effective = [], [], []
    for weights in densities.astype(np.float64):
        eces.append(binned_gap(residual, index, scene.bins, weights, level, noise=noise))
        sums = np.bincount(index, weights * residual, minlength=scene.bins)
        plain.append(np.abs(sums).sum() / weights.sum())
        effective.append(float(weights.sum() ** 2 / (weights**2).sum()))
    return Curve(
        name=name,
        radii=np.array(radii),
        error=tuple(errors),
        by_split=np.array([part.value for part in forced]),
        ece=tuple(eces),
        plain_ece=np.array(plain),
        effective=np.array(effective),
        densities=densities,
    )


# --- how the report shows it --------------------------------------------------------------------------------

CAPTION = (
    "A line says how large the calibration error becomes, on labels it was not chosen on, when "
    "the configurations are reweighted by as much as the KL below; bands are intervals. "
    "A line that climbs at once belongs to probabilities that a small shift breaks, a flat one to "
    "calibration that does not hang on the mix."
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
    if fragility.regions in fragility.moving:
        alone = in_words(fragility.regions.error[at])
        text += f"; reweighting the experts' regions alone gives {alone}"
    text += "." if fragility.decided else ", and another seed might say otherwise."
    doubled, doubling = fragility.doubled, fragility.doubling
    twice = "the ECE" if doubled > 2 * SMALLEST else f"{SMALLEST:g} (the ECE is smaller)"
    if np.isinf(doubling.high):
        return text + f" No KL up to {curve.radii[-1]:g} is shown to force {doubled:.3f}, twice {twice}."
    text += f" {doubled:.3f}, twice {twice}, is reached at KL {doubling.value:.3f}"
    return text + f", and by the lower ends of the intervals at {doubling.high:.3f}."


def draw_curves(fragility: Fragility, canvas: "Canvas") -> str:
    """The demonstrated calibration error against the KL radius with intervals, a line an adversary."""
    axes = canvas.add_subplot()
    for curve in fragility.moving:
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
    ends = ", ".join(f"{LOOKS[c.name][0]} {in_words(c.error[-1])}" for c in fragility.moving)
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
        for curve in fragility.moving
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
    seen = material.configurations
    one_leads = seen.num_experts > 1 and len(np.unique(seen.leading)) == 1
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
