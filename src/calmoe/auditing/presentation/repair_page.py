"""The repair in words, in a table and as a part of the page."""

from calmoe.auditing.presentation.cells import headings
from calmoe.auditing.sections.repair import Compared, Repair
from calmoe.render.grid import Entry, Grid, decimal, interval, label, number, signed
from calmoe.render.page import Section


def words(found: Repair) -> str:
    """What the repair would gain, or that it would not."""
    if not found.kept and found.status != "repaired":
        return f"none is offered beyond a temperature: {found.message}."
    nll, witness, ece = found.nll, found.witness, found.ece
    text = (
        f"on {found.rows:,} rows that it was not fitted on, moving logits by routing changes the NLL by "
        f"{_told(nll)} beyond what a temperature does, what a witness finds by {_told(witness)} (from "
        f"{witness.temperature.value:.3f}) and the ECE by {_told(ece)} (from {ece.temperature.value:.3f})"
    )
    if found.kept < found.blocks:
        text += f"; {found.blocks - found.kept} of {found.blocks} parts of the rows kept the temperature"
    return text + f". Fitted on all rows: {found.message}."


def in_short(found: Repair) -> str:
    """What one temperature does, and what a repair does beyond it."""
    fitted = found.fitted.temperature_
    if fitted.status_ == "uninformative":
        return "No temperature mends them: uniform probabilities would do better."
    left = found.ece.temperature.value
    text = f"One temperature, T = {fitted.temperature_:.2f}, leaves an ECE of {left:.3f} on rows new to it"
    if found.nll.change.high < 0:
        return text + f"; a repair by routing takes {-found.nll.change.value:.4f} more off the NLL."
    return text + "; a repair by routing is not shown to add to that."


def _told(found: Compared) -> str:
    change = found.change
    value, low, high = (decimal(number, 4, "+") for number in (change.value, change.low, change.high))
    return f"{value} [{low}, {high}]"


def table(found: Repair) -> Grid:
    """Before, after, and the paired change."""

    def row(title: str, key: str, part: Compared) -> tuple[Entry, ...]:
        low, high = part.change.low, part.change.high
        return (
            label(title, key),
            number(part.temperature.value, decimals=4),
            number(part.repaired.value, decimals=4),
            signed(part.change.value, decimals=4),
            interval(low, high, bold=low > 0 or high < 0, decimals=4),
        )

    rows = (
        row("NLL", "nll", found.nll),
        row("ECE", "ece", found.ece),
        row("E|m(S) − f|, from below", "witness", found.witness),
        row("accuracy", "accuracy", found.accuracy),
    )
    columns = headings(
        ("", "what"), ("temperature", "temperature"), ("repair", "repair"), ("change", "change*")
    )
    return Grid(f"{found.rows:,} rows, each answered by fits on earlier rows only", columns, (rows,))


def section(found: Repair) -> Section:
    impossible = (
        [f"{found.impossible} rows give their label probability zero and are left out of the NLL."]
        if found.impossible
        else []
    )
    return Section(
        heading="Repair",
        how="Both columns are on rows that neither was fitted on; an interval of the change that lies below "
        "zero is a gain. A repair that is not surely better by cross-validation is not made: the columns are "
        "then equal.",
        tables=[table(found)],
        notes=[f"Fitted on all rows: {found.message}.", *impossible],
    )
