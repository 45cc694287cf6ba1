"""The audit as one self-contained page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from calmoe.auditing import certified, repaired
from calmoe.auditing.estimates import Estimate
from calmoe.auditing.words import summary
from calmoe.report.grid import Entry, Grid, Heading, count, interval, label, signed
from calmoe.report.page import Page, Picture, Section

if TYPE_CHECKING:
    from calmoe.auditing.audit import AuditReport

CAPTIONS = {
    "experts": "The mixture's ECE beside that of its experts.",
    "fragility": "The calibration error under reweightings, on labels that they were not chosen on.",
    "certificates": certified.CAPTION,
    "auditors": "The moments of all auditors; a dot marks those that differ from zero, all taken together.",
}


def page(report: "AuditReport", pictures: Mapping[str, tuple[bytes, str]]) -> Page:
    """pictures: PNG bytes and alt text by name."""

    def shown(name: str) -> list[Picture]:
        return [Picture(name, *pictures[name], CAPTIONS[name])] if name in pictures else []

    sections = [
        Section(
            heading="The aggregate and its experts",
            how="ECE of the population at fixed bins: the usual upward bias is taken off, and an interval "
            "that starts at 0 means that calibrated predictions could look like this.",
            tables=[_experts(report)],
            figures=shown("experts"),
        )
    ]
    if report.hidden is not None:
        sections.append(
            Section(
                heading="Hidden miscalibration",
                how="A witness, learned on other rows, bounds E|m(S) − f| from below. What cancels between "
                "configurations of equal confidence is calibrated by their proportions only.",
                tables=[_hidden(report), _rules(report)],
            )
        )
    if report.fragility is not None:
        sections.append(
            Section(
                heading="Fragility",
                how="Each point is a reweighting chosen without the labels it is shown on: the true worst "
                "case is at least that bad.",
                tables=[_curves(report)],
                figures=shown("fragility"),
            )
        )
    sections.append(
        Section(
            heading="Auditors",
            how="E[r φ(f) (Y − f)] by expert and confidence. Red: more often right than said; blue: less. "
            f"No moment can exceed √J = {report.indicators.bound.value:.3f}.",
            tables=[_auditors(report)],
            figures=shown("auditors"),
        )
    )
    sections.append(certified.section(report.certificates, shown("certificates")))
    if report.repair is not None:
        sections.append(repaired.section(report.repair))
    facts = {
        "rows": f"{report.rows:,}",
        "classes": str(report.classes),
        "experts": str(report.num_experts),
        "event": "the predicted class is right" if report.of == "top" else f"the label is {report.of}",
        "bins": str(report.bins),
        "level of the intervals": f"{report.level:g}",
    }
    return Page(
        title="Calibration audit",
        subtitle=f"{report.rows:,} rows, {report.classes} classes, {report.num_experts} experts",
        summary=summary(report),
        sections=sections,
        facts=facts,
        footer="calmoe audit",
    )


def _pair(found: Estimate) -> tuple[Entry, Entry]:
    """The value, and its interval; a one-sided bound has no upper end."""
    if np.isinf(found.high):
        return signed(found.value), Entry(f"≥ {found.low:.3f}", (found.low, found.high))
    return signed(found.value), interval(found.low, found.high)


def _headings(*names: tuple[str, str]) -> tuple[Heading, ...]:
    """Titles and keys; a key that ends in * is a value and its interval, in two columns."""
    headings: list[Heading] = []
    for title, key in names:
        if key.endswith("*"):
            headings += [
                Heading(title, (key[:-1],)),
                Heading("interval", (f"{key[:-1]}_low", f"{key[:-1]}_high")),
            ]
        else:
            headings.append(Heading(title, (key,)))
    return tuple(headings)


def _experts(report: "AuditReport") -> Grid:
    found = report.aggregate
    unknown = Estimate(*[float("nan")] * 4)
    rows = [
        (label("mixture", "mixture"), signed(1.0), *_pair(found.ece), *_pair(unknown), *_pair(found.balance))
    ]
    for k, expert in enumerate(found.experts):
        name = label(f"expert {k}", f"expert_{k}")
        rows.append(
            (
                name,
                signed(expert.share.value),
                *_pair(expert.view),
                *_pair(expert.region),
                *_pair(expert.balance),
            )
        )
    headings = _headings(
        ("", "who"),
        ("share", "share"),
        ("ECE on its view", "view*"),
        ("ECE where it leads", "region*"),
        ("balance", "balance*"),
    )
    return Grid(
        "The mixture and its experts: E[r (Y − f)] is the balance",
        headings,
        (tuple(rows[:1]), tuple(rows[1:])),
    )


def _hidden(report: "AuditReport") -> Grid:
    found = report.hidden
    assert found is not None
    rows = (
        (label("level sets: the ECE", "level_set"), *_pair(found.level_set)),
        (label("configurations: E|m(S) − f|, from below", "witness"), *_pair(found.witness)),
        (label("cancelled inside the bins, from below", "cancelled"), *_pair(found.cancelled)),
    )
    caption = (
        f"p = {found.p_calibrated:.2g} for “calibrated in every configuration”, "
        f"p = {found.p_hidden:.2g} for “given the confidence, the configuration says nothing more”"
    )
    return Grid(caption, _headings(("", "what"), ("estimate", "value*")), (rows,))


def _rules(report: "AuditReport") -> Grid:
    assert report.hidden is not None
    rows = tuple(
        (label(rule.text, rule.text), signed(rule.share), *_pair(rule.gap)) for rule in report.hidden.rules
    )
    headings = _headings(("configurations", "rule"), ("share", "share"), ("accuracy − confidence", "gap*"))
    return Grid("Which configurations, and which way", headings, (rows,))


def _curves(report: "AuditReport") -> Grid:
    found = report.fragility
    assert found is not None
    rows = tuple(
        tuple(
            (
                label(curve.name, curve.name),
                signed(float(radius)),
                *_pair(curve.error[i]),
                *_pair(curve.ece[i]),
                count(round(curve.effective[i])),
            )
            for i, radius in enumerate(curve.radii)
        )
        for curve in found.curves
    )
    headings = _headings(
        ("reweighting of", "curve"),
        ("KL", "kl"),
        ("error forced", "error*"),
        ("ECE", "ece*"),
        ("effective rows", "effective"),
    )
    return Grid("Every point of the curves", headings, rows)


def _auditors(report: "AuditReport") -> Grid:
    found = report.indicators
    order = np.argsort(-np.abs(np.where(found.found, found.moments, 0.0)), axis=None)[
        : min(10, int(found.found.sum()))
    ]
    rows = []
    for k, j in zip(*np.unravel_index(order, found.moments.shape), strict=True):
        rows.append(
            (
                label(f"expert {k}", f"expert_{k}"),
                signed(float(found.nodes[j])),
                signed(float(found.moments[k, j]), decimals=4),
                interval(float(found.low[k, j]), float(found.high[k, j])),
                signed(float(found.normalised[k, j])),
                interval(float(found.normalised_low[k, j]), float(found.normalised_high[k, j])),
            )
        )
    headings = _headings(
        ("auditor", "expert"),
        ("confidence", "confidence"),
        ("moment", "moment*"),
        ("normalised", "normalised*"),
    )
    caption = "The largest moments that differ from zero" if rows else "No moment differs from zero"
    return Grid(caption, headings, (tuple(rows),))
