"""The frame of the audit's page: the title, the summary, each section's part, and the facts."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from calmoe.auditing.presentation.glossary import glossary
from calmoe.auditing.presentation.summary import summary
from calmoe.auditing.sections.section import Section
from calmoe.render.page import Fact, Page, Picture, footer

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport


def page(
    report: "AuditReport",
    sections: Iterable[Section],
    pictures: Mapping[str, tuple[bytes, str]],
    origin: Mapping[str, str],
) -> Page:
    """pictures: PNG bytes and alt text by name; origin: where the predictions come from."""
    sections = list(sections)
    experts = f", {report.num_experts} experts" if report.num_experts > 1 else ""
    parts = (section.page(report, _own_pictures(section, report, pictures)) for section in sections)
    return Page(
        title=f"Calibration audit of {origin['file']}" if origin else "Calibration audit",
        subtitle=f"{report.rows:,} rows, {report.classes} classes{experts}",
        summary=summary(report, sections),
        sections=[part for part in parts if part is not None],
        facts={**origin, **_facts(report)},
        footer=footer(),
    )


def _own_pictures(
    section: Section, report: "AuditReport", pictures: Mapping[str, tuple[bytes, str]]
) -> list[Picture]:
    return [
        Picture(figure.name, *pictures[figure.name], figure.caption) for figure in section.figures(report)
    ]


def _facts(report: "AuditReport") -> dict[str, Fact]:
    return {
        "rows": f"{report.rows:,}",
        "classes": str(report.classes),
        "experts": str(report.num_experts) if report.num_experts > 1 else "none",
        "event": "the predicted class is right" if report.of == "top" else f"the label is {report.judged}",
        "bins": str(report.bins),
        "level of the intervals": f"{report.level:g}",
        "seed": f"{report.seed}, which says what rows teach and what rows are judged",
        "What the words mean": glossary(),
    }
