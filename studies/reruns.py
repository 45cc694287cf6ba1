"""How far a rerun of the same seed moves PACS, beside what intervals over seeds say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from calmoe.errors import InputError
from calmoe.methods import in_order, method_title
from calmoe.render.grid import Entry, Grid, Heading, count, label, number, signed
from calmoe.report.columns import column_title
from calmoe.report.rows_over_seeds import Row, Rows
from calmoe.report.rows_over_targets import mean_over_targets
from studies.rows import (
    DECIMALS,
    PROTOCOL,
    Place,
    bounds,
    by_key,
    less,
    place_of,
    read_lines,
    read_results,
    values,
)
from studies.trainings import as_trained, deviation, of_a_difference, over_seeds, same_training

ARMS = {"as it is": "robust", "ERM": "vanilla"}  # of the switch study, each the table's method of that name
METRICS = ("accuracy", "ece", "ece_ts", "nll_ts", "brier_ts")

Trainings = dict[str, dict[Place, list[Row]]]  # by method: those that came out differently


def reruns(
    folder: Annotated[Path, typer.Argument(help="With results.jsonl and switch.jsonl of PACS.")],
    also: Annotated[
        Path | None,
        typer.Option(help="Rows that `python -m studies cells` wrote: last weights count."),
    ] = None,
) -> None:
    """How much does a rerun of the same seeds move PACS?

    The switch study trained Robust MoE and ERM again, for most targets and seeds of the table, and the study
    that --also names other methods. Prints how far one model moves, then each method less Vanilla MoE in the
    mean over targets and seeds, with two 95 % intervals: from the scatter of the seeds, and from the reruns
    alone. A training whose scores are those of another, to the last digit, is no rerun.

    Example: python -m studies reruns results/pacs --also results/truer/pacs.jsonl
    """
    table = [row for row in read_results(folder / "results.jsonl") if row["protocol"] == PROTOCOL]
    switch = [row for row in read_lines(folder / "switch.jsonl") if row["arm"] in ARMS]
    runs: list[Rows] = [table, [{**row, "method": ARMS[row["arm"]]} for row in switch]]
    if also:
        runs.append(as_trained(read_lines(also)))
    trained = trainings(runs)
    for grid in (moves(runs, trained), both_intervals(table, trained)):
        print(grid.markdown())


def trainings(runs: Sequence[Rows]) -> Trainings:
    """By method and place the trainings that differ; of the methods that have two of them somewhere."""
    apart: Trainings = {}
    for run in runs:
        for (method, place), row in by_key(run, lambda row: (row["method"], place_of(row))).items():
            known = apart.setdefault(method, {}).setdefault(place, [])
            if not any(same_training(row, other) for other in known):
                known.append(row)
    trained = {m: apart[m] for m in in_order(apart) if any(len(rows) > 1 for rows in apart[m].values())}
    for arm, method in ARMS.items():
        if method not in trained:
            raise InputError(f"switch.jsonl has no rerun of {method_title(method)}: train {arm!r} first")
    return trained


def moves(runs: Sequence[Rows], trained: Trainings) -> Grid:
    """By method and metric: a training's deviation from its seed's mean, and the largest move of a model."""

    def row(method: str, column: str) -> tuple[Entry, ...]:
        groups = [[float(row[column]) for row in rows] for rows in trained[method].values()]
        models, different = sum(r["method"] == method for run in runs for r in run), sum(map(len, groups))
        return (
            label(method_title(method), method),
            label(column_title(column), column),
            count(models - len(groups)),
            count(models - different),
            number(deviation(groups).size, DECIMALS),
            number(max(max(group) - min(group) for group in groups), DECIMALS),
        )

    titles = ("Method", "Metric", "Trained again", "The same again", "SD of a rerun", "Largest move")
    return Grid(
        "The same target and seed trained again",
        tuple(Heading(title, (title.lower(),)) for title in titles),
        tuple(tuple(row(method, column) for column in METRICS) for method in trained),
    )


def both_intervals(table: Rows, trained: Trainings) -> Grid:
    """Each method less Vanilla MoE, mean over targets and seeds: errors by the seeds and by reruns."""
    places = {place_of(row) for row in table}
    means = mean_over_targets(table, {target for target, _ in places})

    def row(method: str, column: str) -> tuple[Entry, ...]:
        scores = (values(means, name, column, PROTOCOL) for name in (method, "vanilla"))
        difference = less(method, column, *scores).interval
        errors = (
            deviation([[float(row[column]) for row in rows] for rows in trained[name].values()])
            for name in (method, "vanilla")
        )
        cells = [
            label(method_title(method), method),
            label(column_title(column), column),
            signed(difference.estimate, decimals=DECIMALS),
        ]
        for error in (over_seeds(difference), of_a_difference(*errors).of_a_mean(len(places))):
            low, high = difference.estimate - error.half(), difference.estimate + error.half()
            cells += [number(error.size, DECIMALS), bounds(low, high)]
        return tuple(cells)

    titles = (
        *("Method", "Metric", "Difference"),
        *("SE over seeds", "95 % over seeds", "SE of reruns", "95 % of reruns"),
    )
    return Grid(
        "Less Vanilla MoE, mean over targets and seeds",
        tuple(Heading(title, (title.lower(),)) for title in titles),
        tuple(tuple(row(method, column) for column in METRICS) for method in trained if method != "vanilla"),
    )
