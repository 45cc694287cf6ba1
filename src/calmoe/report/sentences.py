"""Sentences that the summary of a run and the summary over targets share."""

import math
from collections.abc import Iterable, Sequence

from calmoe.methods import method_title
from calmoe.render.grid import signed
from calmoe.render.wording import listed, many, shortened, telling
from calmoe.report.rows_over_seeds import PairedDifference, Rows

PROTOCOLS = {
    "corrected": "temperatures are fitted to convergence, on validation rows that are not augmented",
    "published": "as in the authors' code, validation rows are augmented and the search for a temperature "
    "stops before it converges",
}
UNBROKEN = "\N{NO-BREAK SPACE}"


def method_titles(methods: Iterable[str]) -> str:
    return listed([method_title(method) for method in methods])


def models_text(rows: Rows, dataset: str) -> str:
    """ "4 methods on digits, 2 seeds (42 and 43)"."""
    methods, seeds = {row["method"] for row in rows}, sorted({row["seed"] for row in rows})
    return f"{many(len(methods), 'method')} on {dataset}, {many(len(seeds), 'seed')} ({listed(seeds)})"


def protocol_text(protocol: str) -> str:
    return f"{protocol.capitalize()} protocol: {PROTOCOLS.get(protocol, 'see the documentation')}"


def side(difference: PairedDifference) -> int | None:
    """-1 where the whole interval lies below zero, 1 above, 0 where it includes zero; None: no interval."""
    if math.isnan(difference.low) or math.isnan(difference.high):
        return None
    return int(difference.low > 0) - int(difference.high < 0)


def difference_text(difference: PairedDifference) -> str:
    """ "−0.014 [−0.025, −0.002]", with enough decimals to show on which side of zero it lies."""
    if side(difference) is None:
        return signed(difference.estimate).text
    _, _, _, estimate, low, high, *_ = difference
    decimals = telling(low, high)
    middle, low_text, high_text = (signed(value, decimals=decimals).text for value in (estimate, low, high))
    return f"{middle} [{low_text}, {high_text}]".replace(" ", UNBROKEN)


def sides_text(differences: Sequence[PairedDifference]) -> str:
    """For whom a metric, the lower the better, is lower, higher or neither; empty for one seed."""
    parts = []
    for sign, word in ((-1, "Lower (better) for"), (1, "Higher (worse) for")):
        apart = [f"{method_title(d.method)}, {difference_text(d)}" for d in differences if side(d) == sign]
        parts += [f"{word} {'; '.join(apart)}."] if apart else []
    level = [d.method for d in differences if side(d) == 0]
    parts += [f"No evidence of a difference for {method_titles(level)}."] if level else []
    return " ".join(parts)


def interval_caveat(rows: Rows, uncovered: str) -> str:
    """What intervals over seeds cover, and what they do not."""
    seeds = len({row["seed"] for row in rows})
    if seeds == 1:
        return "There is one seed, so there are no intervals: no difference here can be told from chance."
    few = " Two seeds hardly show anything: add seeds." if seeds == 2 else ""
    return (
        f"Intervals are Student's t over at most {seeds} seeds, each trained once. They cover how these "
        "seeds scatter, neither a second training of the same seeds, which on a GPU may move more than so "
        f"few seeds show, nor the choice of {uncovered}.{few}"
    )


def multiplicity_caveats(differences: Iterable[PairedDifference], metrics: str = "") -> list[str]:
    """How many of so many intervals would leave out zero by chance; nothing where there are no intervals."""
    judged = sum(side(d) is not None for d in differences)
    if not judged:
        return []
    return [
        f"This summary makes {many(judged, 'comparison')}{metrics}, not corrected for their number, and the "
        f"tables make more: were there no difference at all, about {0.05 * judged:.1f} of them would still "
        "stand out."
    ]


def no_optimum_caveats(models: Sequence[str], total: int) -> list[str]:
    """Which models, or the first of them, have no optimal temperature; nothing where all have one."""
    if not models:
        return []
    named = f"{listed(shortened(models))} ({len(models)} of {many(total, 'model')})"
    return [f"Validation found no optimal temperature for {named}."]


def missing_text(gaps: list[str], seeds: int, where: str) -> tuple[str, list[str]]:
    """The gaps as bullets; a sentence where there are none."""
    if gaps:
        return "", gaps
    return f"Nothing: every method has all {many(seeds, 'seed')} {where}.", []
