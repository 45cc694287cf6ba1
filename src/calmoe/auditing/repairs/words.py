"""Repairs in sentences: what one does, and why one is recommended or none."""

from collections.abc import Collection, Mapping

from calmoe.auditing.repairs.candidates import NOTHING, TEMPERATURE
from calmoe.auditing.repairs.measures import TITLES, Candidate
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.render.wording import decimal


def effect(name: str, before: Candidate, after: Candidate) -> str:
    """What the repair of this name does, in one sentence."""
    if name == NOTHING:
        return f"No repair leaves the ECE at {_bounds(before.ece.value)}."
    beyond = ""
    if name != TEMPERATURE:
        beyond = f", {in_brackets(after.nll.against_temperature)} of it beyond one temperature"
    gain = in_brackets(after.nll.against_nothing)
    return (
        f"{TITLES[name].capitalize()} changes the NLL by {gain}{beyond}, and "
        f"takes the ECE from {_bounds(before.ece.value)} to {_bounds(after.ece.value)}, on rows that it was "
        "not fitted on."
    )


def reason(
    recommended: str | None, chosen: str, measured: Mapping[str, Candidate], worse: Collection[str]
) -> str:
    """Why this is recommended, in one sentence; worse: those that raise the ECE."""
    before, temperature, choosing = measured[NOTHING], measured[TEMPERATURE], measured["chosen"]
    if recommended is not None:
        paid = recommended == chosen != TEMPERATURE
        return effect(recommended, before, choosing if paid else measured[recommended])
    if temperature.nll.against_nothing.high < 0 and TEMPERATURE in worse:
        return (
            f"One temperature would change the NLL by {in_brackets(temperature.nll.against_nothing)}, but "
            f"raise the ECE from {_bounds(before.ece.value)} to {_bounds(temperature.ece.value)}."
        )
    if chosen == NOTHING:
        return "On rows that it was not fitted on, no repair does better than none."
    change = in_brackets(choosing.nll.against_nothing)
    if {chosen, "chosen"} & {*worse}:
        return (
            f"The best, {TITLES[chosen]}, changes the NLL by {change} on rows new to it, but raises the ECE."
        )
    return f"The best, {TITLES[chosen]}, changes the NLL by {change} on rows new to it: no sure gain."


def in_brackets(estimate: Estimate, decimals: int = 4) -> str:
    """A change with its interval."""
    value, low, high = (decimal(number, decimals, "+") for number in estimate[:3])
    return f"{value} [{low}, {high}]"


def _bounds(ece: Estimate) -> str:
    return f"{ece.value:.3f} [{ece.low:.3f}, {ece.high:.3f}]"
