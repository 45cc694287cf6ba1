"""The audit's page: the first screen, the parts that answer questions, the folded details, and the facts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from calmoe.auditing.presentation.glossary import glossary
from calmoe.auditing.presentation.opening import opening
from calmoe.auditing.presentation.shift_explorer import HOW, explorer_markup
from calmoe.auditing.presentation.terms import Explainer
from calmoe.auditing.presentation.words import repeated
from calmoe.auditing.sections.section import PageSection, Section
from calmoe.render.page import Fact, Html, Page, Picture, asset, footer

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport


def page(
    report: "AuditReport",
    sections: Iterable[Section],
    pictures: Mapping[str, tuple[bytes, str]],
    origin: Mapping[str, str],
) -> Page:
    """pictures: PNG bytes and alt text by name; origin: where the predictions come from."""
    explain, sections = Explainer(), list(sections)
    experts = f", {report.num_experts} experts" if report.num_experts > 1 else ""
    sampled = f"; learned from {report.sampled.rows:,} of the rows" if report.sampled else ""
    first = opening(report, origin, explain)
    parts = [_explorer(report, explain)] if report.explorer.factors else []
    shown = sorted(sections, key=lambda section: section.folded)
    parts += [part for section in shown if (part := _part(section, report, pictures, explain)) is not None]
    return Page(
        title=f"Calibration audit of {origin['file']}" if "file" in origin else "Calibration audit",
        subtitle=f"{report.rows:,} rows, {report.classes} classes{experts}{sampled}",
        opening=first,
        sections=parts,
        facts={**origin, **_facts(report)},
        footer=footer(),
        style=asset(__package__, "audit.css"),
        script=Html(asset(__package__, "audit.js") + asset(__package__, "explorer.js")),
    )


def _explorer(report: "AuditReport", explain: Explainer) -> PageSection:
    return PageSection(
        heading="What could break it",
        how=explain(HOW),
        body=explorer_markup(report, explain),
        notes=_sampled(report, "explorer"),
    )


def _part(
    section: Section,
    report: "AuditReport",
    pictures: Mapping[str, tuple[bytes, str]],
    explain: Explainer,
) -> PageSection | None:
    """A section's part: how to read it, its sentences, then tables and figures."""
    part = section.page(report, _own_pictures(section, report, pictures))
    if part is None:
        return None
    point = section.summary(report)
    text = point.text[:1].upper() + point.text[1:] if point is not None else ""
    return replace(
        part,
        how=explain(str(part.how)),
        body=Html(f"<p>{explain(text)}</p>") if text else None,
        notes=[*part.notes, *_repeated(report), *_sampled(report, section.name)],
        shut=section.folded,
    )


def _repeated(report: "AuditReport") -> list[str]:
    return [] if report.repeats is None else [f"{repeated(report.repeats)}: intervals may be too narrow."]


def _sampled(report: "AuditReport", section: str) -> list[str]:
    note = None if report.sampled is None else report.sampled.note(section)
    return [note] if note else []


def _own_pictures(
    section: Section, report: "AuditReport", pictures: Mapping[str, tuple[bytes, str]]
) -> list[Picture]:
    return [
        Picture(figure.name, *pictures[figure.name], figure.caption) for figure in section.figures(report)
    ]


def _facts(report: "AuditReport") -> dict[str, Fact]:
    left_out = {f"left out: {part}": why for part, why in report.left_out.items()}
    sampled = report.sampled
    part = (
        {} if sampled is None else {"rows of the sample": f"{sampled.rows:,}, drawn by a hash of row numbers"}
    )
    return {
        "rows": f"{report.rows:,}",
        **part,
        "classes": str(report.classes),
        "experts": str(report.num_experts) if report.num_experts > 1 else "none",
        "event": "the predicted class is right" if report.of == "top" else f"the label is {report.judged}",
        "bins": str(report.bins),
        "level of the intervals": f"{report.level:g}",
        "seed": f"{report.seed}, which says what rows teach and what rows are judged",
        **left_out,
        "What the words mean": glossary(),
    }
