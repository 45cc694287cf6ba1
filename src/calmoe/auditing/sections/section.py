"""The interface of an audit's section: the material it gets, the findings it returns, its card.

A new section is one file here, with a card, and one line in `calmoe.auditing.audit_report.SECTIONS` beside
the report's fields.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.figures import Figure
from calmoe.auditing.statistics.repeats import Repeats, find_repeats
from calmoe.auditing.statistics.sequential import FEWEST_TO_LEARN, Lessons
from calmoe.metrics.checks import Of
from calmoe.new_rows import Cases
from calmoe.predictions import Predictions
from calmoe.render.page import Picture, Point
from calmoe.render.page import Section as PageSection

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

DEPENDENT = "rows seem to repeat each other, so that no row is new to what others taught"
T = TypeVar("T")
Inside = Callable[[float], None]
"""Hears which share of a section's work is done."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """The predictions under audit and what the caller asked; sections share what is costly to compute.

    cases: what the caller says of them.
    """

    predictions: Predictions
    cases: Cases
    target: Predictions | None
    labelled_target: Predictions | None
    of: Of
    bins: int
    level: float
    seed: int

    @cached_property
    def configurations(self) -> Configurations:
        return Configurations.of(self.predictions, self.of)

    @cached_property
    def learned(self) -> Lessons:
        """m(S) − f, learned block by block, once a split."""
        return Lessons(self.configurations, self.seed)

    @cached_property
    def repeats(self) -> Repeats | None:
        """Whether rows seem to repeat each other."""
        return find_repeats(self.predictions, self.configurations, self.cases)

    def measured(self, measure: Callable[..., T], inside: Inside) -> T:
        """What `measure` says of the configurations and what was learned from them."""
        return measure(
            self.configurations,
            self.learned,
            bins=self.bins,
            level=self.level,
            seed=self.seed,
            inside=inside,
        )

    @property
    def why_not_learned(self) -> str | None:
        """Why the audit does not learn from configurations; None where it does."""
        rows = len(self.configurations)
        if self.repeats is not None:
            return DEPENDENT
        if self.configurations.confidence_is_all:
            return (
                "there are one expert and two classes: the probability that is judged is the whole "
                "configuration, behind which nothing can hide"
            )
        if rows < FEWEST_TO_LEARN:
            few = "is 1 row" if rows == 1 else f"are {rows} rows"
            return f"there {few}; learning from some and judging others needs at least {FEWEST_TO_LEARN}"
        return None

    @property
    def options(self) -> dict[str, Any]:
        """What the caller asked, as keyword arguments."""
        return {"of": self.of, "bins": self.bins, "level": self.level, "seed": self.seed}


class Findings(NamedTuple):
    """The report's fields that a section fills, and by name what it left out and why."""

    fields: Mapping[str, Any]
    left_out: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section's card.

    name: what the progress bar shows. cost: its time relative to the other sections.
    asked: whether the caller asked for it; check: raises InputError before any section computes.
    summary: its sentences; page: its part of the page, with the pictures of its figures; folded: whether that
    part stays shut until a reader opens it, below the open ones.
    figures, files: what it draws, and the files it adds to the audit's folder.
    """

    name: str
    cost: float
    compute: Callable[[Material, Inside], Findings]
    page: Callable[["AuditReport", Sequence[Picture]], PageSection | None]
    summary: Callable[["AuditReport"], Point | None] = lambda report: None
    folded: bool = True
    figures: Callable[["AuditReport"], Sequence[Figure]] = lambda report: ()
    files: Callable[["AuditReport"], Mapping[str, bytes]] = lambda report: {}
    asked: Callable[[Material], bool] = lambda material: True
    check: Callable[[Material], None] = lambda material: None


def if_found(field: str, show: Callable[..., T], otherwise: T) -> Callable[..., T]:
    """`show(finding, report, …)` where the audit filled this field of the report, else `otherwise`."""

    def shown(report: "AuditReport", *pictures: Sequence[Picture]) -> T:
        finding = getattr(report, field)
        return otherwise if finding is None else show(finding, report, *pictures)

    return shown
