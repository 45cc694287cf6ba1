"""From a run folder to the numbers of its figures."""

import json
from pathlib import Path
from typing import Any

from calmoe.errors import InputError
from calmoe.experiments.evaluation import SOLVER, VALIDATION
from calmoe.experiments.methods import METHODS, in_order, source
from calmoe.experiments.plan import leaves
from calmoe.experiments.records import plan_of
from calmoe.experiments.spec import from_table
from calmoe.experiments.store import HISTORY, RunFolder
from calmoe.report.curves import curves, per_expert


def run_curves(path: Path, protocol: str | None = None) -> list[dict[str, Any]]:
    """The curves of every finished method and seed; the protocol is the run's own if not given."""
    folder = RunFolder(path)
    record = folder.record()
    if record is None:
        raise InputError(f"there is no run in {path}: give the folder that `calmoe run` wrote")
    spec = from_table(record["spec"])
    protocol = protocol or spec.protocol
    if protocol not in record["protocols"]:
        raise InputError(f"{path} can be judged by {', '.join(record['protocols'])}, not {protocol!r}")
    nodes = plan_of(spec, record)
    done, trained = folder.done(nodes), leaves(nodes)
    found = []
    for method in in_order(spec.methods):
        for seed in spec.seeds:
            node = trained[source(method), seed]
            if node.key in done:
                predictions = folder.predictions(node)
                validation, test = predictions[VALIDATION[protocol]], predictions["test"]
                if METHODS[method].post_hoc == "per_expert_temperature":
                    validation, test = per_expert(validation, test, SOLVER[protocol])
                history = _own_history(method, json.loads((folder.node(node) / HISTORY).read_bytes()))
                facts = {"dataset": spec.dataset, "protocol": protocol, "seed": seed}
                found.append(facts | curves(method, validation, test, record["hard"], history))
    if not found:
        raise InputError(f"{path} has no finished method: run `calmoe run` there again")
    return found


def _own_history(method: str, history: list[dict[str, float]]) -> list[dict[str, float]]:
    """Without the share of negative weights where they are the tilted mean's and not the method's own.

    The entropic risk weights by q ≥ 0; its history says what the tilted mean would have done.
    """
    if METHODS[method].objective == "tilted":
        return history
    return [{k: v for k, v in entry.items() if k != "negative_share"} for entry in history]
