"""An audit in words: what was found, how sure it is, and what was not looked at."""

from typing import TYPE_CHECKING

import numpy as np

from calmoe.auditing.presentation import certificate_page, repair_page
from calmoe.auditing.sections.auditors import ENOUGH
from calmoe.auditing.sections.calibration import Aggregate
from calmoe.auditing.sections.fragility import SMALLEST
from calmoe.auditing.sections.hidden import Hidden
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.metrics.checks import Of
from calmoe.render.grid import decimal
from calmoe.render.page import Point

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport


def told(found: Estimate) -> str:
    """`0.031 [0.022, 0.040]`, or `at least 0.031` for a one-sided bound (its value is in the tables)."""
    if np.isnan(found.value):
        return "unknown"
    if np.isnan(found.low):
        return f"{decimal(found.value)} (too few rows for an interval)"
    if np.isinf(found.high):
        return f"at least {max(found.low, 0.0):.3f}"
    return f"{decimal(found.value)} [{decimal(found.low)}, {decimal(found.high)}]"


def rate(of: Of) -> str:
    """What E[Y] is."""
    return "accuracy" if of == "top" else f"share of label {of}"


def who(report: "AuditReport") -> str:
    """A model without experts is no mixture."""
    return "mixture" if report.num_experts > 1 else "model"


def summary(report: "AuditReport") -> list[Point]:
    """In short, and then a point a part."""
    points = [Point("In short", _in_short(report))]
    if report.unlike > UNLIKE:
        points.append(Point("Note", _unlike(report)))
    points.append(Point("Aggregate", _aggregate(report.aggregate, rate(report.of), who(report))))
    if report.hidden is not None:
        points.append(Point("Hidden miscalibration", _hidden(report.hidden)))
    if report.fragility is not None:
        points.append(Point("Fragility", _fragility(report)))
    points.append(Point("Auditors", _auditors(report)))
    points.append(
        Point("Certificates", certificate_page.words(report.certificates, report.level, who(report)))
    )
    if report.repair is not None:
        points.append(Point("Repair", repair_page.words(report.repair)))
    if report.target is not None:
        from calmoe.auditing.presentation.target_page import words

        points.append(Point("Target", words(report.target, rate(report.of))))
    return points + [Point("Left out", f"{part}: {why}.") for part, why in report.left_out.items()]


UNKNOWN = 0.2  # an ECE as of a network on a domain new to it: where it cannot be ruled out, 0 says nothing


def _in_short(report: "AuditReport") -> str:
    """Are the probabilities true, true for the right reason, and what would break them?"""
    ece, balance = report.aggregate.ece, report.aggregate.balance
    off = balance.low > 0 or balance.high < 0
    if ece.low > 0 or off:
        side = (
            "overconfident" if balance.high < 0 else "underconfident" if balance.low > 0 else "off both ways"
        )
        told_off = f", on average {side} by {abs(balance.value):.3f}" if off else f", {side}"
        text = f"The probabilities are not true: ECE {told(ece)}{told_off}."
    elif ece.high > UNKNOWN:
        text = f"There are too few rows to tell whether the probabilities are true: ECE {told(ece)}."
    else:
        text = f"The probabilities may well be true: ECE {told(ece)}."
    if report.hidden is not None:
        p_value = report.hidden.p_hidden
        if p_value < 0.05:
            text += " Besides," if ece.low > 0 or off else " But"
            text += " rows of equal confidence are right more or less often by how they were routed"
        else:
            text += " Nothing was found hidden behind the confidence"
        text += f" (p = {p_value:.2g})."
    if report.fragility is not None:
        curve = report.fragility.configurations
        at = certificate_page.quoted(curve.radii)
        if curve.error[at].low > 0:
            text += (
                f" Another mix of the same configurations, KL {curve.radii[at]:g}, brings the error to "
                f"{curve.error[at].value:.3f}."
            )
        else:
            text += f" No other mix of them within KL {curve.radii[at]:g} was shown to break that."
    if report.repair is not None:
        text += f" {repair_page.in_short(report.repair)}"
    return text


UNLIKE = 0.01  # of a probability: more than rounding


def _unlike(report: "AuditReport") -> str:
    return (
        f"the mixture's probabilities differ from those that its routing and experts give by up to "
        f"{report.unlike:.3f}. That is right after a temperature; else rows, experts or classes of the file "
        "are out of order, and all below is void."
    )


def _aggregate(found: Aggregate, rate: str, who: str) -> str:
    text = f"the {who}'s ECE is {told(found.ece)}, its {rate} {told(found.accuracy)}"
    text += f"; on average it is off by {told(found.balance)} ({rate} less confidence)."
    if found.ece.value < abs(found.balance.value):
        text += (
            " (The ECE is freed from its upward bias, and so may read below what it is off by on average.)"
        )
    if len(found.experts) == 1:
        return text
    text += f" On their routing-weighted views its experts' ECE is {told(found.experts_ece)} on average."
    if found.worse_than_experts:
        text += " The mixture is calibrated worse than every one of its experts."
    if found.calibrated_unlike_experts:
        text += " The mixture may well be calibrated while some of its experts are not."
    return text


def _hidden(found: Hidden) -> str:
    if found.witness.low > 0:
        text = f"configuration by configuration, probabilities are off by {told(found.witness)} on average"
    elif found.p_calibrated < 0.05:
        text = "single configurations are miscalibrated, by too little to say how much"
    else:
        text = "no miscalibration of single configurations was found"
    if found.cancelled.low > 0:
        text += f"; {told(found.cancelled)} of it cancels inside the bins, where the ECE cannot see it"
    text += (
        f". p = {found.p_calibrated:.2g} for “calibrated in every configuration”, {found.p_hidden:.2g} for "
        "“given the confidence, the configuration says nothing more”."
    )
    named = found.rules if len(found.rules) > 1 else ()
    clear = [rule for rule in named if rule.gap.low > 0 or rule.gap.high < 0]
    for rule in clear[:2] if found.p_hidden < 0.05 else []:
        side = "underconfident" if rule.gap.value > 0 else "overconfident"
        text += (
            f" Where {rule.text} ({rule.share.value:.0%} of rows) it is {side} by {told(_size(rule.gap))}."
        )
    return text


def _size(gap: Estimate) -> Estimate:
    """A gap of either sign as how much it is."""
    if gap.value >= 0:
        return gap
    return Estimate(-gap.value, -gap.high, -gap.low, gap.standard_error)


def _fragility(report: "AuditReport") -> str:
    found = report.fragility
    assert found is not None
    curve, at = found.configurations, certificate_page.quoted(found.configurations.radii)
    force = "forces" if curve.error[at].low > 0 else "is not shown to force"
    text = (
        f"a reweighting of the configurations with KL {curve.radii[at]:g} {force} a calibration error: "
        f"{told(curve.error[at])} on labels it was not chosen on; reweighting the experts' regions alone "
        f"gives {told(found.regions.error[at])}."
    )
    twice = "the ECE" if found.doubled > 2 * SMALLEST else f"{SMALLEST:g} (the ECE is smaller)"
    if np.isinf(found.doubling.high):
        return (
            text + f" No KL up to {curve.radii[-1]:g} is shown to force {found.doubled:.3f}, twice {twice}."
        )
    text += f" {found.doubled:.3f}, twice {twice}, is reached at KL {found.doubling.value:.3f}"
    return text + f", and by the lower ends of the intervals at {found.doubling.high:.3f}."


def _auditors(report: "AuditReport") -> str:
    found, mixed = report.indicators, report.num_experts > 1
    judged = int((~np.isnan(found.low)).sum())
    if not judged:
        nobody = f"no expert has {ENOUGH} effective rows in any bin" if mixed else f"no bin has {ENOUGH} rows"
        text = f"{nobody}, so that no moment is judged"
    else:
        of = "expert-and-bin moments" if mixed else "bins' moments"
        text = f"{int(found.found.sum())} of {judged} {of} differ from zero"
    if found.found.any():
        k, j = np.unravel_index(np.abs(np.where(found.found, found.moments, 0)).argmax(), found.moments.shape)
        whose, largest = f"expert {k}'s " if mixed else "", decimal(found.moments[k, j], 4, "+")
        text += f"; the largest, {largest}, is {whose}at confidence {found.nodes[j]:.2f}"
        if not np.isnan(found.normalised[k, j]):
            text += f" (a residual of {decimal(found.normalised[k, j], 3, '+')} there)"
    return text + f". The bound √J on every one of them is {told(found.bound)}."
