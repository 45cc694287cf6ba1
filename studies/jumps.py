"""How far the training loss jumps when the objective switches, beside the accuracy that is lost."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from scipy.stats import spearmanr

from calmoe.experiments.run import Model, Run
from calmoe.methods import METHODS
from calmoe.metrics import accuracy
from calmoe.render.grid import Entry, Grid, Heading, count, label, number
from calmoe.render.wording import listed
from calmoe.report.tables import method_entry
from studies.rows import read_lines, span, write_lines

SWITCHING = [name for name, method in METHODS.items() if method.objective != "erm"]
COMPARABLE = [  # the same loss of the same images
    name for name in SWITCHING if (METHODS[name].loss, METHODS[name].gradient) == ("cross_entropy", "plain")
]
COLUMNS = {
    "loss_before": "Loss before",
    "highest_loss": "Highest loss",
    "last_loss": "Last loss",
    "source_less_vanilla": "Source accuracy less Vanilla",
    "target_less_vanilla": "Target accuracy less Vanilla",
}


def jumps(
    file: Annotated[Path, typer.Argument(help="The rows: read, or written from --run.")],
    run: Annotated[
        list[Path] | None, typer.Option(help="A run folder to make the rows from; repeat for more.")
    ] = None,
) -> None:
    """Does accuracy fall where the training loss jumps?

    A row is a target, a seed and a method that switches: its mean training loss in the epoch before the
    switch, the highest after it and the last; its accuracy on source validation rows and on the target, and
    the same less Vanilla MoE's. Prints means and ranges by method, then Spearman's correlations.

    Example: python -m studies jumps runs/jumps.jsonl --run runs/switch/plain
    """
    if run:
        write_lines(file, rows_of(run))
    for grid in tables(read_lines(file)):
        print(grid.markdown())


def rows_of(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """One row a target, seed and switching method that Vanilla MoE stands beside."""
    trained: dict[tuple[str, int, str], dict[str, float]] = {}
    for path in runs:
        run = Run.open(path)
        for model in run.read_models(methods=["vanilla", *SWITCHING]):
            trained[run.spec.target, model.seed, model.method] = _facts(model, run.spec.training.warmup)
    rows = []
    for (target, seed, method), facts in sorted(trained.items()):
        vanilla = trained.get((target, seed, "vanilla"))
        if method != "vanilla" and vanilla is not None:
            less = {f"{name}_less_vanilla": facts[name] - vanilla[name] for name in ("source", "target")}
            rows.append({"target_domain": target, "seed": seed, "method": method, **facts, **less})
    return rows


def _facts(model: Model, warmup: int) -> dict[str, float]:
    before, *after = [entry["loss"] for entry in model.history[warmup - 1 :]]
    return {
        "loss_before": before,
        "highest_loss": max(after),
        "last_loss": after[-1],
        "source": accuracy(model.validation.output.probs, model.validation.known_labels),
        "target": accuracy(model.test.output.probs, model.test.known_labels),
    }


def tables(rows: Sequence[dict[str, Any]]) -> Iterator[Grid]:
    methods = [method for method in SWITCHING if any(row["method"] == method for row in rows)]
    yield by_method(rows, methods)
    yield correlations(rows, [method for method in methods if method in COMPARABLE])


def by_method(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> Grid:
    """Means and ranges over models."""

    def cell(method: str, column: str) -> Entry:
        if METHODS[method].loss != "cross_entropy" and column == "loss_before":
            return label("–", "")  # before the switch the loss is the warm-up's, in another unit
        return span(row[column] for row in rows if row["method"] == method)

    def row(method: str) -> tuple[Entry, ...]:
        models = sum(row["method"] == method for row in rows)
        return method_entry(method), count(models), *(cell(method, column) for column in COLUMNS)

    return Grid(
        "Training loss around the switch and accuracy after it, mean (smallest to largest) over models",
        (
            Heading("Method", ("method",)),
            Heading("Models", ("models",)),
            *(Heading(title, (c, f"{c}_low", f"{c}_high")) for c, title in COLUMNS.items()),
        ),
        (tuple(map(row, methods)),),
    )


def correlations(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> Grid:
    """Spearman's rank correlation of the highest loss with the accuracy lost: pooled, then within methods."""

    def row(chosen: Sequence[str], column: str) -> tuple[Entry, ...]:
        own = [row for row in rows if row["method"] in chosen]
        rank = spearmanr([row["highest_loss"] for row in own], [row[column] for row in own]).statistic
        names = listed([METHODS[name].title for name in chosen])
        return (
            label(names, ",".join(chosen)),
            label(COLUMNS[column], column),
            count(len(own)),
            number(float(rank), 2),
        )

    groups = [methods, *([method] for method in methods)] if methods else []
    return Grid(
        "Spearman's rank correlation with the highest loss",
        (
            Heading("Methods", ("methods",)),
            Heading("Metric", ("metric",)),
            Heading("Models", ("models",)),
            Heading("Correlation", ("correlation",)),
        ),
        (tuple(row(*pair) for pair in product(groups, list(COLUMNS)[3:])),),
    )
