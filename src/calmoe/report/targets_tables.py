"""Lay out tables over several targets: methods × targets, paired differences, the paper beside ours."""

import math
from collections.abc import Mapping, Sequence

from calmoe.methods import families
from calmoe.render.grid import Entry, Grid, Heading, estimate, interval, label, signed
from calmoe.report.columns import column_title, columns_in
from calmoe.report.comparison import Comparison, beyond
from calmoe.report.rows_over_seeds import (
    MISSING,
    PairedDifference,
    Rows,
    best_methods,
    cell_of,
    summarise,
    uneven,
)
from calmoe.report.rows_over_targets import MEAN, by_target
from calmoe.report.tables import METHOD, METRIC, NEVER_BOLD, SEEDS, method_entry, seeds_entry

MEAN_TITLE = "Mean over targets"


def targets_table(
    rows: Rows,
    protocol: str,
    titles: Mapping[str, str],
    columns: Sequence[str] = columns_in("targets"),
    caption: str = "",
) -> Grid:
    """A row for each method, a block of columns for each target, then the mean and its seeds; best in bold.

    titles: the title of each target's block, in order.
    """
    summaries = {target: summarise(own, protocol) for target, own in by_target(rows, titles).items()}
    best = {(t, c): best_methods(summary, c) for t, summary in summaries.items() for c in columns}

    def row(method: str) -> tuple[Entry, ...]:
        cells = {(t, c): cell_of(summaries[t], method, c) for t, c in best}
        entries = {
            at: estimate(cell.mean, cell.standard_error, bold=method in best[at])
            for at, cell in cells.items()
        }
        apart = [entries[t, c] for t in titles for c in columns]
        together = [entries[MEAN, c] for c in columns]
        seeds = [
            seeds_entry(cell for (t, _), cell in cells.items() if (t == MEAN) == mean)
            for mean in (False, True)
        ]
        return (method_entry(method), seeds[0], *apart, seeds[1], *together)

    methods = list(dict.fromkeys(method for summary in summaries.values() for method in summary))
    blocks = [
        Heading(column_title(c), (f"{t}_{c}", f"{t}_{c}_se"), title)
        for t, title in titles.items()
        for c in columns
    ]
    means = [Heading(column_title(c), (f"{MEAN}_{c}", f"{MEAN}_{c}_se"), MEAN_TITLE) for c in columns]
    return Grid(
        (caption or "Mean ± standard error over seeds, by target, best in bold")
        + (NEVER_BOLD if any(uneven(summaries[t], c) for t, c in best) else ""),
        (METHOD, SEEDS, *blocks, Heading("Seeds", (f"{MEAN}_seeds",), MEAN_TITLE), *means),
        tuple(tuple(map(row, family)) for family in families(methods)),
    )


def targets_paired_table(
    differences: Mapping[str, Sequence[PairedDifference]], titles: Mapping[str, str], caption: str = ""
) -> Grid:
    """A row for each method and metric, a column for each target: the difference and its interval.

    Those without zero are in bold.
    """
    known = {(t, d.method, d.column): d for t in titles for d in differences[t]}
    columns = list(dict.fromkeys(column for _, _, column in known))

    def row(method: str, column: str) -> tuple[Entry, ...]:
        cells = [known.get((t, method, column)) for t in titles]
        seeds = seeds_entry(MISSING._replace(n=d.n) for d in cells if d)
        return (method_entry(method), label(column_title(column), column), seeds, *map(_difference, cells))

    parts = ("difference", "low", "high")
    return Grid(
        caption or "Difference to the baseline over the same seeds by target, with 95 % intervals",
        (
            METHOD,
            METRIC,
            SEEDS,
            *(Heading(title, tuple(f"{t}_{p}" for p in parts)) for t, title in titles.items()),
        ),
        tuple(
            tuple(row(method, column) for column in columns)
            for family in families(dict.fromkeys(method for _, method, _ in known))
            for method in family
        ),
    )


def targets_comparison_table(
    comparisons: Mapping[str, Sequence[Comparison]], titles: Mapping[str, str], caption: str, tested: bool
) -> Grid:
    """A row for each method and metric, the paper's cell and ours by target.

    tested: whether both come from the same experiment; then ours beyond 2 combined standard errors are bold.
    """
    known = {(t, c.method, c.column): c for t, cells in comparisons.items() for c in cells}
    far = set(beyond(known.values())) if tested else set()

    def row(method: str, column: str) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        for t in comparisons:
            c = known[t, method, column]
            entries += [
                estimate(c.published_mean, c.published_sd),
                estimate(c.mean, c.standard_error, c in far),
            ]
        return (method_entry(method), label(column_title(column), column), *entries)

    lines = list(dict.fromkeys((method, column) for _, method, column in known))
    return Grid(
        caption,
        (
            METHOD,
            METRIC,
            *(
                Heading(f"{title} ± {spread.upper()}", (f"{t}_{name}", f"{t}_{name}_{spread}"), titles[t])
                for t in comparisons
                for name, title, spread in (("published", "Paper", "sd"), ("ours", "Ours", "se"))
            ),
        ),
        tuple(
            tuple(row(*line) for line in lines if line[0] == method)
            for method in dict.fromkeys(m for m, _ in lines)
        ),
    )


def _difference(d: PairedDifference | None) -> Entry:
    """ "−0.014 [−0.025, −0.002]"; "−0.014 [unknown]" for one seed."""
    if d is None or not d.n:
        return Entry("–", (math.nan, math.nan, math.nan))
    bold = d.low > 0 or d.high < 0
    bounds = interval(d.low, d.high, bold, missing="[unknown]").text
    return Entry(f"{signed(d.estimate).text} {bounds}", (d.estimate, d.low, d.high), bold)
