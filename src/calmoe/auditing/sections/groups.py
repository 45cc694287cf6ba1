"""The audit's section on groups: for whom are the probabilities true, and for whom not?

Every value of every column of groups is listed, small groups too: their intervals are wide, and `state` says
how little is known. Intervals hold for all groups together, ECE and balance both (level 1 − (1 − level)/2G
each), so that many groups do not make a false finding likely. At levels so near 1 a sample's own spread is no
guide: it counts as no smaller than what true probabilities give.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.event import class_titles
from calmoe.auditing.presentation.glossary import rate_name
from calmoe.auditing.presentation.numbers import cells, headings
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section
from calmoe.auditing.statistics.after_answer import after_answer
from calmoe.auditing.statistics.estimates import (
    NONE,
    Estimate,
    binned_gap,
    normal,
    proportion,
    spread,
    within,
)
from calmoe.auditing.statistics.group_columns import MOST_VALUES, group_rows, why_not
from calmoe.defaults import BINS, LEVEL
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions
from calmoe.render.grid import Grid, count, label, number
from calmoe.render.page import Picture, Point
from calmoe.render.wording import listed, many, shortened

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

MOST_GROUPS = 300  # judged one by one
UNTOLD = 0.2  # the ECE of a network on a domain new to it: an interval that reaches so far says nothing
State = Literal["off", "may be true", "too few rows"]
Mask = tuple[str | None, str, np.ndarray]  # a group's column, its name, and its rows
Side = Literal["too high", "too low", "both ways", "not decided"]


def judged(ece: Estimate, balance: Estimate) -> State:
    """Whether rows are surely off, may be true, or are too few to say; the two intervals hold together."""
    if ece.low > 0 or balance.low > 0 or balance.high < 0:
        return "off"
    return "may be true" if ece.high <= UNTOLD else "too few rows"


def side_of(ece: Estimate, balance: Estimate) -> Side:
    """Which way probabilities are off; errors of one sign only give an ECE of |E[Y − f]|, no more.

    >>> def interval(low, high):
    ...     return Estimate((low + high) / 2, low, high, 0.01)
    >>> balance = interval(-0.01, 0.02)
    >>> side_of(interval(0.03, 0.05), balance), side_of(interval(0.01, 0.05), balance)
    ('both ways', 'not decided')
    """
    if balance.high < 0 or balance.low > 0:
        return "too high" if balance.high < 0 else "too low"
    return "both ways" if ece.low > max(-balance.low, balance.high) else "not decided"


@dataclass(frozen=True, kw_only=True)
class Group:
    """The rows of one group: E[Y], the mean of f, the ECE at equal-width bins, and E[Y − f].

    column: None for the rows of one predicted class. state: off (an interval leaves out 0), may be true, or
        too few rows to say.
    """

    name: str
    column: str | None
    rows: int
    accuracy: Estimate
    confidence: float
    ece: Estimate
    balance: Estimate
    state: State


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Every group, worst ECE first and those of few rows last; `unlisted` columns by name, and why.

    ece: Of all rows, at the same event.
    event: What is judged in groups: of two classes the second one, whose errors in groups "the predicted
        class is right" may hide.
    by_prediction: The rows of each predicted class, judged by whether it is right; no file need name these.
        Their intervals and those of the groups hold together, each kind with half of the error.
    """

    groups: tuple[Group, ...]
    unlisted: dict[str, str]
    ece: Estimate
    event: Of
    by_prediction: tuple[Group, ...] = ()

    @property
    def off(self) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.state == "off")

    @property
    def kinds_off(self) -> tuple[Group, ...]:
        """Predicted classes whose rows are off."""
        return tuple(kind for kind in self.by_prediction if kind.state == "off")

    @property
    def unknown(self) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.state == "too few rows")


def groups_event(of: Of, classes: int) -> Of:
    """What is judged in groups, where the audit judges `of`.

    A model that is 8 points too high on one group's positives and too low on another's is right as often as
    it says in both, where most of them are as likely predicted positive as negative.

    >>> groups_event("top", 2), groups_event("top", 3), groups_event(0, 2)
    (1, 'top', 0)
    """
    return 1 if of == "top" and classes == 2 else of


def groups(
    configurations: Configurations,
    columns: Mapping[str, np.ndarray],
    *,
    bins: int = BINS,
    level: float = LEVEL,
    kinds: Sequence[Mask] = (),
    of_kinds: Configurations | None = None,
) -> Groups:
    """Judge each group of the file's columns: `group_rows` says which groups there are.

    kinds, of_kinds: the rows of each predicted class, and the configurations that they are judged by.
    """
    masks = [(*key, rows) for key, rows in group_rows(columns).items()]
    each, each_kind = levels(level, len(masks), len(kinds))
    there = {column for column, *_ in masks}
    left = {name: why_not(values) for name, values in columns.items() if name not in there}
    if len(masks) > MOST_GROUPS:
        left["smaller groups"] = f"only the {MOST_GROUPS} largest of {len(masks)} are listed"
    index = configurations.bins(bins)
    everywhere = binned_gap(configurations.residual, index, bins, level=level, noise=configurations.noise)
    return Groups(
        groups=_judged(masks, configurations, bins, each),
        unlisted=left,
        ece=everywhere,
        event=configurations.event,
        by_prediction=_judged(kinds, of_kinds or configurations, bins, each_kind),
    )


def levels(level: float, groups: int, kinds: int) -> tuple[float, float]:
    """Of each interval of a group and of a predicted class, so that all hold together; a group has two.

    Both kinds of groups get half of the error, so that many classes do not hide a group.

    >>> levels(0.9, 5, 0)[0], levels(0.9, 5, 100)[0]
    (0.99, 0.995)
    """
    parts = max(bool(groups) + bool(kinds), 1)
    error = (1 - level) / (2 * parts)
    return 1 - error / max(groups, 1), 1 - error / max(kinds, 1)


def prediction_rows(predictions: Predictions) -> list[Mask]:
    """The rows of each predicted class, where there are few classes.

    >>> from calmoe.worlds.multiclass import calibrated
    >>> [name for _, name, _ in prediction_rows(calibrated(0).sample(500, seed=0))][:2]
    ['rows predicted as class 0', 'rows predicted as class 1']
    """
    if predictions.num_classes > MOST_VALUES:
        return []
    titles, predicted = class_titles(predictions), predictions.output.predicted.numpy()
    return [(None, f"rows predicted as {titles[c]}", predicted == c) for c in np.unique(predicted)]


def _judged(
    masks: Sequence[Mask], configurations: Configurations, bins: int, level: float
) -> tuple[Group, ...]:
    """The largest of the groups, the worst first and those of few rows last."""
    index = configurations.bins(bins)
    largest = sorted(masks, key=lambda mask: -int(mask[2].sum()))[:MOST_GROUPS]
    judged = [_group(mask, configurations, index, bins, level) for mask in largest]
    judged.sort(key=lambda group: (group.state == "too few rows", -np.nan_to_num(group.ece.value, nan=-1.0)))
    return tuple(judged)


def _group(
    mask: Mask,
    configurations: Configurations,
    index: np.ndarray,
    bins: int,
    level: float,
) -> Group:
    column, name, rows = *mask[:2], np.flatnonzero(mask[2])
    if not len(rows):
        return Group(
            name=name,
            column=column,
            rows=0,
            accuracy=NONE,
            confidence=float("nan"),
            ece=NONE,
            balance=NONE,
            state="too few rows",
        )
    confidence, outcome = configurations.confidence[rows], configurations.known_outcome[rows]
    residual, noise = outcome - confidence, confidence * (1 - confidence)
    ece = binned_gap(residual, index[rows], bins, level=level, noise=noise, rare=len(rows))
    error = spread(residual, noise, rare=len(rows))
    balance = within(normal(float(residual.mean()), error, level), -1.0, 1.0)
    return Group(
        name=name,
        column=column,
        rows=len(rows),
        accuracy=proportion(float(outcome.mean()), len(rows), level),
        confidence=float(confidence.mean()),
        ece=ece,
        balance=balance,
        state=judged(ece, balance),
    )


# --- how the report shows it --------------------------------------------------------------------------------


def sentences(groups: Groups) -> str:
    """How many groups are off, may be true, or have too few rows; and which predicted classes are off."""
    parts, names = [], [group.name for group in groups.off]
    if groups.groups:
        off, are = listed(shortened(names)) if names else "none", "are" if len(names) > 1 else "is"
        parts = [f"{many(len(groups.groups), 'group')}: {off} {are} off"]
    if groups.unknown:
        parts += [f"{many(len(groups.unknown), 'group')} with too few rows to say"]
    if groups.kinds_off:
        parts += [f"{listed(shortened([kind.name for kind in groups.kinds_off]))} are off"]
    return f"{'; '.join(parts)}."


def not_judged(groups: Groups) -> list[str]:
    """The columns without groups, and why, in a few words each."""
    return [f"{column} ({why})" for column, why in groups.unlisted.items()]


def group_table(groups: Sequence[Group], judged: Of | str, which: str = "Every group") -> Grid:
    """One group a row; judged: "top", or the class by name or number."""
    rows = tuple(
        (
            label(group.name, group.name),
            count(group.rows),
            label(_said(group, judged), group.state),
            *cells(group.accuracy),
            number(group.confidence),
            *cells(group.ece),
            *cells(group.balance, sign=True),
        )
        for group in groups
    )
    columns = headings(
        ("group", "group"),
        ("rows", "rows"),
        ("are they true?", "state"),
        (rate_name(judged), "accuracy*"),
        ("confidence" if judged == "top" else "mean probability", "confidence"),
        ("ECE", "ece*"),
        ("balance", "balance*"),
    )
    return Grid(f"{which}, the worst calibrated first; all intervals hold together", columns, (rows,))


def _said(group: Group, judged: Of | str) -> str:
    if group.state != "off":
        return group.state if group.rows else "no rows"
    side = side_of(group.ece, group.balance)
    if judged == "top" and side in ("too high", "too low"):
        return "overconfident" if side == "too high" else "underconfident"
    return {"both ways": "off both ways", "not decided": "off"}.get(side, side)


def _compute(material: Material, inside: Inside) -> Findings:
    answers = after_answer(material.predictions)
    columns = {name: own for name, own in material.predictions.groups.items() if name not in answers}
    event, seen = groups_event(material.of, material.predictions.num_classes), material.configurations
    if event != material.of:
        seen = Configurations.of(material.predictions, event)
    kinds = prediction_rows(material.predictions) if material.of == "top" else []
    judged = groups(
        seen,
        columns,
        bins=material.bins,
        level=material.level,
        kinds=kinds,
        of_kinds=material.configurations,
    )
    return Findings({"groups": replace(judged, unlisted=judged.unlisted | answers)})


def _summary(report: "AuditReport") -> Point | None:
    found = report.groups.groups or report.groups.kinds_off
    return Point("Groups", sentences(report.groups)) if found else None


def _page(report: "AuditReport", pictures: Sequence[Picture]) -> PageSection | None:
    own, kinds = report.groups.groups, report.groups.kinds_off
    if not own and not kinds and not report.groups.unlisted:
        return None
    tables = [group_table(own, report.groups_judged)] if own else []
    tables += [group_table(kinds, "top", "Predicted classes whose rows are off")] if kinds else []
    return PageSection(
        heading="For whom not?",
        how="Is it right as often as it says, group by group? A group of few rows has a wide interval: "
        "little is known about it, and that is said.",
        tables=tables,
        notes=[f"Not judged: {'; '.join(unjudged)}."] if (unjudged := not_judged(report.groups)) else [],
    )


SECTION = Section(name="groups", cost=0.3, compute=_compute, summary=_summary, page=_page, folded=False)
