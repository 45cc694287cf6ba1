"""The audit as one self-contained page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from calmoe import __version__
from calmoe.auditing.presentation import certificate_page, repair_page
from calmoe.auditing.presentation.cells import headings, pair
from calmoe.auditing.presentation.glossary import glossary
from calmoe.auditing.presentation.summary import rate, summary, who
from calmoe.auditing.presentation.target_page import section
from calmoe.auditing.sections import surface
from calmoe.render.grid import Grid, count, interval, label, number, signed
from calmoe.render.page import Fact, Page, Picture, Section

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

CAPTIONS = {
    "reliability": "A mark says how often rows of that confidence are right, with its interval; the bars "
    "below, how many such rows there are. Marks below the dotted line are overconfident, above it "
    "underconfident.",
    "experts": "A mark is an estimate and its bar the interval; one that touches 0 may well be calibrated. "
    "A mixture right of all its experts is worse than they are; one at 0, beside experts that are not, leans "
    "on their errors cancelling.",
    "fragility": "A line says how large the calibration error becomes, on labels it was not chosen on, when "
    "the configurations are reweighted by as much as the KL below; bands are intervals. "
    "A line that climbs at once belongs to a mixture that a small shift breaks, a flat one to calibration "
    "that does not hang on the mix.",
    "certificates": certificate_page.CAPTION,
    "auditors": "Red cells are more often right than they say and blue ones less, where that expert has "
    "weight and the mixture that confidence; a dot marks what differs from zero, all cells taken together. "
    "A row of one colour blames an expert, a column a level of confidence, and colours that change within a "
    "column are errors that cancel.",
    "hats": "The same with hats, 1 at one node and 0 at the next, so that a row counts for the two nodes "
    "beside it. What shows in both figures does not hang on where the bins' edges fall.",
    "target": "A mark says how often rows of a confidence are right, by labels or predicted; bars are "
    "intervals, and marks below the dotted line are overconfident. Where the prediction and "
    "the target's own labels part, the assumption fails.",
}


ALONE = {  # without experts
    "auditors": "Red bins are more often right than they say and blue ones less; a dot marks what differs "
    "from zero, all bins taken together. Colours that change along the line are errors of both signs.",
}


def page(
    report: "AuditReport", pictures: Mapping[str, tuple[bytes, str]], origin: Mapping[str, str] | None = None
) -> Page:
    """pictures: PNG bytes and alt text by name; origin: where the predictions come from."""

    def shown(name: str) -> list[Picture]:
        captions = CAPTIONS if report.num_experts > 1 else CAPTIONS | ALONE
        return [Picture(name, *pictures[name], captions[name])] if name in pictures else []

    mixed, moments = report.num_experts > 1, _auditors(report)
    sections = [
        Section(
            heading="Reliability",
            how="Is it right as often as it says? Groups are those that the file names; each interval holds "
            "by itself.",
            tables=[surface.table(report.surface, rate(report.of))] if report.surface.groups else [],
            figures=shown("reliability"),
        ),
        Section(
            heading="The aggregate and its experts" if mixed else "The aggregate",
            how="ECE of the population at fixed bins: the usual upward bias is taken off, and an interval "
            "that starts at 0 means that calibrated predictions could look like this.",
            tables=[_family(report)] + ([_experts(report), _against(report)] if mixed else []),
            figures=shown("experts"),
        ),
    ]
    if report.hidden is not None:
        sections.append(
            Section(
                heading="Hidden miscalibration",
                how="A witness, learned on other rows, bounds E|m(S) − f| from below; what cancels inside a "
                "bin is calibrated by proportions only. A small second p-value says that configurations of "
                "equal confidence differ.",
                tables=[_hidden(report), _rules(report)],
            )
        )
    if report.fragility is not None:
        sections.append(
            Section(
                heading="Fragility",
                how="Each point is a reweighting chosen without the labels it is shown on: the true worst "
                "case is at least that bad.",
                folded=[_curves(report)],
                figures=shown("fragility"),
            )
        )
    sections.append(
        Section(
            heading="Auditors",
            how=f"E[r φ(f) (Y − f)] by {'expert and ' if mixed else ''}confidence. Red: more often right "
            f"than said; blue: less. No moment can exceed √J = {report.indicators.bound.value:.3f}.",
            tables=[moments] if moments.rows else [],
            notes=[] if moments.rows else ["No moment differs from zero."],
            figures=shown("auditors") + shown("hats"),
        )
    )
    sections.append(certificate_page.section(report.certificates, shown("certificates")))
    if report.repair is not None:
        sections.append(repair_page.section(report.repair))
    if report.target is not None:
        sections.append(section(report.target, shown("target"), rate(report.of)))
    facts: dict[str, Fact] = {
        **(origin or {}),
        "rows": f"{report.rows:,}",
        "classes": str(report.classes),
        "experts": str(report.num_experts) if mixed else "none",
        "event": "the predicted class is right" if report.of == "top" else f"the label is {report.of}",
        "bins": str(report.bins),
        "level of the intervals": f"{report.level:g}",
        "seed": f"{report.seed}, which says what rows teach and what rows are judged",
        "What the words mean": glossary(),
    }
    return Page(
        title=f"Calibration audit of {origin['file']}" if origin else "Calibration audit",
        subtitle=f"{report.rows:,} rows, {report.classes} classes"
        + (f", {report.num_experts} experts" if mixed else ""),
        summary=summary(report),
        sections=sections,
        facts=facts,
        footer=f"Written by calmoe {__version__}. This file is whole: it needs no network.",
    )


def _experts(report: "AuditReport") -> Grid:
    rows = tuple(
        (
            label(f"expert {k}", f"expert_{k}"),
            *pair(expert.share),
            *pair(expert.view),
            *pair(expert.region),
        )
        for k, expert in enumerate(report.aggregate.experts)
    )
    columns = headings(
        ("", "who"), ("share", "share*"), ("ECE on its view", "view*"), ("ECE where it leads", "region*")
    )
    event = "the class that it predicts itself" if report.of == "top" else f"label {report.of}"
    return Grid(f"The experts, each by {event}", columns, (rows,))


def _against(report: "AuditReport") -> Grid:
    rows = tuple(
        (
            label(f"expert {k}", f"expert_{k}"),
            *pair(expert.balance, sign=True),
            *pair(expert.excess, sign=True),
        )
        for k, expert in enumerate(report.aggregate.experts)
    )
    columns = headings(
        ("", "who"), ("balance", "balance*"), ("the mixture's ECE less that on its view", "excess*")
    )
    return Grid("The experts beside the mixture: E[r (Y − f)] is the balance", columns, (rows,))


def _family(report: "AuditReport") -> Grid:
    found = report.aggregate
    rows = (
        (label(rate(report.of), "accuracy"), *pair(found.accuracy)),
        (label(f"balance: {rate(report.of)} less confidence", "balance"), *pair(found.balance, sign=True)),
        (label("ECE, bins of equal width", "ece"), *pair(found.ece)),
        (label("ECE, bins of equal mass", "adaptive_ece"), *pair(found.adaptive_ece)),
        (label("smooth ECE", "smooth_ece"), *pair(found.smooth_ece)),
        (label("class-wise ECE", "classwise_ece"), *pair(found.classwise_ece)),
        (label("the usual ECE, biased upward", "plain_ece"), *pair(found.plain_ece)),
        (label("the experts' ECE on their views, on average", "experts_ece"), *pair(found.experts_ece)),
    )
    shown = rows if report.num_experts > 1 else rows[:-1]
    return Grid(f"The {who(report)}", headings(("", "what"), ("estimate", "value*")), (shown,))


def _hidden(report: "AuditReport") -> Grid:
    found = report.hidden
    assert found is not None
    rows = (
        (label("level sets: the ECE", "level_set"), *pair(found.level_set)),
        (label("configurations: E|m(S) − f|, from below", "witness"), *pair(found.witness, sign=True)),
        (label("cancelled inside the bins, from below", "cancelled"), *pair(found.cancelled, sign=True)),
    )
    caption = (
        f"p = {found.p_calibrated:.2g} for “calibrated in every configuration”, "
        f"p = {found.p_hidden:.2g} for “given the confidence, the configuration says nothing more”. "
        f"p-values and bounds are the middle ones of {found.splits} random splits, at a level that pays "
        "for it"
    )
    return Grid(caption, headings(("", "what"), ("estimate", "value*")), (rows,))


def _rules(report: "AuditReport") -> Grid:
    assert report.hidden is not None
    rows = tuple(
        (label(rule.text, rule.text), *pair(rule.share), *pair(rule.gap, sign=True))
        for rule in report.hidden.rules
    )
    columns = headings(
        ("configurations", "rule"), ("share", "share*"), (f"{rate(report.of)} − confidence", "gap*")
    )
    return Grid("Which configurations, and which way", columns, (rows,))


def _curves(report: "AuditReport") -> Grid:
    found = report.fragility
    assert found is not None
    rows = tuple(
        tuple(
            (
                label(curve.name, curve.name),
                number(float(radius)),
                *pair(curve.error[i], sign=True),
                *pair(curve.ece[i]),
                count(round(curve.effective[i])),
            )
            for i, radius in enumerate(curve.radii)
        )
        for curve in found.curves
    )
    columns = headings(
        ("reweighting of", "curve"),
        ("KL", "kl"),
        ("error forced", "error*"),
        ("ECE", "ece*"),
        ("effective rows", "effective"),
    )
    return Grid("Every point of the curves", columns, rows)


def _auditors(report: "AuditReport") -> Grid:
    found = report.indicators
    order = np.argsort(-np.abs(np.where(found.found, found.moments, 0.0)), axis=None)[
        : min(10, int(found.found.sum()))
    ]
    rows = []
    for k, j in zip(*np.unravel_index(order, found.moments.shape), strict=True):
        rows.append(
            (
                label(f"expert {k}" if report.num_experts > 1 else "all rows", f"expert_{k}"),
                number(float(found.nodes[j])),
                signed(float(found.moments[k, j]), decimals=4),
                interval(float(found.low[k, j]), float(found.high[k, j])),
                signed(float(found.normalised[k, j])),
                interval(float(found.normalised_low[k, j]), float(found.normalised_high[k, j])),
            )
        )
    columns = headings(
        ("auditor", "expert"),
        ("confidence", "confidence"),
        ("moment", "moment*"),
        ("normalised", "normalised*"),
    )
    return Grid("The largest moments that differ from zero", columns, (tuple(rows),))
