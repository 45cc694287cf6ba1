"""The audit of one file of predictions, and its report: sections compute, speak, draw and save in turn.

A new section is a file in `sections/`, a line in `SECTIONS`, and the field of `AuditReport` that it fills.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from calmoe.arrays import UNSAVED, as_count, as_number, check_bins, plain
from calmoe.auditing.configurations import CHUNK
from calmoe.auditing.event import judged_class
from calmoe.auditing.folder import AUDIT
from calmoe.auditing.presentation.commands import Asked
from calmoe.auditing.presentation.figures import draw
from calmoe.auditing.presentation.page import page
from calmoe.auditing.presentation.summary import summary
from calmoe.auditing.sampled import Sampled
from calmoe.auditing.sections import (
    auditors,
    calibration,
    certificates,
    explorer,
    fragility,
    groups,
    hidden,
    reliability,
    repair,
    skill,
    target,
)
from calmoe.auditing.sections.auditors import Auditors
from calmoe.auditing.sections.calibration import Aggregate
from calmoe.auditing.sections.certificates import Certificates
from calmoe.auditing.sections.explorer import Explorer
from calmoe.auditing.sections.fragility import Fragility
from calmoe.auditing.sections.groups import Groups
from calmoe.auditing.sections.hidden import Hidden
from calmoe.auditing.sections.reliability import Surface
from calmoe.auditing.sections.repair import Repair
from calmoe.auditing.sections.section import Material, Section
from calmoe.auditing.sections.skill import Skill
from calmoe.auditing.statistics.repeats import Repeats
from calmoe.auditing.steps import Progress, Steps, silent
from calmoe.auditing.target.checks import UnfitTarget
from calmoe.auditing.target.predict import Target
from calmoe.auditing.verdict import Verdict, make_verdict
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError
from calmoe.files import json_bytes
from calmoe.metrics.checks import Of
from calmoe.mixture import combine
from calmoe.new_rows import NewRows, judged_rows, new_rows, one_of_each
from calmoe.ownership import PAGE, put
from calmoe.predictions import Predictions

if TYPE_CHECKING:
    from calmoe.render.drawing import Drawn

IN_ORDER = 0.01  # a difference of probabilities that says nothing about their order
FAINTEST = -20.0  # log-probabilities below it count as this
FURTHER_ROWS = "further rows of a case"
TAUGHT_ROWS = "rows that taught the model"
"""Under this name `AuditReport.left_out` says how many of how many rows the audit left out."""

SECTIONS: tuple[Section, ...] = (
    reliability.SECTION,
    skill.SECTION,
    groups.SECTION,
    calibration.SECTION,
    hidden.SECTION,
    fragility.SECTION,
    auditors.SECTION,
    certificates.SECTION,
    repair.SECTION,
    explorer.SECTION,
    target.SECTION,
)
"""In this order sections compute, and stand in the summary and on the page."""


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditReport:
    """What an audit concludes and measures; each section's class says what it estimates.

    Attributes:
        rows: The rows that were audited, N.
        classes: The number of classes, C.
        num_experts: The number of experts, K.
        of: What was judged: "top", or the number of a class.
        bins: The number of equal-width bins.
        level: The certainty of intervals.
        seed: Which rows taught and which were judged.
        unlike: The largest difference between the mixture's probabilities and Σ_k r_k p_k of its experts;
            after a temperature or a repair it is above zero.
        out_of_order: Whether they go with it hardly better than with that of other rows.
        routed: Whether the routing differs between rows.
        repeats: Whether rows seem to repeat each other; then nothing is learned from them.
        surface: The reliability diagram.
        skill: Whether the model knows anything: accuracy, AUROC and log loss beside simple rivals.
        groups: Every group of the file.
        aggregate: The mixture and its experts.
        hidden: What cancels out; None where it was left out.
        fragility: What other shares of the same rows break; None where it was left out.
        indicators: Moments of auditors that are bins.
        hats: Moments of auditors that are hats.
        certificates: What no shift within a radius exceeds.
        repair: What mends the probabilities; None where it was left out.
        explorer: The numbers behind the page's sliders.
        left_out: By name what the audit left out, and why.
        target: What to expect of the target, where one was given.
        class_names: The names of the classes, where they are known.
        expert_names: The names of the experts, or "expert 0", "expert 1", …
        sampled: Which numbers rest on a sample of the rows; None where all rest on all rows.

    Example:
        >>> from calmoe.worlds.binary import cancelling
        >>> report = audit(cancelling(seed=0).sample(4000, seed=0))
        >>> report.aggregate.ece.low, report.hidden.witness.low > 0.05
        (0.0, True)
    """

    rows: int
    classes: int
    num_experts: int
    of: Of
    bins: int
    level: float
    seed: int
    unlike: float
    out_of_order: bool
    routed: bool
    repeats: Repeats | None
    surface: Surface
    skill: Skill
    groups: Groups
    aggregate: Aggregate
    hidden: Hidden | None
    fragility: Fragility | None
    indicators: Auditors
    hats: Auditors
    certificates: Certificates
    repair: Repair | None
    explorer: Explorer
    left_out: dict[str, str]
    target: Target | None = None
    sampled: Sampled | None = None
    class_names: tuple[str, ...] | None = field(default=None, metadata=UNSAVED)
    expert_names: tuple[str, ...] = field(default=(), metadata=UNSAVED)

    def __repr__(self) -> str:
        return self.summary()

    @property
    def judged(self) -> Of | str:
        """`of` in words: "top", or the class by its name, or by its number where it has none."""
        return self.of if self.of == "top" or self.class_names is None else self.class_names[self.of]

    @property
    def groups_judged(self) -> Of | str:
        """The same of what is judged in groups."""
        event = self.groups.event
        return event if event == "top" or self.class_names is None else self.class_names[event]

    @property
    def verdict(self) -> Verdict:
        """What all of it comes to."""
        return make_verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """The verdict and all numbers as JSON holds them; None where not finite. Arrays of a number a row
        are left out.
        """
        return {"verdict": plain(self.verdict), **plain(self)}

    def summary(
        self,
        file: str | None = None,
        model: str | None = None,
        options: Sequence[str] = (),
        cluster: str | None = None,
    ) -> str:
        """The verdict in plain words, twelve lines at most, with the recommended command.

        file: the name of the audited file. model: the folder of the model behind it, where that is known.
        options: the words that say how to read the file, such as "--label", "y". cluster: as in `audit`.
        """
        return summary(self.verdict, Asked(file, model, options, cluster))

    def figures(self) -> "dict[str, Drawn]":
        """The figures by name; each says in words what it shows."""
        return draw(figure for section in SECTIONS for figure in section.figures(self))

    def reweightings(self) -> dict[str, np.ndarray]:
        """The reweightings of the fragility curves: `rows`, the judged rows' indices [J], and for each curve
        `NAME.radii` [R] and `NAME.densities` [R, J], the weights of these rows. Empty without the curves.

        With them `calmoe.metrics.ece(probs[rows], labels[rows], weights=densities[i])` is the curve's
        `plain_ece[i]`.
        """
        return {} if self.fragility is None else self.fragility.reweightings()

    def save(self, folder: str | Path, origin: Mapping[str, str] | None = None) -> Path:
        """Write report.html, audit.json, `figures/*.png` and the sections' own files; return the page's path.

        origin: where the predictions come from, by name, for the page and audit.json. The folder is new,
        empty or an earlier audit's, whose files go; all other files stay. Everything is made before the first
        file is written.
        """
        put(Path(folder), AUDIT, self.files(origin))
        return Path(folder) / PAGE

    def files(self, origin: Mapping[str, str] | None = None) -> dict[str, bytes]:
        """All that `save` writes, by name; `origin` as there."""
        from calmoe.render.drawing import rendered  # with matplotlib

        origin = dict(origin or {})
        pictures = {name: (rendered(drawn, "png"), drawn.alt) for name, drawn in self.figures().items()}
        files = {
            PAGE: page(self, SECTIONS, pictures, origin).html().encode(),
            "audit.json": json_bytes({"origin": origin, **self.to_dict()}),
            **{f"figures/{name}.png": picture for name, (picture, _) in pictures.items()},
        }
        for section in SECTIONS:
            files |= section.files(self)
        return files


def audit(
    predictions: Predictions,
    *,
    target: Predictions | None = None,
    labelled_target: Predictions | None = None,
    of: Of | str = "top",
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    cluster: str | None = None,
    progress: Progress = silent,
) -> AuditReport:
    """Audit a mixture's probabilities: is E[Y | f] = f, for whom is it not, what breaks it, what to do.

    No model judges a row that it learned from; rows whose group column `taught_the_model` is true are left
    out.

    Args:
        predictions: What the model said, with labels; 200 rows or more for all sections.
        target: Predictions of the same mixture elsewhere, whose accuracy and ECE the audit predicts. Its
            labels never enter a prediction: they stand beside it and test its assumption.
        labelled_target: More rows from the same place, with labels that test the assumption (see `Target`).
        of: "top" judges "the predicted class is right", c "the label is c": the number of a class, or its
            name where `predictions.metadata["classes"]` has it.
        bins: The number of equal-width bins of confidence.
        level: The certainty of intervals.
        seed: Which rows teach and which are judged.
        cluster: A column that names cases, of which several rows tell: one row of each is judged, and every
            row that names none; in targets too, if they have it. "row": every row is a case of its own.
        progress: Hears progress(section, share): which section is at work, which share of all work is done.

    Returns:
        The report; its `summary()` says it in words, its `save(folder)` writes the page.

    Example:
        >>> from calmoe.worlds import miscalibrated
        >>> report = audit(miscalibrated(seed=0, temperature=4.0).sample(150, seed=0))
        >>> report.verdict.truth, report.verdict.side
        ('off', 'too high')
    """
    if not isinstance(predictions, Predictions):
        raise InputError(
            f"audit needs Predictions, not {type(predictions).__name__}: Predictions.load(path) reads a "
            "file, Predictions.from_probs(probs, labels) takes arrays"
        )
    new = one_of_each(new_rows(predictions), cluster, seed)
    targets = {"target": target, "labelled target": labelled_target}
    target, labelled_target = (each and _judged(each, role, cluster, seed) for role, each in targets.items())
    material = _checked(new, target, labelled_target, of, bins, level, seed)
    with threadpool_limits(1):  # the sums are small: on a busy machine two threads take three times as long
        report = _audited(material, progress)
    if len(new.numbers) == len(predictions):
        return report
    if new.judged:
        report = replace(report, left_out={FURTHER_ROWS: new.judged} | report.left_out)
    return _among_all(report, new)


def _judged(target: Predictions, role: str, cluster: str | None, seed: int) -> Predictions:
    """The target's new rows, one of each case."""
    try:
        return judged_rows(target, cluster, seed)
    except InputError as error:
        raise UnfitTarget(role, str(error)) from None


def _among_all(report: AuditReport, new: NewRows) -> AuditReport:
    """The report on new rows: it says what is left out, and counts the judged rows among all."""
    fragility = report.fragility
    return replace(
        report,
        left_out={**({TAUGHT_ROWS: new.left_out} if new.left_out else {}), **report.left_out},
        fragility=None if fragility is None else replace(fragility, rows=new.numbers[fragility.rows]),
    )


def _checked(
    new: NewRows,
    target: Predictions | None,
    labelled_target: Predictions | None,
    of: Of | str,
    bins: int,
    level: float,
    seed: int,
) -> Material:
    """What the sections work on, once all of it is in order: errors come before the work."""
    if not 0 < as_number("level", level) < 1:
        raise InputError(f"level must lie between 0 and 1, got {level}")
    as_count("seed", seed, least=0, most=2**32 - 1)
    new.predictions.known_labels  # noqa: B018 - an error where there are none
    material = Material(
        predictions=new.predictions,
        cases=new.cases,
        target=target,
        labelled_target=labelled_target,
        of=judged_class(new.predictions, of),
        bins=check_bins(bins),
        level=level,
        seed=seed,
    )
    for section in SECTIONS:
        section.check(material)
    return material


def _audited(material: Material, progress: Progress) -> AuditReport:
    sections = [section for section in SECTIONS if section.asked(material)]
    steps = Steps({section.name: section.cost for section in sections}, progress)
    fields: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for section in sections:
        steps.begin(section.name)
        findings = section.compute(material, steps.inside)
        fields |= findings.fields
        left_out |= findings.left_out
    progress("done", 1.0)
    unlike = farthest_from_experts(material.predictions)
    return AuditReport(
        rows=len(material.predictions),
        classes=material.predictions.num_classes,
        num_experts=material.predictions.num_experts,
        of=material.of,
        bins=material.bins,
        level=material.level,
        seed=material.seed,
        unlike=unlike,
        out_of_order=_out_of_order(material.predictions, unlike),
        routed=_routed(material.predictions),
        repeats=material.repeats,
        class_names=material.predictions.class_names,
        expert_names=material.predictions.expert_names,
        left_out=left_out,
        **fields,
    )


def farthest_from_experts(predictions: Predictions) -> float:
    """The largest |f − Σ_k r_k p_k| over rows and classes."""
    log_probs, log_routing, expert_logs = predictions.output
    return max(
        float((log_probs[rows].exp() - combine(log_routing[rows], expert_logs[rows]).probs).abs().max())
        for rows in (slice(start, start + CHUNK) for start in range(0, len(predictions), CHUNK))
    )


def _out_of_order(predictions: Predictions, unlike: float) -> bool:
    """Whether the mixture goes with its experts' answers hardly better than with those of other rows.

    Goes with: the correlation of centred log-probabilities, which no temperature changes.
    """
    log_probs, log_routing, expert_logs = (part[:CHUNK].double() for part in predictions.output)
    mixed = combine(log_routing, expert_logs).log_probs
    others = mixed[np.random.default_rng(0).permutation(len(mixed))]
    centred = [logs.clamp(min=FAINTEST) for logs in (log_probs, mixed, others)]
    said, own, other = ((logs - logs.mean(dim=1, keepdim=True)).flatten().numpy() for logs in centred)
    if unlike < IN_ORDER or not (said.any() and own.any()):
        return False
    lengths = np.linalg.norm(said) * np.linalg.norm(own)
    by_own, by_other = said @ own / lengths, said @ other / lengths
    return bool(by_own - by_other < (1 - by_other) / 4)


def _routed(predictions: Predictions) -> bool:
    """Whether the routing differs between rows; by rounding alone it does not."""
    routing = predictions.output.log_routing
    return bool(((routing.exp() - routing[:1].exp()).abs() > 1e-6).any())
