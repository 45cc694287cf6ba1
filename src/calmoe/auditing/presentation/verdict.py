"""The verdict, the first point of the summary: are the probabilities true, and what would break them?"""

from typing import TYPE_CHECKING

from calmoe.auditing.presentation.numbers import in_words
from calmoe.auditing.sections.calibration import Aggregate
from calmoe.auditing.sections.fragility import Fragility, quoted
from calmoe.auditing.sections.hidden import OWN_VECTOR, ROUTING, Hidden
from calmoe.auditing.sections.repair import Repair

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

UNKNOWN = 0.2  # the ECE of a network on a domain new to it: an interval that reaches so far says nothing


def verdict(report: "AuditReport") -> str:
    """One paragraph: true or not, true for the right reason or not, what breaks them, what mends them."""
    parts = [_truth(report.aggregate)]
    if report.hidden is not None:
        parts.append(_reason(report.hidden, _untrue(report.aggregate)))
    if report.fragility is not None:
        parts.append(_threat(report.fragility))
    if report.repair is not None:
        parts.append(remedy(report.repair))
    return " ".join(parts)


def _biased(aggregate: Aggregate) -> bool:
    return aggregate.balance.low > 0 or aggregate.balance.high < 0


def _untrue(aggregate: Aggregate) -> bool:
    return aggregate.ece.low > 0 or _biased(aggregate)


def _truth(aggregate: Aggregate) -> str:
    ece, balance = aggregate.ece, aggregate.balance
    if _untrue(aggregate):
        side = (
            "overconfident" if balance.high < 0 else "underconfident" if balance.low > 0 else "off both ways"
        )
        way = f"on average {side} by {abs(balance.value):.3f}" if _biased(aggregate) else side
        return f"The probabilities are not true: ECE {in_words(ece)}, {way}."
    if ece.high > UNKNOWN:
        return f"There are too few rows to tell whether the probabilities are true: ECE {in_words(ece)}."
    return f"The probabilities may well be true: ECE {in_words(ece)}."


def _reason(hidden: Hidden, untrue: bool) -> str:
    if hidden.p_hidden < 0.05:
        lead = "Besides," if untrue else "But"
        by = {ROUTING: " by how they were routed", OWN_VECTOR: " by the rest of their probabilities"}
        text = f"{lead} rows of equal confidence are right more or less often{by.get(str(hidden.origin), '')}"
    else:
        text = "Nothing was found hidden behind the confidence"
    return f"{text} (p = {hidden.p_hidden:.2g})."


def _threat(fragility: Fragility) -> str:
    curve = fragility.configurations
    at = quoted(curve.radii)
    if curve.error[at].low > 0:
        return (
            f"Another mix of the same configurations, KL {curve.radii[at]:g}, brings the error to "
            f"{curve.error[at].value:.3f}."
        )
    return f"No other mix of them within KL {curve.radii[at]:g} was shown to break that."


def remedy(repair: Repair) -> str:
    """What one temperature does, and what a repair does beyond it."""
    temperature = repair.fitted.temperature_
    if temperature.status_ == "uninformative":
        return "No temperature mends them: uniform probabilities would do better."
    remaining = repair.ece.temperature.value
    text = (
        f"One temperature, T = {temperature.temperature_:.2f}, leaves an ECE of {remaining:.3f} on rows new "
        "to it"
    )
    if repair.nll.change.high < 0:
        return f"{text}; a repair by routing takes {-repair.nll.change.value:.4f} more off the NLL."
    return f"{text}; a repair by routing is not shown to add to that."
