"""The verdict: one structured answer from a report's numbers, from which summary, page and JSON are written.

Are the probabilities true, by how much and which way are they off? Is the model any good? For whom not? Is
something hidden, and from where? Would a shift break it? What is the one thing to do? Where the evidence is
undecided, so is the verdict. Every sentence elsewhere follows from these fields, so none contradicts another.

The sections' own fields are read by the small functions at the end and in `mended`, and nowhere else.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from calmoe.auditing.mended import Mended, read_offer, read_repair
from calmoe.auditing.sections.groups import Group, Side, judged, not_judged, side_of
from calmoe.auditing.sections.skill import LITTLE, Skill, Worth
from calmoe.auditing.statistics.demonstration import quoted
from calmoe.auditing.statistics.estimates import Estimate, normal
from calmoe.auditing.statistics.repeats import Repeats
from calmoe.auditing.statistics.sequential import FEWEST_TO_LEARN
from calmoe.metrics.checks import Of

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

Truth = Literal["may be true", "off", "not decided"]
Hiding = Literal["hidden", "nothing found", "not decided", "not looked at"]
Origin = Literal["routing", "prediction", "both", "not decided"]
Steadiness = Literal["fragile", "steady", "not decided", "not looked at"]
Kind = Literal["order", "separate", "turn", "repair", "collect", "train", "watch", "use"]

NEAR = 0.05  # an error that is surely no larger is good enough for use as it is
RELATIVE = 0.25  # an error beyond this share of a class's frequency is never slight
SLIGHT = 0.03  # an ECE that is surely below it is small, even where it is surely not zero
ORIGINS: dict[str, Origin] = {"mixture's own vector": "prediction", "routing": "routing", "both": "both"}
FILE = "FILE"  # stands in commands for the audited file
SINGLE = "ONE_ROW_PER_CASE"
LABELLED = "LABELLED_PREDICTIONS"  # and this for what the model says of the target's rows that have labels


class GroupOff(NamedTuple):
    """A group whose probabilities are off.

    rate: E[Y], how often what was said comes true. confidence: the mean of f. all_off: whether every group of
    its column is off. column: None for the rows of one predicted class. judged: What is judged, "top" or the
    class by name or number.
    """

    name: str
    column: str | None
    rows: int
    side: Side
    ece: Estimate
    rate: float
    confidence: float
    all_off: bool
    judged: Of | str


class Action(NamedTuple):
    """The one thing to do, and its command, in which FILE stands for the audited file."""

    kind: Kind
    command: str


class Elsewhere(NamedTuple):
    """What the audited rows say about a target: predicted, contradicted by labels from there, or nothing."""

    state: Literal["predicted", "contradicted", "unlike", "too few rows"]
    accuracy: Estimate | None
    ece: Estimate | None
    tested: int = 0  # labelled rows from there that do not contradict the prediction
    unseen: float = 0.0  # a difference in accuracy up to which they would usually not


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the audit concludes; estimates are those of the sections.

    Attributes:
        rows: The rows that were audited.
        judged: "top", or the class by name or number.
        mixed: Whether the model is a mixture.
        routed: Whether the routing differs between rows at all.
        truth: "off", "may be true" (calibrated predictions could look like this), or "not decided" (too few
            rows).
        side: Which way the probabilities are off; "both ways" only where that is sure.
        slight: Whether they are off surely by less than 3 points.
        ece: The mixture's ECE.
        balance: E[Y − f].
        rate: E[Y].
        confidence: The mean of f.
        worth: As `Skill.worth`; but "spoiled" where the recommended repair brings skill to light.
        accuracy: How often the predicted class is right.
        majority: How often the most frequent class is.
        gain: The accuracy less that.
        log_skill: The log loss beside that of the base rates.
        impossible: Rows that give what came true probability zero.
        auroc: For two classes, or one class against the rest.
        missed: Classes that the model is never right on, by name or number, with their rows.
        grouped: Whether the file has groups.
        not_judged: Columns without groups, each with the reason.
        groups_judged: What is judged in groups: of two classes the second, where `judged` is "top".
        groups_off: Groups that are surely off, worst first; the rows of a predicted class are one, too, where
            all rows together may be true, or these are surely further off.
        groups_worse: Those of them that are surely further off than all rows together.
        groups_unknown: Groups of too few rows.
        all_groups_off: Whether every group of the file is off.
        hidden: Whether rows of equal probability differ.
        hidden_by: By how much on average, at least.
        origin: What tells them apart.
        fragility: Whether other shares of the same rows, KL `shift` away, surely double the error (an error
            below 0.01 counts as 0.01).
        shift: That KL.
        worst: The error that one of them brings.
        repeats: Whether rows repeat each other: then nothing is decided but the worth.
        out_of_order: Whether experts and mixture do not belong to the same rows.
        not_looked_at: Why neither hidden errors nor fragility were looked for.
        elsewhere: Of the target, where one was given.
        mended: The recommended repair.
        offered: Where they may be true on average, but not everywhere, and no repair is recommended: one that
            surely lowers the log loss, and raises the ECE.
        action: The one thing to do, with its command.

    Example:
        >>> from calmoe.auditing import audit
        >>> from calmoe.worlds import calibrated
        >>> audit(calibrated(seed=0).sample(150, seed=0)).verdict.truth
        'may be true'
    """

    rows: int
    judged: Of | str
    mixed: bool
    routed: bool
    truth: Truth
    side: Side | None
    slight: bool
    ece: Estimate
    balance: Estimate
    rate: Estimate
    confidence: float
    worth: Worth
    accuracy: Estimate
    majority: Estimate
    gain: Estimate
    log_skill: Estimate
    impossible: int
    auroc: Estimate | None
    missed: tuple[tuple[str | int, int], ...]
    grouped: bool
    not_judged: tuple[str, ...]
    groups_judged: Of | str
    groups_off: tuple[GroupOff, ...]
    groups_worse: tuple[GroupOff, ...]
    groups_unknown: tuple[str, ...]
    all_groups_off: bool
    hidden: Hiding
    hidden_by: Estimate | None
    origin: Origin | None
    fragility: Steadiness
    shift: float
    worst: Estimate | None
    not_looked_at: Literal["repeats", "few rows", "one model"] | None
    repeats: Repeats | None
    out_of_order: bool
    elsewhere: Elsewhere | None
    mended: Mended | None
    offered: Mended | None
    action: Action

    @property
    def small(self) -> bool:
        """Whether they are off by less than 3 points as estimated, if not surely."""
        near = max(self.ece.value, self.ece.low, abs(self.balance.value)) < SLIGHT
        return near and _beside_rate(self.judged, self.ece, self.balance, self.rate)

    @property
    def farthest(self) -> float:
        """How far off they are on average, at most."""
        return farthest(self.ece, self.balance)


def make_verdict(report: "AuditReport") -> Verdict:
    """The verdict of a report.

    >>> from calmoe.auditing import audit
    >>> from calmoe.worlds.binary import miscalibrated
    >>> verdict = make_verdict(audit(miscalibrated(seed=0, temperature=4.0).sample(150, seed=0)))
    >>> verdict.truth, verdict.side, verdict.hidden
    ('off', 'too high', 'not looked at')
    """
    aggregate, skill, names = report.aggregate, report.skill, report.class_names
    judged_so = judge_truth(aggregate.ece, aggregate.balance, report.level)
    # copies of rows make intervals too narrow
    truth: Truth = judged_so if report.repeats is None else "not decided"
    off = _all_off(report, truth) if report.repeats is None else ()
    hidden, hidden_by, origin = read_hidden(report)
    steadiness, shift, worst = read_fragility(report)
    mended = read_repair(report)
    worth = judge_worth(skill, mended)
    action = _action(report, truth, worth, off, hidden, steadiness, mended)
    in_parts = truth != "off" and worth != "spoiled" and (off or hidden == "hidden")
    offered = read_offer(report) if action.kind == "watch" and in_parts else None
    if offered is not None:
        command = f"calmoe repair {FILE}{_of(report)} --kind {offered.name} --out calibrator.json"
        action = Action("watch", command)
    return Verdict(
        rows=report.rows,
        judged=report.judged,
        mixed=report.num_experts > 1,
        routed=report.routed,
        truth=truth,
        side=side_of(aggregate.ece, aggregate.balance) if truth == "off" else None,
        slight=aggregate.ece.high < SLIGHT
        and abs(aggregate.balance.value) < SLIGHT
        and _beside_rate(report.of, aggregate.ece, aggregate.balance, aggregate.accuracy),
        ece=aggregate.ece,
        balance=aggregate.balance,
        rate=aggregate.accuracy,
        confidence=aggregate.accuracy.value - aggregate.balance.value,
        worth=worth,
        accuracy=skill.accuracy,
        majority=skill.majority,
        gain=skill.gain,
        log_skill=skill.log_skill,
        impossible=skill.impossible,
        auroc=skill.auroc,
        missed=tuple((names[c] if names else c, rows) for c, rows in skill.missed),
        grouped=bool(report.groups.groups),
        not_judged=tuple(not_judged(report.groups)),
        groups_judged=report.groups_judged,
        groups_off=off,
        groups_worse=tuple(group for group in off if group.ece.low > _everywhere(report, group)),
        groups_unknown=tuple(group.name for group in report.groups.unknown),
        all_groups_off=bool(off) and report.groups.off == report.groups.groups,
        hidden=hidden,
        hidden_by=hidden_by,
        origin=origin,
        fragility=steadiness,
        shift=shift,
        worst=worst,
        not_looked_at=_why_not(report) if hidden == "not looked at" else None,
        repeats=report.repeats,
        out_of_order=report.out_of_order,
        elsewhere=read_target(report),
        mended=mended,
        offered=offered,
        action=action,
    )


def _why_not(report: "AuditReport") -> Literal["repeats", "few rows", "one model"]:
    if report.repeats is not None:
        return "repeats"
    return "few rows" if report.rows < FEWEST_TO_LEARN else "one model"


def farthest(ece: Estimate, balance: Estimate) -> float:
    """The largest error on average that both intervals hold."""
    return max(ece.high, abs(balance.low), abs(balance.high))


def _beside_rate(of: Of | str, ece: Estimate, balance: Estimate, rate: Estimate) -> bool:
    """Whether an error is small beside the class's own frequency."""
    return of == "top" or max(ece.value, abs(balance.value)) <= RELATIVE * rate.value


def judge_truth(ece: Estimate, balance: Estimate, level: float) -> Truth:
    """True probabilities are called off with a chance of at most 1 − level; both estimates have this level.

    Two tests share the error. The ECE's errs on one side of 0 only, with half of it; the balance gets the
    other half.
    """
    states: dict[str, Truth] = {"off": "off", "may be true": "may be true", "too few rows": "not decided"}
    return states[judged(ece, normal(balance.value, balance.standard_error, (1 + level) / 2))]


def judge_worth(skill: Skill, mended: Mended | None) -> Worth:
    """As the skill says; but a model that beats the base rates once it is repaired knows something.

    Not one that is surely right less often than the most frequent class: there something else is wrong.
    """
    repaired = mended is not None and mended.loss_after < (1 - LITTLE) * skill.base_nll
    if skill.worth in ("little", "none") and repaired and skill.gain.high >= 0:
        return "spoiled"
    return skill.worth


def _all_off(report: "AuditReport", truth: Truth) -> tuple[GroupOff, ...]:
    """Groups that are off, and predicted classes, worst first.

    Where all rows are off, most predicted classes are, too: those count that are surely further off.
    """
    everywhere = report.aggregate.ece.high
    kinds = groups_off(report.groups.by_prediction, "top")
    apart = [kind for kind in kinds if truth != "off" or kind.ece.low > everywhere]
    own = groups_off(report.groups.groups, report.groups_judged)
    return tuple(sorted([*own, *apart], key=lambda group: -group.ece.value))


def _everywhere(report: "AuditReport", group: GroupOff) -> float:
    """How far all rows are off at most, by what the group is judged by."""
    return (report.aggregate if group.column is None else report.groups).ece.high


def groups_off(groups: Sequence[Group], judged: Of | str) -> tuple[GroupOff, ...]:
    """Those that are off, in the same order: worst first."""
    not_off = {group.column for group in groups if group.state != "off"}

    def read(group: Group) -> GroupOff:
        side = side_of(group.ece, group.balance)
        rate, all_off = group.accuracy.value, group.column not in not_off
        return GroupOff(
            group.name, group.column, group.rows, side, group.ece, rate, group.confidence, all_off, judged
        )

    return tuple(read(group) for group in groups if group.state == "off")


def _of(report: "AuditReport") -> str:
    """The option of a command that names what is judged."""
    return "" if report.judged == "top" else f" --of {shlex.quote(str(report.judged))}"


def _action(
    report: "AuditReport",
    truth: Truth,
    worth: Worth,
    off: tuple[GroupOff, ...],
    hidden: Hiding,
    steadiness: Steadiness,
    mended: Mended | None,
) -> Action:
    """The first that applies: order, one row a case, a better model, a repair, more rows, new data, use."""
    judged = _of(report)
    if report.out_of_order:
        return Action("order", f"calmoe audit {FILE}{judged}")
    if report.repeats is not None:
        column = report.repeats.column
        case = f"{FILE}{judged} --cluster {shlex.quote(column)}" if column else f"{SINGLE}{judged}"
        return Action("separate", f"calmoe audit {case}")
    if worth == "reversed":
        return Action("turn", f"calmoe audit {FILE}{judged}")
    if worth in ("little", "none"):
        return Action("train", "calmoe train DATA --label LABEL")
    if mended is not None:
        return Action("repair", f"calmoe repair {FILE}{judged} --out calibrator.json")
    few = report.rows < FEWEST_TO_LEARN or (truth == "off" and report.repair is None)
    vague = truth == "may be true" and farthest(report.aggregate.ece, report.aggregate.balance) > NEAR
    if truth == "not decided" or few:
        return Action("collect", f"calmoe audit MORE_ROWS{judged}")
    wary = truth == "off" or off or hidden == "hidden" or steadiness == "fragile" or worth == "spoiled"
    if vague and not wary:
        return Action("collect", f"calmoe audit MORE_ROWS{judged}")
    kind: Kind = "watch" if wary else "use"
    if report.target is not None:
        return Action(kind, f"calmoe audit {LABELLED}{judged}")
    return Action(kind, f"calmoe audit {FILE}{judged} --target NEW_PREDICTIONS")


# --- what the verdict reads from sections that others write -------------------------------------------------


def read_hidden(report: "AuditReport") -> tuple[Hiding, Estimate | None, Origin | None]:
    """Whether something is hidden, by how much at least, and what shows it."""
    hidden = report.hidden
    if hidden is None:
        return "not looked at", None, None
    if not hidden.decided:
        return "not decided", None, None
    if hidden.p_hidden >= 0.05:
        return "nothing found", None, None
    by = hidden.cancelled if hidden.cancelled.low > 0 else None
    return "hidden", by, ORIGINS.get(hidden.origin or "", "not decided")


def read_fragility(report: "AuditReport") -> tuple[Steadiness, float, Estimate | None]:
    """Whether a shift of the quoted size surely doubles the error, the size, and the error it brings."""
    fragility = report.fragility
    if fragility is None:
        return "not looked at", 0.1, None
    curve = fragility.configurations
    at = quoted(curve.radii)
    return fragility.steadiness, float(curve.radii[at]), curve.error[at]


def read_target(report: "AuditReport") -> Elsewhere | None:
    """What is predicted for a target; where labels contradict it, what they say themselves."""
    target = report.target
    if target is None:
        return Elsewhere("too few rows", None, None) if "target" in report.left_out else None
    test, scores = target.plausibility, target.predicted
    if test is not None and test.p_value < 0.05:
        if target.actual is None:
            return Elsewhere("contradicted", None, None)
        return Elsewhere("contradicted", target.actual.accuracy, target.actual.ece)
    if scores is None:
        return Elsewhere("unlike", None, None)
    tested = (0, 0.0) if test is None else (test.rows, test.detectable)
    return Elsewhere("predicted", scores.accuracy, scores.ece, *tested)
