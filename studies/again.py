"""How far a second training of the same methods and seeds moved a table."""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer

from calmoe.methods import method_title
from calmoe.render.grid import Entry, Grid, Heading, label, number
from calmoe.render.wording import decimal
from calmoe.report.columns import column_title
from calmoe.report.rows_over_seeds import Rows
from studies.claims import COLUMNS, against
from studies.rows import DECIMALS, Difference, read_results, values

MOVED = ("accuracy", "ece", "ece_ts", "hard_ece", "hard_ece_ts", "nll_ts")
ALWAYS = "hard_ece_ts"  # shown whether it changed sides or not


def again(
    folder: Annotated[Path, typer.Argument(help="With results.jsonl and again.jsonl.")],
    baseline: Annotated[str, typer.Option(help="The method that the others are compared with.")] = "vanilla",
) -> None:
    """Does a second training say the same?

    Reads results.jsonl and again.jsonl, which hold the same methods and seeds. For each protocol it prints
    the largest difference of a mean over seeds and of one model, then the differences to the baseline, first
    run and second: those in hard ECE after a temperature, and those whose 95 % interval leaves out zero in
    one run only.

    Example: python -m studies again results/hatexplain --baseline single
    """
    first, second = (read_results(folder / name) for name in ("results.jsonl", "again.jsonl"))
    for grid in both_runs(first, second, baseline):
        print(grid.markdown())


def both_runs(first: Rows, second: Rows, baseline: str = "vanilla") -> Iterator[Grid]:
    for protocol in dict.fromkeys(row["protocol"] for row in first):
        yield moves(first, second, protocol)
        yield sides(first, second, protocol, baseline)


def moves(first: Rows, second: Rows, protocol: str) -> Grid:
    """By metric: the largest difference between the runs of a method's mean, and of one model."""
    methods = dict.fromkeys(row["method"] for row in first if row["protocol"] == protocol)

    def row(column: str) -> tuple[Entry, ...]:
        pairs = [[values(rows, method, column, protocol) for rows in (first, second)] for method in methods]
        changes = [[b[seed] - a[seed] for seed in a] for a, b in pairs]
        of_means = max(abs(mean(change)) for change in changes)
        of_models = max(abs(change) for method in changes for change in method)
        return label(column_title(column), column), *(number(v, DECIMALS) for v in (of_means, of_models))

    return Grid(
        f"Largest difference between the two runs, {protocol} protocol",
        (Heading("Metric", ("metric",)), Heading("Of a mean", ("mean",)), Heading("Of a model", ("model",))),
        (tuple(map(row, MOVED)),),
    )


def sides(first: Rows, second: Rows, protocol: str, baseline: str) -> Grid:
    """The differences to the baseline that matter most, or that one run alone tells from zero."""
    runs = [against(rows, protocol, baseline, COLUMNS) for rows in (first, second)]
    shown = [(a, b) for a, b in zip(*runs, strict=True) if a.column == ALWAYS or a.side != b.side]
    return Grid(
        f"Less {method_title(baseline)}, {protocol} protocol, {len(runs[0])} intervals: "
        f"{column_title(ALWAYS)}, and what one run alone tells from zero",
        (
            Heading("Method", ("method",)),
            Heading("Metric", ("metric",)),
            Heading("First run", ("first",)),
            Heading("Second run", ("second",)),
            Heading("Changes sides", ("changes",)),
        ),
        (
            tuple(
                (
                    label(method_title(a.name), a.name),
                    label(column_title(a.column), a.column),
                    _with_interval(a),
                    _with_interval(b),
                    label("yes" if a.side != b.side else "", "changes"),
                )
                for a, b in shown
            ),
        ),
    )


def _with_interval(difference: Difference) -> Entry:
    numbers = difference.interval[:3]
    estimate, low, high = (decimal(value, DECIMALS, "+") for value in numbers)
    return Entry(f"{estimate} [{low}, {high}]", numbers, bool(difference.side))
