"""Every reading of every model of a run, as one row: last or averaged weights, one view or several."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from calmoe.auditing import Configurations, hidden
from calmoe.experiments.evaluation import READINGS, as_method_reads, fitted_temperature
from calmoe.experiments.export import rescaled
from calmoe.experiments.plan import Node
from calmoe.experiments.run import Run
from calmoe.metrics import nll
from calmoe.metrics.routing import routing_entropy
from calmoe.predictions import Predictions
from calmoe.threads import threads
from studies.rows import PROTOCOL, write_lines

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
    scored = {(row["method"], row["seed"]): row for row in run.rows if row["protocol"] == PROTOCOL}
    for planned in run.finished():
        files, scores = run.folder.predictions(planned.key), scored[planned.method, planned.seed]
        for prefix in ("", *READINGS):
            if f"{prefix}test" in files:
                pair = files[f"{prefix}validation"], files[f"{prefix}test"]
                facts = {"method": planned.method} | facts_of(run, nodes[planned.key], prefix, pair[1])
                validation, test, _ = as_method_reads(planned.method, *pair, PROTOCOL, facts["views"])
                yield facts | scores_of(scores, prefix) | beyond_the_table(validation, test, facts["views"])


def facts_of(run: Run, node: Node, prefix: str, test: Predictions) -> dict[str, Any]:
    """Which model it is, and how it is read."""
    training = node.training
    averaged = training.average > 0 and not prefix.startswith("last_")
    experts = run.spec.model.experts if node.stage.head == "mixture" else 1
    return {
        "dataset": run.spec.dataset,
        "target": run.spec.target,
        "seed": node.seed,
        "weights": "averaged" if averaged else "last",
        "average": training.average if averaged else 0.0,
        "views": test.num_experts // experts,
        "rho": training.rho if node.stage.gradient == "sharp" else None,
        "rows": len(test),
    }


def scores_of(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The scores of one reading, out of the run's row."""
    scores = {name: row.get(prefix + name) for name in (*SCORES, *(f"hard_{name}" for name in SCORES))}
    rounded = {name: None if value is None else round(value, DIGITS) for name, value in scores.items()}
    return {"temperature": row[f"{prefix}temperature"]} | rounded


def beyond_the_table(validation: Predictions, test: Predictions, views: int) -> dict[str, Any]:
    """What the run's row does not hold: the validation NLL, the router's entropy, what is hidden."""
    temperature = fitted_temperature(validation, PROTOCOL)
    scaled = rescaled(validation, temperature)
    errors = hidden(Configurations.of(rescaled(test, temperature)))
    return {
        "validation_nll": nll(scaled.output.log_probs, scaled.known_labels),
        "routing_entropy": entropy_of_a_view(test, views),
        "witness": [round(value, DIGITS) for value in errors.witness[:2]],
        "cancelled": [round(value, DIGITS) for value in errors.cancelled[:2]],
        "p_hidden": errors.p_hidden,
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
