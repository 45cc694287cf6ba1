"""The audit's section on skill: is the model worth anything? Calibration alone does not say.

A model that gives every row the base rates is calibrated and useless. So accuracy stands beside that of the
most frequent class, log loss beside that of the base rates, and, where one class is the positive one, the
ranking beside chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from calmoe.auditing.event import judge
from calmoe.auditing.presentation.numbers import cells, headings, in_words
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section
from calmoe.auditing.statistics.estimates import Estimate, mean, proportion, within
from calmoe.auditing.statistics.ranking import auroc, average_precision
from calmoe.defaults import LEVEL
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions
from calmoe.render.grid import Grid, label
from calmoe.render.page import Picture, Point

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

LITTLE = 0.05  # a share of the base rates' log loss: less is next to nothing
RANKED = 0.65  # an AUROC below this is next to chance
REVERSED = 0.45  # an AUROC surely below it is no accident: the order is the wrong way round
SELDOM = 0.3  # a class whose rows the model surely gets right less often is missed, if it gets none right
Worth = Literal["reversed", "useful", "spoiled", "little", "none", "not decided"]


@dataclass(frozen=True, kw_only=True)
class Skill:
    """What the predictions know beyond the base rates of these labels.

    accuracy, majority: of the model, and of always naming the most frequent label; gain: their difference,
    paired row by row. nll, base_nll: log loss of the model and of the base rates; log_skill is 1 less their
    ratio, 1 for perfect and 0 for no skill, minus infinity where a label has probability zero (`impossible`
    rows). auroc, average_precision: of class `positive`; None where no class is the positive one. missed:
    the classes that the model is never right on, where they have rows enough to tell, and how many. For of=c
    all of it concerns "the label is c", and no class is missed.
    """

    accuracy: Estimate
    majority: Estimate
    gain: Estimate
    nll: float
    base_nll: float
    log_skill: Estimate
    impossible: int
    positive: int | None
    base_rate: float | None
    auroc: Estimate | None
    average_precision: Estimate | None
    missed: tuple[tuple[int, int], ...]

    @property
    def worth(self) -> Worth:
        """useful: its log loss is below the base rates'. little: it surely knows next to nothing. none: its
        log loss is not below the base rates', nor its accuracy or ranking above chance. spoiled: they are,
        but its probabilities are so wrong that the base rates do better. reversed: it surely ranks positives
        below negatives.
        """
        loss, ranked = self.log_skill, self.auroc
        knows = self.gain.low > 0 or (ranked is not None and ranked.low > RANKED)
        if self.base_nll <= 0:  # one label only: nothing can be known beyond it
            return "not decided"
        if loss.high <= 0 and ranked is not None and ranked.high < REVERSED:
            return "reversed"
        if loss.high <= 0:
            return "spoiled" if knows else "none"
        if loss.high < LITTLE and self.gain.high < LITTLE and (ranked is None or ranked.high < RANKED):
            return "little"
        return "useful" if loss.low > 0 or knows else "not decided"


def skill(predictions: Predictions, *, of: Of = "top", level: float = LEVEL) -> Skill:
    """Measure it. of=c asks about the one class c.

    >>> from calmoe.worlds.binary import calibrated
    >>> measured = skill(calibrated(0).sample(2000, seed=0))
    >>> measured.worth, measured.auroc.low > 0.5, measured.log_skill.low > 0
    ('useful', True, True)
    """
    labels, losses, hits = judge(predictions, of)
    classes = predictions.num_classes if of == "top" else 2
    positive = 1 if of == "top" and predictions.num_classes == 2 else None if of == "top" else int(of)
    log_probs = predictions.output.log_probs
    scores = None if positive is None else log_probs[:, positive].double().exp().clamp(max=1).numpy()
    shares = np.bincount(labels, minlength=classes) / len(labels)
    usual, n = int(shares.argmax()), len(labels)
    with np.errstate(divide="ignore"):
        base = -np.log(shares)[labels]
    ones = None if positive is None else (labels == (positive if of == "top" else 1)).astype(np.float64)
    return Skill(
        accuracy=proportion(float(hits.mean()), n, level),
        majority=proportion(float(shares[usual]), n, level),
        gain=within(mean(hits * 1.0 - (labels == usual), level), -1.0, 1.0),
        nll=float(losses.mean()),
        base_nll=float(base.mean()),
        log_skill=_log_skill(losses, base, level),
        impossible=int(np.isinf(losses).sum()),
        positive=positive,
        base_rate=None if ones is None else float(ones.mean()),
        auroc=None if ones is None or scores is None else auroc(scores, ones, level),
        average_precision=None if ones is None or scores is None else average_precision(scores, ones, level),
        missed=missed(np.bincount(labels), np.bincount(labels, hits), level) if of == "top" else (),
    )


def missed(counts: np.ndarray, hits: np.ndarray, level: float) -> tuple[tuple[int, int], ...]:
    """Classes without a hit, with their rows; counts, hits: of each label. [C]

    Each has so many rows that a model that is right on `SELDOM` of them would have had a hit: for all
    classes together this holds with probability `level`.

    >>> missed(np.array([90, 12, 3]), np.array([80, 0, 0]), level=0.95)
    ((1, 12),)
    """
    comparisons = max(1, int((counts > 0).sum()))
    enough = (1 - SELDOM) ** counts <= (1 - level) / comparisons
    return tuple((int(c), int(counts[c])) for c in np.flatnonzero(enough & (hits == 0)))


def _log_skill(losses: np.ndarray, base: np.ndarray, level: float) -> Estimate:
    """1 − E[loss]/E[base] with the delta method's interval; estimating the rates is of second order."""
    expected = float(base.mean())
    if expected <= 0:  # one label only: the base rates cannot be beaten
        nothing = -np.inf if losses.mean() > 0 else 0.0
        return Estimate(nothing, nothing, 0.0, float("nan"))
    if not np.isfinite(losses).all():
        return Estimate(-np.inf, -np.inf, -np.inf, float("nan"))
    ratio = float(losses.mean()) / expected
    influence = mean((ratio * base - losses) / expected, level)
    value = 1 - ratio
    high = min(value + influence.high - influence.value, 1.0)
    return Estimate(value, value + influence.low - influence.value, high, influence.standard_error)


# --- how the report shows it --------------------------------------------------------------------------------


def sentences(skill: Skill) -> str:
    """Accuracy beside the most frequent class, log loss beside the base rates, the ranking beside chance."""
    text = (
        f"it is right on {in_words(skill.accuracy)} of rows; always naming the most frequent label, on "
        f"{in_words(skill.majority)}."
    )
    if skill.impossible:
        text += f" {skill.impossible} rows give their label probability zero: the log loss is infinite."
    elif np.isfinite(skill.log_skill.value):
        text += f" It takes {in_words(skill.log_skill)} of the base rates' log loss away (1 is perfect)."
    if skill.auroc is not None and not np.isnan(skill.auroc.value):
        text += f" It ranks a positive row above a negative one with chance {in_words(skill.auroc)}."
    return text


def skill_table(skill: Skill, class_names: Sequence[str] | None = None) -> Grid:
    """One measure a row."""
    measures = {
        "accuracy": ("accuracy", skill.accuracy, False),
        "majority": ("accuracy of always naming the most frequent label", skill.majority, False),
        "gain": ("accuracy above that", skill.gain, True),
        "log_skill": ("log loss taken away from the base rates'", skill.log_skill, True),
        "auroc": ("AUROC", skill.auroc, False),
        "average_precision": ("average precision", skill.average_precision, False),
    }
    rows = tuple(
        (label(title, key), *cells(estimate, sign=sign))
        for key, (title, estimate, sign) in measures.items()
        if estimate is not None and np.isfinite(estimate.value)
    )
    caption = "What the model knows beyond the base rates"
    if skill.base_rate is not None and skill.positive is not None:
        positive = f"class {skill.positive}" if class_names is None else class_names[skill.positive]
        caption += f"; {skill.base_rate:.1%} of rows are {positive}, which is chance's average precision"
    return Grid(caption, headings(("measure", "what"), ("estimate", "value*")), (rows,))


def _compute(material: Material, inside: Inside) -> Findings:
    return Findings({"skill": skill(material.predictions, of=material.of, level=material.level)})


def _summary(report: "AuditReport") -> Point:
    return Point("Skill", sentences(report.skill))


def _page(report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    return PageSection(
        heading="Skill",
        how="A model that only repeats the base rates can be calibrated and useless. These measures say how "
        "much more it knows.",
        tables=[skill_table(report.skill, report.class_names)],
    )


SECTION = Section(name="skill", cost=0.3, compute=_compute, summary=_summary, page=_page, folded=False)
