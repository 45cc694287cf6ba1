"""The audit's section on repair: what every candidate would do, and which one is recommended, if any."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calmoe.auditing.presentation.numbers import headings
from calmoe.auditing.repairs.repair import TITLES, Candidate, Compared, Repair, TooFewRows, repair
from calmoe.auditing.sections.section import (
    DEPENDENT,
    Findings,
    Inside,
    Material,
    PageSection,
    Section,
    if_found,
)
from calmoe.files import json_bytes
from calmoe.render.grid import Entry, Grid, interval, label, number, signed
from calmoe.render.page import Picture, Point

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

__all__ = ["SECTION", "Candidate", "Compared", "Repair", "candidates_table", "repair", "sentences"]


def sentences(repair: Repair) -> str:
    """What the recommended repair does, or why none is recommended."""
    return repair.reason if repair.recommended else f"No repair is recommended. {repair.reason}"


def candidates_table(repair: Repair) -> Grid:
    """Each candidate on rows that it was not fitted on."""

    def row(candidate: Candidate) -> tuple[Entry, ...]:
        title = candidate.title + " (recommended)" * (candidate.name == repair.recommended)
        change = candidate.nll.against_temperature
        ece = candidate.ece.value
        return (
            label(title, candidate.name),
            number(candidate.nll.value.value, decimals=4),
            signed(change.value, decimals=4),
            interval(change.low, change.high, bold=change.low > 0 or change.high < 0, decimals=4),
            number(ece.value),
            interval(ece.low, ece.high, sign="-"),
            number(candidate.accuracy.value.value),
        )

    columns = headings(
        ("repair", "repair"),
        ("NLL", "nll"),
        ("less that of one temperature", "change*"),
        ("ECE", "ece*"),
        ("accuracy", "accuracy"),
    )
    rows = tuple(row(candidate) for candidate in (*repair.candidates.values(), repair.choosing))
    caption = f"{repair.rows:,} rows, cross-fitted: no row is judged by a fit that saw it"
    return Grid(caption, columns, (rows,))


def _compute(material: Material, inside: Inside) -> Findings:
    if material.repeats is not None:
        return Findings({"repair": None}, {"repair": DEPENDENT})
    options = material.options | {"seed": 0}  # the same folds for every seed: no seed changes the advice
    try:
        return Findings({"repair": repair(material.predictions, inside=inside, **options)})
    except TooFewRows as error:
        return Findings({"repair": None}, {"repair": str(error)})


def _summary(repair: Repair, report: "AuditReport") -> Point:
    return Point("Repair", sentences(repair))


def _page(repair: Repair, report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    notes = [sentences(repair)]
    if repair.crossed:
        notes.append(
            "“Choosing, as a whole” is what each quarter's other rows choose: it pays for the choosing. Rows "
            "teach and judge in turn; intervals of changes beyond a temperature are wider by √2 for that."
        )
    else:
        notes.append(f"Candidates were compared and fitted on {repair.learned:,} rows, judged on others.")
    if repair.left_out:
        reasons = "; ".join(f"{TITLES[name]}: {why}" for name, why in repair.left_out.items())
        notes.append(f"Not tried: {reasons}.")
    if impossible := repair.impossible:
        notes.append(f"{impossible} rows give their label probability zero and are left out of the NLL.")
    return PageSection(
        heading="Repair",
        how="Chosen is the candidate of least NLL, or one temperature or nothing within a standard error of "
        "it. It is recommended where it surely lowers the NLL, or lowers it and takes the ECE below where it "
        "surely was; never where it raises the ECE.",
        tables=[candidates_table(repair)],
        notes=notes,
    )


def _files(repair: Repair, report: "AuditReport") -> dict[str, bytes]:
    note = f"fitted on {repair.learned:,} rows by an audit"
    calibrator = replace(repair.fitted, classes=report.class_names, note=note)
    return {"repair.json": json_bytes(calibrator.to_dict())}


SECTION = Section(
    name="repair",
    cost=2,
    compute=_compute,
    summary=if_found("repair", _summary, None),
    page=if_found("repair", _page, None),
    files=if_found("repair", _files, {}),
)
