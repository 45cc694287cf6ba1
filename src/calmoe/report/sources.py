"""What a report is made of: run folders read as one run, and the sweeps beside it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from calmoe.errors import InputError
from calmoe.experiments.plugins import changed, united_plugins
from calmoe.experiments.record import Record
from calmoe.experiments.run import Run
from calmoe.experiments.same_run import DIGESTS, causes, comparable, differences
from calmoe.experiments.sweep import Value, setting_value
from calmoe.methods import in_order, source
from calmoe.report.curves import Curves, curves

Rows = list[dict[str, Any]]
MAY_DIFFER = ("sweep", "device", "training_version")  # between the folders of one report
TARGET_FACTS = ("target", "fingerprint", "training_fingerprint", "protocols")  # where the targets differ


class Source(NamedTuple):
    """A run, who worked on it, its rows and, unless it is a sweep, its curves."""

    run: Run
    sessions: list[dict[str, Any]]
    rows: Rows
    curves: list[Curves]

    @property
    def record(self) -> Record:
        return self.run.record

    @property
    def trained(self) -> set[tuple[str, int]]:
        """The models behind the rows; MoCaE's are Vanilla's."""
        return {(source(row["method"]), row["seed"]) for row in self.rows}

    def without(self, models: set[tuple[str, int]]) -> "Source":
        """The folder as if it did not hold these models."""
        rows, own_curves = (
            [entry for entry in entries if (source(entry["method"]), entry["seed"]) not in models]
            for entries in (self.rows, self.curves)
        )
        return self._replace(rows=rows, curves=own_curves)

    @property
    def missing(self) -> list[str]:
        """The models that the record names and the rows do not have."""
        there = {(self.run.point_of(row), row["method"], row["seed"]) for row in self.rows}
        sweep = self.record.sweep
        return [
            f"seed {model.seed} {model.method}"
            + (f" {sweep.label(model.point)}" if sweep and model.point is not None else "")
            for model in self.run.models
            if (model.point, model.method, model.seed) not in there
        ]


class Sources(NamedTuple):
    """Runs, which count as one, and sweeps by their name, such as "eta" or "eta-rho"."""

    runs: list[Source]
    sweeps: dict[str, Source]

    @property
    def all(self) -> list[Source]:
        return [*self.runs, *self.sweeps.values()]

    @property
    def record(self) -> Record:
        """The runs' records as one; a sweep's own where there is no run."""
        return united([each.record for each in self.runs or self.all])

    @property
    def rows(self) -> Rows:
        """The runs' rows by protocol, method and seed."""
        protocols, methods = self.record.protocols, self.record.methods
        rows = [row for run in self.runs for row in run.rows]
        return sorted(
            rows, key=lambda r: (protocols.index(r["protocol"]), methods.index(r["method"]), r["seed"])
        )

    @property
    def curves(self) -> list[Curves]:
        methods = self.record.methods
        entries = [curves for run in self.runs for curves in run.curves]
        return sorted(entries, key=lambda c: (methods.index(c["method"]), c["seed"]))


def united(records: Sequence[Record]) -> Record:
    """One record for all: the last one's, with the methods and seeds of any."""
    last = records[-1]
    spec = replace(
        last.spec,
        methods=in_order(method for record in records for method in record.spec.methods),
        seeds=tuple(sorted({seed for record in records for seed in record.spec.seeds})),
    )
    added = {(a.method, a.seed): a for record in records for a in record.added}
    plugins = united_plugins([p for record in records for p in record.plugins], last.plugins)
    return replace(last, spec=spec, added=tuple(added.values()), plugins=plugins)


def read_targets(folders: Sequence[Path]) -> dict[str, Sources]:
    """All folders by the target that they were tested on; "" where the dataset has none."""
    by_target: dict[str, list[Run]] = {}
    for path in folders:
        run = Run.open(path)
        for runs in by_target.values():
            _check_same(runs[0], run)
        by_target.setdefault(run.spec.target, []).append(run)
    targets = {target: _as_one([_read(run) for run in runs]) for target, runs in by_target.items()}
    for target, sources in targets.items():
        if len(targets) > 1 and not sources.runs:
            path = sources.all[0].run.path
            raise InputError(f"{path} is a sweep on {target} and no run on {target} is here: report it apart")
    return targets


def _as_one(folders: Sequence[Source]) -> Sources:
    """Folders of one target; where two runs hold the same method and seed, the later one's stands."""
    runs: list[Source] = []
    sweeps: dict[str, Source] = {}
    for folder in folders:
        swept = folder.record.swept
        if not swept:
            runs = [run.without(folder.trained) for run in runs] + [folder]
        elif swept in sweeps:
            raise InputError(
                f"{folder.run.path} is a second sweep of {swept}: report it apart, or add its "
                "values to the first with the same --out"
            )
        else:
            sweeps[swept] = folder
    return Sources([run for run in runs if run.rows], sweeps)


def _read(run: Run) -> Source:
    return Source(run, run.folder.sessions(), run.rows, [] if run.sweep else run_curves(run))


def run_curves(run: Run, protocol: str = "") -> list[Curves]:
    """The curves of every finished method and seed; the protocol is the run's own if not given."""
    facts = {"dataset": run.spec.dataset, "protocol": protocol or run.spec.protocol}
    of_models = [
        {**facts, "seed": seed, **curves(method, validation, test, run.record.hard, history)}
        for method, seed, validation, test, history in run.read_models(protocol)
    ]
    if not of_models:
        raise InputError(f"{run.path} has no finished method: run `calmoe run` there again")
    return of_models


def _check_same(first: Run, second: Run) -> None:
    """Folders of other data, or of models trained otherwise, do not go into one report."""
    a, b = comparable(first.record), comparable(second.record)
    free = MAY_DIFFER if a["target"] == b["target"] else (*MAY_DIFFER, *TARGET_FACTS)
    if others := changed(first.record.plugins, second.record.plugins):
        raise InputError(
            f"{first.path} and {second.path} were trained by other code ({others[0]}): report them apart"
        )
    differing = [name for name in differences(a, b) if name not in free]
    if differing:
        reasons = "; ".join(
            DIGESTS[name].format(those="those of the first")
            if name in DIGESTS
            else f"{name} is {a.get(name)!r} and {b.get(name)!r}"
            for name in causes(differing)[:3]
        )
        raise InputError(f"{first.path} and {second.path} are not of one kind ({reasons}): report them apart")


def validation_rows(sources: Sources) -> list[int]:
    """On how many rows each model's temperature is fitted."""
    return [curves["validation_rows"] for curves in sources.curves]


def swept_defaults(sources: Sources) -> dict[str, Value]:
    """By swept setting: its value in the run."""
    sweeps = [source.record.sweep for source in sources.sweeps.values()]
    settings = [setting for sweep in sweeps if sweep for setting in sweep.settings]
    return {setting: setting_value(sources.record.spec, setting) for setting in settings}


def has_hard(sources: Sources) -> bool:
    """Whether the test rows have a hard subset."""
    return any(row.get("n_hard") for row in sources.rows)
