"""The audit's section on fragility: the worst calibration error that a reweighting can force.

Within a KL radius ε of the configurations as they are:
F(ε) = sup { Σ_b |E[a(S) (m(S) − f) 1_b]| : E[a] = 1, KL(a) ≤ ε } = max over signs s of sup E[a s_b (m − f)],
and for given signs the best a is the exponential tilt of s_b (m − f). An adversary chooses its signs on
earlier rows, tilts the judged rows by what it learned from earlier rows (`statistics.sequential`), and is
demonstrated on the judged rows' labels: the mean of a s_b D is an unbiased estimate of an error that a
reweighting within the radius forces, and so of something no larger than F(ε). (Signs chosen on the judged
rows' configurations, even without their labels, would follow the accidents of the sample: too high by about
E|m − f| √(bins/n).)

Several random splits choose the earlier rows. Each error is the middle one of the splits, its interval's ends
are the middle ends, at a level that pays for it; so no seed decides alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import safetensors.numpy

from calmoe.arrays import UNSAVED
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.figures import COLUMN, Figure
from calmoe.auditing.presentation.fragility_curves import CAPTION, curves_table, draw_curves, sentences
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section, if_found
from calmoe.auditing.statistics.adversaries import ATTACKS
from calmoe.auditing.statistics.demonstration import (
    RADII,
    SMALLEST,
    Forced,
    Scene,
    attack,
    attacked,
    beyond_twice,
    quoted,
)
from calmoe.auditing.statistics.estimates import Estimate, binned_gap, binned_means, ece_from
from calmoe.auditing.statistics.sequential import Learned, Lessons
from calmoe.auditing.statistics.splits import decided, level_each, middle
from calmoe.defaults import BINS, LEVEL
from calmoe.render.page import Picture, Point

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

Steadiness = Literal["fragile", "steady", "not decided"]


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
        excess: At the radius that sentences quote, the first curve's error less twice the ECE, or less 0.02
            where the ECE is below 0.01. The ECE's own error is in the interval, which errs on the wide side.
        steadiness: Fragile, where the excess is surely above 0; steady, where it surely is not; not decided.
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
    excess: Estimate
    steadiness: Steadiness
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
    scene, each = Scene(configurations, bins), level_each((1 + level) / 2, splits)
    forced: dict[str, list[Forced]] = {name: [] for name in ATTACKS}
    for r in range(splits):
        for name in ATTACKS:
            inside((r + list(ATTACKS).index(name) / len(ATTACKS)) / (splits + 1))
            forced[name].append(attack(name, scene.blocks(learned[r], name), radii).forgotten())
    shown = learned[middle([done.value[at] for done in forced["configurations"]])]
    rows = shown.rows[attacked(shown)]
    curves, undecided = {}, []
    for name in ATTACKS:
        densities = attack(name, scene.blocks(shown, name), radii).densities
        errors = [_one_interval([part.at(i, each) for part in forced[name]]) for i in range(len(radii))]
        curves[name] = _curve(name, scene, rows, densities, errors, forced[name], radii, level)
        if not decided([part.at(at, each).low for part in forced[name]], 0.0):
            undecided.append(name)
    gaps = binned_means(configurations.residual, scene.index, bins, noise=configurations.noise)
    ece, surely = ece_from(*gaps, level), ece_from(*gaps, 2 * each - 1)
    excesses = [beyond_twice(part.at(at, each), surely) for part in forced["configurations"]]
    doubled = 2 * max(ece.value, SMALLEST)
    return Fragility(
        **curves,
        rows=rows,
        doubled=doubled,
        doubling=curves["configurations"].reaches(doubled),
        excess=_one_interval(excesses),
        steadiness=_steadiness(excesses),
        splits=splits,
        undecided=tuple(undecided),
    )


def _steadiness(excesses: list[Estimate]) -> Steadiness:
    """What the middle end says, if no other seed might say otherwise."""
    lows, highs = [excess.low for excess in excesses], [excess.high for excess in excesses]
    if np.median(lows) > 0 and decided(lows, 0.0):
        return "fragile"
    return "steady" if np.median(highs) <= 0 and decided(highs, 0.0) else "not decided"


def _one_interval(splits: list[Estimate]) -> Estimate:
    """The middle value, ends and error of the splits."""
    return Estimate(*(float(np.median(part)) for part in zip(*splits, strict=True)))


def _curve(
    name: str,
    scene: Scene,
    rows: np.ndarray,
    densities: np.ndarray,
    errors: list[Estimate],
    forced: list[Forced],
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
        folded=[curves_table(fragility)],
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
