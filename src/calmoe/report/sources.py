"""What a report is made of: run folders read as one run, and the sweeps beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calmoe.data import ShiftDataset, load_dataset
from calmoe.errors import InputError
from calmoe.experiments.records import DIGESTS, Record, flat, record_of, sweep_of, telling
from calmoe.experiments.runner import expected, results
from calmoe.experiments.sealing import read_sealed
from calmoe.experiments.store import ENVIRONMENT, RunFolder, read_results
from calmoe.experiments.validation import are_of, check_sessions
from calmoe.methods import in_order, source
from calmoe.report.curves import Curves
from calmoe.report.examples import examples
from calmoe.report.run_curves import models, run_curves

Rows = list[dict[str, Any]]
MAY_DIFFER = ("sweep", "device", "training_version")  # between the folders of one report
OF_TARGET = (
    "target",
    "fingerprint",
    "training_fingerprint",
    "protocols",
    "digest",
)  # where the targets differ


class Source(NamedTuple):
    """A folder: its record, who worked there, its rows and, of a run, its curves."""

    path: Path
    record: Record
    sessions: list[dict[str, Any]]
    rows: Rows
    curves: list[Curves]

    @property
    def trained(self) -> set[tuple[str, int]]:
        """The models behind the rows; MoCaE's are Vanilla's."""
        return {(source(row["method"]), row["seed"]) for row in self.rows}

    def without(self, models: set[tuple[str, int]]) -> "Source":
        """The folder as if it did not hold these models."""
        rows, curves = (
            [r for r in found if (source(r["method"]), r["seed"]) not in models]
            for found in (self.rows, self.curves)
        )
        return self._replace(rows=rows, curves=curves)

    @property
    def missing(self) -> list[str]:
        """What the record names and the rows do not have."""
        there = {(row.get("value"), row["method"], row["seed"]) for row in self.rows}
        sweep = sweep_of(self.record)
        names = []
        for value in sweep.values if sweep else (None,):
            for method in self.record["spec"]["methods"]:
                for seed in self.record["spec"]["seeds"]:
                    if (value, method, seed) not in there:
                        at = f" {sweep.label(value)}" if sweep and value is not None else ""
                        names.append(f"seed {seed} {method}{at}")
        return names


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
        specs = [each.record["spec"] for each in self.runs or self.all]
        methods = in_order(method for spec in specs for method in spec["methods"])
        seeds = sorted({seed for spec in specs for seed in spec["seeds"]})
        return {**last.record, "spec": {**last.record["spec"], "methods": list(methods), "seeds": seeds}}

    @property
    def rows(self) -> Rows:
        """The runs' rows by protocol, method and seed."""
        protocols, methods = self.record["protocols"], self.record["spec"]["methods"]
        rows = [row for run in self.runs for row in run.rows]
        return sorted(
            rows, key=lambda r: (protocols.index(r["protocol"]), methods.index(r["method"]), r["seed"])
        )

    @property
    def curves(self) -> list[Curves]:
        methods = self.record["spec"]["methods"]
        found = [curves for run in self.runs for curves in run.curves]
        return sorted(found, key=lambda c: (methods.index(c["method"]), c["seed"]))


def read_targets(folders: Sequence[Path]) -> dict[str, Sources]:
    """All folders by the target that they were tested on; "" where the dataset has none."""
    found: dict[str, list[tuple[Path, Record]]] = {}
    for path in folders:
        record = record_of(path)
        for of in found.values():
            _check_same(*of[0], path, record)
        found.setdefault(record["spec"].get("target", ""), []).append((path, record))
    targets = {target: _as_one([_read(*each) for each in of]) for target, of in found.items()}
    for target, sources in targets.items():
        if len(targets) > 1 and not sources.runs:
            path = sources.all[0].path
            raise InputError(f"{path} is a sweep on {target} and no run on {target} is here: report it apart")
    return targets


def _as_one(found: Sequence[Source]) -> Sources:
    """Folders of one target; where two runs hold the same method and seed, the later one's stands."""
    runs: list[Source] = []
    sweeps: dict[str, Source] = {}
    for read in found:
        sweep = sweep_of(read.record)
        if sweep is None:
            runs = [run.without(read.trained) for run in runs] + [read]
        elif sweep.setting in sweeps:
            raise InputError(
                f"{read.path} is a second sweep of {sweep.setting}: report it apart, or add its "
                "--values to the first with the same --out"
            )
        else:
            sweeps[sweep.setting] = read
    return Sources([run for run in runs if run.rows], sweeps)


def has_images(sources: Sources) -> bool:
    """Whether the runs are on images, as far as their records tell."""
    return sources.record["spec"]["model"]["backbone"] != "encoder"


def run_dataset(sources: Sources, data: Path | None) -> ShiftDataset:
    """The data of the runs, whose images the figures show."""
    record = sources.record
    spec = record["spec"]
    if not has_images(sources):
        raise InputError("the data are texts, not images")
    dataset = load_dataset(spec["dataset"], data, spec["protocol"], spec.get("target", ""))
    if dataset.fingerprint() != record["fingerprint"]:
        where = f" in {data}" if data else ""
        raise InputError(f"the data{where} are not those of the run: give its own with --data DIR")
    if not dataset.images:
        raise InputError("the data are not images")
    return dataset


def domain_images(dataset: ShiftDataset, target: str) -> dict[str, dict[str, np.ndarray]]:
    """The first image [H, W, C] of every class in every domain; the target comes last."""
    images: dict[str, dict[str, np.ndarray]] = {}
    for split, domains in (
        (dataset.validation, dataset.validation.groups["domain"]),
        (dataset.test, np.full(len(dataset.test), f"{target} (target)")),
    ):
        for row, (domain, name) in enumerate(zip(domains, split.groups["class"], strict=True)):
            of_domain = images.setdefault(str(domain), {})
            if name not in of_domain:
                of_domain[str(name)] = split.inputs[row].permute(1, 2, 0).numpy()
    return images


def run_examples(sources: Sources, dataset: ShiftDataset) -> dict[str, Any]:
    """The test images that Vanilla MoE gets wrong with the most confidence, and what all methods say."""
    seed = min(c["seed"] for c in sources.curves)
    said = {
        model.method: model.test.output.probs
        for run in sources.runs
        for model in models(run.path, seeds=[seed])
        if (source(model.method), seed) in run.trained
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
        hard=test.groups.get(sources.record["hard"]),
        agreement=test.groups.get("agreement"),
        seed=seed,
    )


def _read(path: Path, record: Record) -> Source:
    rows = _rows(RunFolder(path), record)
    return Source(path, record, _sessions(path), rows, [] if sweep_of(record) else run_curves(path))


def _rows(folder: RunFolder, record: Record) -> Rows:
    """The sealed results; computed anew where models were finished after they were written."""
    try:
        rows = read_results(folder.path)
    except InputError:
        rows = []
    there = {(row.get("value"), row["method"], row["seed"]) for row in rows}
    finished = {(r.value, r.method, r.seed) for r in expected(folder, record) if r.done}
    rows = rows if there >= finished and are_of(rows, record) else results(folder, record)
    if not rows:
        raise InputError(f"{folder.path} has no finished method: run its command again")
    return rows


def _sessions(run: Path) -> list[dict[str, Any]]:
    """Who worked on the run; nothing where that file is gone or damaged."""
    try:
        return check_sessions(run / ENVIRONMENT, read_sealed(run / ENVIRONMENT))
    except (OSError, InputError):
        return []


def _check_same(first: Path, record: Record, second: Path, other: Record) -> None:
    """Folders of other data, or of models trained otherwise, do not go into one report."""
    a, b = flat(record), flat(other)
    free = MAY_DIFFER if a["target"] == b["target"] else (*MAY_DIFFER, *OF_TARGET)
    differing = [name for name in a if a[name] != b.get(name) and name not in free]
    if differing:
        listed = "; ".join(
            DIGESTS[name].format(those="those of the first")
            if name in DIGESTS
            else f"{name} is {a[name]!r} and {b.get(name)!r}"
            for name in telling(differing)[:3]
        )
        raise InputError(f"{first} and {second} are not of one kind ({listed}): report them apart")
