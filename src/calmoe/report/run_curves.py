"""From a run folder to the numbers of its figures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calmoe.errors import InputError
from calmoe.experiments.evaluation import SOLVER, VALIDATION
from calmoe.experiments.records import record_of
from calmoe.experiments.runner import expected
from calmoe.experiments.store import HISTORY, RunFolder
from calmoe.experiments.validation import read_history
from calmoe.methods import card
from calmoe.predictions import Predictions
from calmoe.report.curves import curves, per_expert


class Model(NamedTuple):
    """What a finished model says of validation and test, as its method reads it, and how it got there."""

    method: str
    seed: int
    validation: Predictions
    test: Predictions
    history: list[dict[str, float]]


def models(
    path: Path,
    protocol: str | None = None,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
) -> Iterator[Model]:
    """Every finished method and seed of a run, or those given; the protocol is the run's own if not given."""
    folder, record = RunFolder(path), record_of(path)
    protocol = protocol or record["spec"]["protocol"]
    if protocol not in record["protocols"]:
        raise InputError(f"{path} can be judged by {', '.join(record['protocols'])}, not {protocol!r}")
    for _, method, seed, node, done in expected(folder, record):
        if done and (seeds is None or seed in seeds) and (methods is None or method in methods):
            predictions = folder.predictions(node)
            validation, test = predictions[VALIDATION[protocol]], predictions["test"]
            if card(method).post_hoc == "per_expert_temperature":
                validation, test = per_expert(validation, test, SOLVER[protocol])
            history = _own_history(method, read_history(folder.node(node) / HISTORY))
            yield Model(method, seed, validation, test, history)


def run_curves(path: Path, protocol: str | None = None) -> list[dict[str, Any]]:
    """The curves of every finished method and seed; the protocol is the run's own if not given."""
    record = record_of(path)
    facts = {
        "dataset": record["spec"]["dataset"],
        "protocol": protocol or record["spec"]["protocol"],
    }
    found = [
        {**facts, "seed": seed, **curves(method, validation, test, record["hard"], history)}
        for method, seed, validation, test, history in models(path, protocol)
    ]
    if not found:
        raise InputError(f"{path} has no finished method: run `calmoe run` there again")
    return found


def _own_history(method: str, history: list[dict[str, float]]) -> list[dict[str, float]]:
    """Without the share of negative weights where they are the tilted mean's and not the method's own.

    The entropic risk weights by q ≥ 0; its history says what the tilted mean would have done.
    """
    if card(method).objective == "tilted":
        return history
    return [{k: v for k, v in entry.items() if k != "negative_share"} for entry in history]
