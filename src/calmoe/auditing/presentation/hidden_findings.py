"""How the report shows hidden miscalibration: its sentences and tables."""

from typing import TYPE_CHECKING

from calmoe.auditing.presentation.numbers import cells, headings, in_words
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.statistics.origin import BOTH, NOT_DECIDED, OWN_VECTOR, ROUTING
from calmoe.render.grid import Entry, Grid, label

if TYPE_CHECKING:
    from calmoe.auditing.sections.hidden import Hidden


def sentences(hidden: "Hidden", routed: bool) -> str:
    """How much is hidden, the two p-values, and where it is; routed: whether routing differs between rows."""
    if hidden.witness.low > 0:
        text = (
            f"configuration by configuration, probabilities are off by {in_words(hidden.witness)} on average"
        )
    elif hidden.p_calibrated < 0.05:
        text = "single configurations are miscalibrated, by too little to say how much"
    else:
        text = "no miscalibration of single configurations was found"
    if hidden.cancelled.low > 0:
        text += f"; {in_words(hidden.cancelled)} of it cancels inside the bins, where the ECE cannot see it"
    text += (
        f". p = {hidden.p_calibrated:.2g} for “calibrated in every configuration”, {hidden.p_hidden:.2g} for "
        "“given the confidence, the configuration says nothing more”."
    )
    text += _whence(hidden, routed)
    named = hidden.rules if len(hidden.rules) > 1 else ()
    clear = [rule for rule in named if rule.gap.low > 0 or rule.gap.high < 0]
    for rule in clear[:2] if hidden.p_hidden < 0.05 else []:
        side, size = "underconfident", rule.gap
        if size.value < 0:
            side, size = "overconfident", Estimate(-size.value, -size.high, -size.low, size.standard_error)
        text += f" Where {rule.text} ({rule.share.value:.0%} of rows) it is {side} by {in_words(size)}."
    return text


def _whence(hidden: "Hidden", routed: bool) -> str:
    """Where what is hidden comes from, if the control says so; and whether another seed might differ."""
    if not hidden.decided:
        return " The splits do not agree on the latter: another seed might say otherwise."
    tellers = _tellers(routed)
    nothing_more = f", {tellers} are not shown to add to that." if hidden.p_routing < 1 else "."
    return {
        None: "",
        OWN_VECTOR: f" The other probabilities of a row show it{nothing_more}",
        ROUTING: f" {tellers[0].upper()}{tellers[1:]} show it; the mixture's own vector does not.",
        BOTH: f" The mixture's own vector shows some of it, {tellers} more.",
        NOT_DECIDED: " What shows it is not decided.",
    }[hidden.origin]


def _tellers(routed: bool) -> str:
    return "routing and experts" if routed else "the experts' own answers"


def bounds_table(hidden: "Hidden", experts: int, routed: bool) -> Grid:
    """The bounds, one a row."""
    rows: tuple[tuple[Entry, ...], ...] = (
        (label("level sets: the ECE", "level_set"), *cells(hidden.level_set)),
        (label("configurations: E|m(S) − f|, from below", "witness"), *cells(_floored(hidden.witness))),
        (label("cancelled inside the bins, from below", "cancelled"), *cells(_floored(hidden.cancelled))),
    )
    if experts > 1:
        own, more = "the mixture's own vector alone, from below", f"{_tellers(routed)} add, from below"
        rows += (
            (label(own, "without_routing"), *cells(_floored(hidden.without_routing))),
            (label(more, "routing_adds"), *cells(_floored(hidden.routing_adds))),
        )
    caption = (
        f"p = {hidden.p_calibrated:.2g} for “calibrated in every configuration”, "
        f"p = {hidden.p_hidden:.2g} for “given the confidence, the configuration says nothing more”. "
        f"p-values and bounds are the middle ones of {hidden.splits} random splits, at a level that pays "
        "for it"
    )
    return Grid(caption, headings(("measure", "what"), ("estimate", "value*")), (rows,))


def _floored(bound: Estimate) -> Estimate:
    """What is bounded cannot be negative; an estimate of the bound can."""
    return bound._replace(value=max(bound.value, 0.0))


def rules_table(hidden: "Hidden", rate: str) -> Grid:
    """The rules, one a row."""
    rows = tuple(
        (label(rule.text, rule.text), *cells(rule.share), *cells(rule.gap, sign=True))
        for rule in hidden.rules
    )
    columns = headings(("configurations", "rule"), ("share", "share*"), (f"{rate} − confidence", "gap*"))
    return Grid("Which configurations, and which way", columns, (rows,))
