"""A run: its plan, its finished models and its rows, out of a folder that is opened once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from calmoe.defaults import BINS
from calmoe.errors import InputError
from calmoe.experiments.evaluation import EVALUATION_VERSION, VALIDATION, evaluate, read, used_reading
from calmoe.experiments.plan import Node, leaves, to_do
from calmoe.experiments.record import Added, Record
from calmoe.experiments.sealing import digest_of
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.store import DIVERGED, HISTORY, METHOD_FILES, SPEC, WEIGHTS, RunFolder
from calmoe.experiments.sweep import Point, Sweep, row_point
from calmoe.methods import card, source
from calmoe.predictions import Predictions
from calmoe.render.wording import many
from calmoe.threads import threads

Row = dict[str, Any]
WARMUP_DIVERGED = "its warm-up diverged"
LAST_EPOCH = ("batch", "perplexity", "gamma_eff", "negative_share")  # what a sweep's rows keep of it


class Planned(NamedTuple):
    """A model that the run is to hold: a method with a seed and, in a sweep, a point."""

    point: Point | None
    method: str
    seed: int
    key: str  # of the node that holds its predictions
    protocols: tuple[str, ...]  # under which it can be judged


class Model(NamedTuple):
    """What a finished model says about validation and test, as its method reads it, and how it got there."""

    method: str
    seed: int
    validation: Predictions
    test: Predictions
    history: list[dict[str, float]]


class Run:
    """A run folder and its record. Files are hashed once, and the plan is made once.

    checked: the digests of nodes that this process has hashed before, by key.
    """

    def __init__(
        self, folder: RunFolder, record: Record, checked: Mapping[str, dict[str, str]] | None = None
    ) -> None:
        self.folder, self.record, self._checked = folder, record, checked or {}

    @classmethod
    def open(cls, path: Path) -> "Run":
        """The run or sweep in a folder that must hold one."""
        folder = RunFolder(path)
        record = folder.record()
        if record is None:
            raise InputError(f"{path} is not a run folder: it has no {SPEC}; `calmoe run` makes one")
        return cls(folder, record)

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def spec(self) -> RunSpec:
        return self.record.spec

    @property
    def sweep(self) -> Sweep | None:
        return self.record.sweep

    # --- what is planned, and what is finished

    @cached_property
    def plans(self) -> dict[Point | None, list[Node]]:
        """The nodes by point of the sweep; None is the point where there is none."""
        return self.record.plans()

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes, each once; parents first."""
        return self.record.merged(self.plans)

    @cached_property
    def models(self) -> list[Planned]:
        """Every model that the record names, by point, method and seed."""
        planned, judged, methods = [], self.record.protocols, {*self.spec.methods}
        added: dict[tuple[str, int], list[Added]] = {}
        for each in self.record.added:
            added.setdefault((each.method, each.seed), []).append(each)
        for point, trained in self._leaves.items():
            for method in self.record.methods:
                for seed in self.record.seeds:
                    node = trained.get((source(method), seed))
                    if node is not None and method in methods:
                        planned.append(Planned(point, method, seed, node.key, judged))
                    planned += [
                        Planned(point, method, seed, each.key, each.protocols)
                        for each in added.get((method, seed), ())
                    ]
        return planned

    @cached_property
    def _leaves(self) -> dict[Point | None, dict[tuple[str, int], Node]]:
        """By point: the trained methods by (method, seed)."""
        return {point: leaves(nodes) for point, nodes in self.plans.items()}

    @cached_property
    def sealed(self) -> dict[str, dict[str, str]]:
        """By key of each finished, intact node: the digests of its files."""
        needed: dict[str, Collection[str]] = {n.key: METHOD_FILES if n.method else () for n in self.nodes}
        needed |= {added.key: _files(added) for added in self.record.added}
        sealed = {
            key: self._checked.get(key) or self.folder.sealed_files(key, files)
            for key, files in needed.items()
        }
        return {key: files for key, files in sealed.items() if files is not None}

    @property
    def done(self) -> Collection[str]:
        """The keys of the nodes that are finished and intact."""
        return self.sealed.keys()

    @cached_property
    def diverged(self) -> dict[str, str]:
        """By key of each node that diverged in an earlier session, or whose warm-up did: why."""
        reasons: dict[str, str] = {}
        for node in self.nodes:
            if node.key in self.done:
                continue
            reason = self.folder.divergence(node.key)
            if reason is None and node.parent is not None and node.parent.key in reasons:
                reason = WARMUP_DIVERGED
            if reason is not None:
                reasons[node.key] = reason
        return reasons

    def to_do(self, spec: RunSpec, sweep: Sweep | None) -> list[Node]:
        """The nodes to train for `spec` at the points of `sweep`: neither finished, nor known to diverge."""
        return to_do(self.nodes, {*self.done, *self.diverged}, self.nodes_for(spec, sweep))

    def diverged_notes(self, spec: RunSpec, sweep: Sweep | None) -> list[str]:
        """At most one line: what of it is not trained again, since it diverged in an earlier session."""
        nodes = [node for node in self.nodes_for(spec, sweep) if node.key in self.diverged]
        own = [node for node in nodes if self.diverged[node.key] != WARMUP_DIVERGED]
        if not own:
            return []
        others = f" and {many(len(own) - 1, 'other')}" if len(own) > 1 else ""
        again = "is not trained again" if len(own) == 1 else "are not trained again"
        place = own[0].key if len(own) == 1 else "*"
        return [
            f"{own[0]}{others} diverged in an earlier session and {again}; "
            f"delete {self.path / 'nodes' / place / DIVERGED} to try anew"
        ]

    def finished(self) -> list[Planned]:
        return [model for model in self.models if model.key in self.done]

    def note_finished(self, node: Node) -> None:
        """The node was finished just now."""
        self.sealed[node.key] = self.folder.just_sealed(node.key)

    def nodes_for(self, spec: RunSpec, sweep: Sweep | None) -> list[Node]:
        """The plan's nodes that the methods and seeds of `spec` need, at the points of `sweep`."""
        points: Sequence[Point | None] = sweep.points if sweep else (None,)
        at_points = {node.key for point in points for node in self.plans[point]}
        methods, seeds = {source(method) for method in spec.methods}, {*spec.seeds}

        def needed(node: Node) -> bool:
            return node.key in at_points and (node.method is None or node.method in methods)

        return [node for node in self.nodes if node.seed in seeds and needed(node)]

    def untrained(self, spec: RunSpec, sweep: Sweep | None) -> list[str]:
        """The methods and seeds of `spec`, at the points of `sweep`, that have no finished model."""
        finished = {(model.point, model.method, model.seed) for model in self.finished()}
        labels = {node.key: node.value for node in self.nodes}
        points: Sequence[Point | None] = sweep.points if sweep else (None,)
        names = []
        for point, seed, method in product(points, spec.seeds, spec.methods):
            if (point, method, seed) not in finished:
                node = self._leaves.get(point, {}).get((source(method), seed))
                named = sweep.label(point) if sweep and point is not None else ""
                label = labels[node.key] if node else named
                names.append(" ".join(filter(None, [f"seed {seed}", method, label])))
        return names

    # --- what came out

    def read_models(
        self,
        protocol: str = "",
        seeds: Collection[int] | None = None,
        methods: Collection[str] | None = None,
        pooled: bool = False,
    ) -> Iterator[Model]:
        """Every finished method and seed, or those given; the protocol is the run's own if not given.

        pooled: over views, where a model has several.
        """
        protocol = protocol or self.spec.protocol
        if protocol not in self.record.protocols:
            listed = ", ".join(self.record.protocols)
            raise InputError(f"{self.path} can be judged by {listed}, not {protocol!r}")
        for planned in self.finished():
            wanted = (seeds is None or planned.seed in seeds) and (
                methods is None or planned.method in methods
            )
            if wanted and protocol in planned.protocols:
                predictions = self.folder.predictions(planned.key)
                reading = used_reading(predictions) if pooled else ""
                validation, test, _ = read(planned.method, protocol, predictions, reading)
                history = _own_history(planned.method, self.folder.history(planned.key))
                yield Model(planned.method, planned.seed, validation, test, history)

    @cached_property
    def rows(self) -> list[Row]:
        """The sealed rows if they are of the finished models and judged as now; else computed anew.

        Rows of an older calmoe, whose seal does not say how it judged, are taken as they are.
        """
        rows = self.current_rows() or self.folder.results(evaluation=None)
        named = {(m.point, m.method, m.seed, p) for m in self.finished() for p in m.protocols}
        there = [(self.point_of(r), r["method"], r["seed"], r["protocol"]) for r in rows or ()]
        whole = rows is not None and len(there) == len(named) and {*there} == named
        rows = rows if rows is not None and whole else self.evaluate()
        if not rows:
            raise InputError(f"{self.path} has no finished method: run its command again")
        return rows

    def point_of(self, row: Row) -> Point | None:
        """The point of the sweep that a row is of; None where the run is no sweep."""
        return tuple(row_point(row).values()) if self.sweep else None

    def current_rows(self) -> list[Row] | None:
        """The sealed rows, if they are what `evaluate` would compute from the predictions as they are."""
        return self.folder.results(**self._made_of())

    def evaluate(self) -> list[Row]:
        """A row per protocol, method and seed that is finished; in a sweep, also per point."""
        rows, protocols = [], self.record.protocols
        with threads(1):  # on a busy machine two take ten times as long
            for planned in self.finished():
                predictions = self.folder.predictions(planned.key)
                facts = self._swept_facts(planned)
                for protocol in planned.protocols:
                    row = evaluate(planned.method, planned.seed, protocol, predictions, self.record.hard)
                    rows.append(row | facts)
        return sorted(rows, key=lambda row: protocols.index(row["protocol"]))

    def write_results(self, rows: list[Row]) -> None:
        self.folder.write_results(rows, **self._made_of())

    def _made_of(self) -> dict[str, Any]:
        """What determines the rows: the models and their predictions, and the way to judge them."""
        models = [
            [m.point, m.method, m.seed, list(m.protocols), _predictions(self.sealed[m.key])]
            for m in self.finished()
        ]
        digest = digest_of({"models": models, "hard": self.record.hard})
        return {"evaluation": EVALUATION_VERSION, "bins": BINS, "models": digest}

    def _swept_facts(self, planned: Planned) -> Row:
        """In a sweep: the point, and what the tilt did to the training batches of the last epoch."""
        if self.sweep is None or planned.point is None:
            return {}
        last = self.folder.history(planned.key)[-1]
        facts = {**self.sweep.row_facts(planned.point), "batch": self.spec.training.batch}
        return facts | {name: last[name] for name in LAST_EPOCH if name in last}


def _predictions(files: dict[str, str]) -> dict[str, str]:
    """The digests of predictions; histories hold durations, which no two runs share."""
    return {name: files[name] for name in files if name not in (HISTORY, WEIGHTS)}


def _files(added: Added) -> list[str]:
    return [f"{split}.safetensors" for split in {"test", *(VALIDATION[p] for p in added.protocols)}]


def _own_history(method: str, history: list[dict[str, float]]) -> list[dict[str, float]]:
    """The history, without `negative_share` unless the method trains by the tilted mean.

    Runs of an older version have it for the entropic risk too, whose weights q are never negative.
    """
    if card(method).objective == "tilted":
        return history
    return [{k: v for k, v in entry.items() if k != "negative_share"} for entry in history]
