"""What a report is made of: run folders read as one run, and the sweeps beside it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calmoe.data import load_dataset
from calmoe.errors import InputError
from calmoe.experiments.curves import models, run_curves
from calmoe.experiments.engine import results
from calmoe.experiments.methods import in_order
from calmoe.experiments.records import Record, record_of, sweep_of
from calmoe.experiments.sealing import read_sealed
from calmoe.experiments.store import ENVIRONMENT, RunFolder, read_results
from calmoe.report.curves import Curves
from calmoe.report.examples import examples

Rows = list[dict[str, Any]]
SAME = (
    "fingerprint",
    "hard",
    "protocols",
)  # what all folders of one report share, besides model and training


class Source(NamedTuple):
    """A folder: its record, who worked there, its rows and, of a run, its curves."""

    path: Path
    record: Record
    sessions: list[dict[str, Any]]
    rows: Rows
    curves: list[Curves]

    @property
    def methods(self) -> list[str]:
        return list(self.record["spec"]["methods"])

    def only(self, methods: Sequence[str]) -> "Source":
        """The folder as if it held these methods alone."""
        record = {**self.record, "spec": {**self.record["spec"], "methods": list(methods)}}
        rows, curves = ([r for r in found if r["method"] in methods] for found in (self.rows, self.curves))
        return self._replace(record=record, rows=rows, curves=curves)


class Sources(NamedTuple):
    """Runs, which count as one, and sweeps by their setting."""

    runs: list[Source]
    sweeps: dict[str, Source]

    @property
    def all(self) -> list[Source]:
        return [*self.runs, *self.sweeps.values()]

    @property
    def record(self) -> Record:
        """The runs' records as one; a sweep's own where there is no run."""
        last = self.all[-1] if not self.runs else self.runs[-1]
        specs = [source.record["spec"] for source in self.runs or self.all]
        methods = in_order(method for spec in specs for method in spec["methods"])
        seeds = sorted({seed for spec in specs for seed in spec["seeds"]})
        return {**last.record, "spec": {**last.record["spec"], "methods": list(methods), "seeds": seeds}}

    @property
    def rows(self) -> Rows:
        """The runs' rows by protocol, method and seed."""
        protocols, methods = self.record["protocols"], self.record["spec"]["methods"]
        rows = [row for source in self.runs for row in source.rows]
        return sorted(
            rows, key=lambda r: (protocols.index(r["protocol"]), methods.index(r["method"]), r["seed"])
        )

    @property
    def curves(self) -> list[Curves]:
        methods = self.record["spec"]["methods"]
        found = [curves for source in self.runs for curves in source.curves]
        return sorted(found, key=lambda c: (methods.index(c["method"]), c["seed"]))


def read_sources(folders: Sequence[Path]) -> Sources:
    """All folders; where two runs hold the same method, the later one's stands."""
    runs: list[Source] = []
    sweeps: dict[str, Source] = {}
    for source in map(_read, folders):
        for other in (*runs, *sweeps.values()):
            _check_same(other, source)
        sweep = sweep_of(source.record)
        if sweep is None:
            runs = [run.only([m for m in run.methods if m not in source.methods]) for run in runs] + [source]
        elif sweep.setting in sweeps:
            raise InputError(f"{source.path} is a second sweep of {sweep.setting}: report it apart")
        else:
            sweeps[sweep.setting] = source
    return Sources([run for run in runs if run.rows], sweeps)


def run_examples(sources: Sources, data: Path | None) -> dict[str, Any]:
    """The test images that Vanilla MoE gets wrong with the most confidence, and what all methods say."""
    record = sources.record
    spec = record["spec"]
    if spec["model"]["backbone"] == "encoder":
        raise InputError("the data are texts, not images")
    dataset = load_dataset(spec["dataset"], data, spec["protocol"], spec.get("target", ""))
    if dataset.fingerprint() != record["fingerprint"]:
        raise InputError(f"the data in {data} are not those of the run")
    if not dataset.images:
        raise InputError("the data are not images")
    seed = min(c["seed"] for c in sources.curves)
    said = {
        model.method: model.test.output.probs
        for source in sources.runs
        for model in models(source.path, seeds=[seed])
        if model.method in source.methods
    }
    test = dataset.test
    names = [f"human_{c}" for c in range(dataset.num_classes)]
    known = all(name in test.groups for name in names)
    return examples(
        test.inputs,
        test.labels,
        dataset.class_names,
        {method: said[method] for method in in_order(said)},
        human=np.stack([test.groups[name] for name in names], axis=1) if known else None,
        hard=test.groups.get(record["hard"]),
        agreement=test.groups.get("agreement"),
        seed=seed,
    )


def _read(path: Path) -> Source:
    folder, record = RunFolder(path), record_of(path)
    curves = [] if sweep_of(record) else run_curves(path)
    return Source(path, record, _sessions(path), _rows(folder, record, curves), curves)


def _rows(folder: RunFolder, record: Record, curves: Sequence[Curves]) -> Rows:
    """The sealed results; computed anew where the run stopped before it wrote all of them."""
    try:
        rows = read_results(folder.path)
    except InputError:
        rows = []
    there = {(row["method"], row["seed"]) for row in rows}
    if not rows or not there.issuperset((c["method"], c["seed"]) for c in curves):
        rows = results(folder, record)
    if not rows:
        raise InputError(f"{folder.path} has no finished method: run its command again")
    return rows


def _sessions(run: Path) -> list[dict[str, Any]]:
    """Who worked on the run; nothing where that file is gone or damaged."""
    try:
        return list(read_sealed(run / ENVIRONMENT)["sessions"])
    except (OSError, InputError):
        return []


def _model(record: Record) -> dict[str, Any]:
    """The model's settings, with pretrained weights by content instead of by place."""
    return {**record["spec"]["model"], "weights": record.get("weights")}


def _check_same(first: Source, other: Source) -> None:
    """Folders of other data, or of models trained otherwise, do not go into one report."""
    pairs = {name: (first.record[name], other.record[name]) for name in SAME}
    for name in ("dataset", "training"):
        pairs[name] = first.record["spec"][name], other.record["spec"][name]
    pairs["model"] = _model(first.record), _model(other.record)
    differing = [name for name, (a, b) in pairs.items() if json.dumps(a) != json.dumps(b)]
    if differing:
        raise InputError(
            f"{first.path} and {other.path} are not of one kind ({', '.join(differing)} differ): "
            "report them apart"
        )
