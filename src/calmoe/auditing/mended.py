"""What a repair does: the recommended one, or one that the audit offers where none is recommended."""

from typing import TYPE_CHECKING, NamedTuple

from calmoe.auditing.repairs.repair import stricter
from calmoe.auditing.statistics.estimates import Estimate

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport


class Mended(NamedTuple):
    """ECE and log loss before and after a repair, on rows that it was not fitted on."""

    name: str
    before: Estimate
    after: Estimate
    loss_before: float
    loss_after: float


def read_repair(report: "AuditReport") -> Mended | None:
    """The recommended repair; never one that surely raises the ECE."""
    repair = report.repair
    if repair is None or repair.recommended is None:
        return None
    before, after = repair.before.ece.value, repair.after.ece.value
    losses = repair.before.nll.value.value, repair.after.nll.value.value
    return Mended(repair.recommended, before, after, *losses) if helps(before, after) else None


def read_offer(report: "AuditReport") -> Mended | None:
    """Where none is recommended: a candidate that surely lowers the log loss, but raises the ECE.

    The lowest log loss chooses; of those within a standard error of it, the lowest ECE. A target asks for
    labels first.
    """
    repair = report.repair
    if repair is None or repair.recommended is not None or report.target is not None:
        return None
    looks = len(repair.candidates) - 1  # all but nothing
    lower = [
        each
        for name, each in repair.candidates.items()
        if name in repair.worse and stricter(each.nll.against_nothing, looks, report.level).high < 0
    ]
    if not lower:
        return None
    lowest = min(lower, key=lambda each: each.nll.value.value).nll
    near = lowest.value.value + lowest.against_nothing.standard_error
    as_low = [each for each in lower if each.nll.value.value <= near]
    before, best = repair.before, min(as_low, key=lambda each: each.ece.value.value)
    return Mended(best.name, before.ece.value, best.ece.value, before.nll.value.value, best.nll.value.value)


def helps(before: Estimate, after: Estimate) -> bool:
    """Whether the ECE is not shown to rise."""
    return after.low <= before.value
