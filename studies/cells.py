"""Every reading of every model of a run, as one row: last or averaged weights, one view or several."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from calmoe.auditing import Configurations, hidden
from calmoe.experiments.evaluation import as_method_reads, evaluate, fitted_temperature
from calmoe.experiments.export import rescaled
from calmoe.experiments.plan import Node
from calmoe.experiments.run import Run
from calmoe.metrics import nll
from calmoe.metrics.routing import routing_entropy
from calmoe.predictions import Predictions
from calmoe.threads import threads
from studies.rows import write_lines

PROTOCOL = "corrected"
SCORES = ("accuracy", "ece", "nll", "ece_ts", "nll_ts", "brier_ts", "smooth_ece_ts")
DIGITS = 6


def cells(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    to: Annotated[Path, typer.Option(help="The file of rows to write.")] = Path("cells.jsonl"),
) -> None:
    """What does each reading of each model score?

    A model trained with average= and views= can be read in four ways: its last or its averaged weights, on
    one view or on all. Writes a row for each: its NLL on validation after the temperature, by which settings
    are chosen; its scores on test; the router's entropy; and what is hidden after the temperature.

    Example: python -m studies cells runs/cifar10h --to results/truer/cifar10h.jsonl
    """
    with threads(1):
        write_lines(to, [row for run in runs for row in rows_of(Run.open(run))])


def rows_of(run: Run) -> Iterator[dict[str, Any]]:
    """All readings of all finished models, one after the other."""
    nodes = {node.key: node for node in run.nodes}
    for planned in run.finished():
        files = run.folder.predictions(planned.key)
        for prefix in ("", "views_", "last_", "last_views_"):
            if f"{prefix}test" in files:
                pair = files[f"{prefix}validation"], files[f"{prefix}test"]
                validation, test, _ = as_method_reads(planned.method, *pair, PROTOCOL)
                facts = facts_of(run, nodes[planned.key], prefix)
                yield facts | read(planned.method, planned.seed, validation, test, run.record.hard, facts)


def facts_of(run: Run, node: Node, prefix: str) -> dict[str, Any]:
    """Which model it is, and how it is read."""
    training = node.training
    averaged = training.average > 0 and not prefix.startswith("last_")
    return {
        "dataset": run.spec.dataset,
        "target": run.spec.target,
        "method": node.method,
        "seed": node.seed,
        "weights": "averaged" if averaged else "last",
        "average": training.average if averaged else 0.0,
        "views": training.views if "views_" in prefix else 1,
        "rho": training.rho if node.stage.gradient == "sharp" else None,
    }


def read(
    method: str,
    seed: int,
    validation: Predictions,
    test: Predictions,
    hard: str | None,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """What this reading scores."""
    row = evaluate(method, seed, PROTOCOL, {"validation": validation, "test": test}, hard)
    temperature = fitted_temperature(validation, PROTOCOL)
    scaled = rescaled(validation, temperature)
    found = hidden(Configurations.of(rescaled(test, temperature)))
    names = [*SCORES, *(f"hard_{name}" for name in SCORES)]
    return {
        "rows": len(test),
        "temperature": row["temperature"],
        "validation_nll": nll(scaled.output.log_probs, scaled.known_labels),
        **{name: None if row[name] is None else round(row[name], DIGITS) for name in names},
        "routing_entropy": entropy_of_a_view(test, facts["views"]),
        "witness": [round(value, DIGITS) for value in found.witness[:2]],
        "cancelled": [round(value, DIGITS) for value in found.cancelled[:2]],
        "p_hidden": found.p_hidden,
    }


def entropy_of_a_view(predictions: Predictions, views: int) -> float | None:
    """The mean of the router's entropy over rows and views, as a share of log K; None for one expert.

    Pooled, V views of K experts are V·K experts with routing r / V, whose entropy is log V more.
    """
    routing = predictions.output.routing.double().numpy()
    experts = routing.shape[1] // views
    if experts == 1:
        return None
    pooled = float(np.mean(routing_entropy(routing))) * math.log(routing.shape[1])
    return (pooled - math.log(views)) / math.log(experts)
