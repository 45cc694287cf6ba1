"""The audit in words: the verdict, a point a section, and what the audit left out."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from calmoe.auditing.presentation.verdict import verdict
from calmoe.auditing.sections.section import Section
from calmoe.render.page import Point

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

UNLIKE = 0.01  # a difference of probabilities that rounding does not explain


def summary(report: "AuditReport", sections: Iterable[Section]) -> list[Point]:
    """The points in the order of the sections."""
    points = [Point("In short", verdict(report))]
    if report.unlike > UNLIKE:
        points.append(Point("Note", _unlike(report.unlike)))
    points += [point for section in sections if (point := section.summary(report)) is not None]
    return points + [Point("Left out", f"{part}: {why}.") for part, why in report.left_out.items()]


def _unlike(difference: float) -> str:
    return (
        f"the mixture's probabilities differ from those that its routing and experts give by up to "
        f"{difference:.3f}. That is right after a temperature; else rows, experts or classes of the file "
        "are out of order, and all below is void."
    )
