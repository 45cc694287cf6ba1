"""The paper's cells beside a run's: how far apart they are, and whether they may be compared at all."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from calmoe.render.grid import Entry, Grid, Heading, estimate, label, signed
from calmoe.report.columns import column_title
from calmoe.report.published import published, standard_error
from calmoe.report.rows_over_seeds import Cell, Rows, cell_of, summarise
from calmoe.report.tables import METHOD, METRIC, method_entry, sections_by_method

NONE_KNOWN = "no cell could be compared: that takes two seeds of a method that the paper has"


class Comparison(NamedTuple):
    """A published cell, ± as printed, and ours; `combined_errors`: the difference over sqrt(se1² + se2²)."""

    method: str
    column: str
    published_mean: float
    published_sd: float
    mean: float
    standard_error: float
    difference: float
    combined_errors: float


def compare(
    rows: Rows,
    dataset: str,
    protocol: str = "published",
    error_of: Callable[[float], float] = standard_error,
) -> list[Comparison]:
    """Every published cell beside ours; NaN where the run has none.

    error_of: from a printed ± to the standard error of its mean; by default the ± is a standard deviation.
    The paper rounds to three decimals: a ± printed as 0.001 is anything from 0.0005 to 0.0015, so read
    `combined_errors` with care where the printed one is that small.
    """
    ours = summarise(rows, protocol)
    return [
        _comparison(method, column, mean, printed, error_of(printed), cell_of(ours, method, column))
        for method, cells in published(dataset)["cells"].items()
        for column, (mean, printed) in cells.items()
    ]


def beyond(comparisons: Iterable[Comparison], limit: float = 2.0) -> list[Comparison]:
    """The cells that differ by more than `limit` combined standard errors."""
    return [c for c in comparisons if abs(c.combined_errors) > limit]


def _comparison(
    method: str, column: str, mean: float, printed: float, error: float, ours: Cell
) -> Comparison:
    difference = ours.mean - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        combined = float(np.divide(difference, np.hypot(error, ours.standard_error)))
    return Comparison(method, column, mean, printed, *ours[:2], difference, combined)


def no_test(protocol: str, backbone: str, settings: str = "") -> str:
    """Why the paper's cells come from another experiment; empty where they come from the same one.

    backbone: the run's beside the paper's, where they differ; settings: those that the user changed.
    """
    split = "under the corrected protocol training, validation rows and temperatures are not the paper's"
    reasons = [split] if protocol == "corrected" else []
    reasons += ["the backbone is another"] if backbone else []
    reasons += ["settings are not the preset's"] if settings else []
    return " and ".join(reasons)


def verdict(comparisons: Iterable[Comparison], why: str = "") -> str:
    """A caption's clause about the comparisons. why: what `no_test` gives."""
    comparisons = list(comparisons)
    known = _known(comparisons)
    if why:
        return f"no test of reproduction: {why}"
    if not known:
        return NONE_KNOWN
    far = f"{len(beyond(known))} of {len(known)} cells differ from the paper by more than 2 combined SE"
    return f"{far} ({len(comparisons) - len(known)} not compared)"


def verdict_in_words(comparisons: Sequence[Comparison], why: str = "") -> str:
    """The same in sentences; empty where the run has none of the paper's cells."""
    if all(math.isnan(c.mean) for c in comparisons):
        return ""
    if why:
        return f"The paper's cells stand beside ours below, but {why}: this is no test of reproduction."
    known = _known(comparisons)
    if not known:
        return f"{NONE_KNOWN.capitalize()}."
    far = len(beyond(known))
    return (
        f"Of the paper's {len(comparisons)} cells, {len(known)} can be compared with ours under the "
        f"published protocol: {len(known) - far} lie within two combined standard errors, {far} beyond."
    )


def comparison_table(comparisons: Sequence[Comparison], caption: str | None = None, why: str = "") -> Grid:
    """A row for each published cell; those beyond 2 combined standard errors are marked.

    why: what `no_test` gives. Where it gives a reason, the two columns of the test are left out.
    """
    far = set(beyond(comparisons))

    def row(c: Comparison) -> tuple[Entry, ...]:
        test = (
            signed(c.combined_errors, bold=c in far, decimals=2),
            label("yes", "yes") if c in far else label("", ""),
        )
        return (
            method_entry(c.method),
            label(column_title(c.column), c.column),
            estimate(c.published_mean, c.published_sd),
            estimate(c.mean, c.standard_error),
            signed(c.difference),
            *(() if why else test),
        )

    tested = (Heading("In combined SE", ("combined_errors",)), Heading("Beyond 2", ("beyond_2",)))
    return Grid(
        caption or verdict(comparisons, why),
        (
            METHOD,
            METRIC,
            Heading("Published ± SD", ("published", "published_sd")),
            Heading("Ours ± SE", ("ours", "ours_se")),
            Heading("Difference", ("difference",)),
            *(() if why else tested),
        ),
        sections_by_method(comparisons, row),
    )


def _known(comparisons: Iterable[Comparison]) -> list[Comparison]:
    return [c for c in comparisons if not math.isnan(c.combined_errors)]
