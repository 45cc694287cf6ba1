"""The record of a run: what was asked, on which data, on which device; `spec.json` holds it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calmoe.data import PROTOCOLS
from calmoe.errors import InputError, about, shown
from calmoe.experiments.plan import TRAINING_VERSION, Node, make_plan, merge
from calmoe.experiments.plugins import Plugin, parse_plugins
from calmoe.experiments.spec import RunSpec, from_table
from calmoe.experiments.sweep import MOST_POINTS, MOST_SETTINGS, Point, Sweep, make_points, swept_value
from calmoe.files import is_name
from calmoe.methods import in_order
from calmoe.validation import items, one_of, table, text, whole

FIELDS = ("spec", "device", "fingerprint", "training_fingerprint", "protocols", "hard")
SPEC_FIELDS = {  # settings that every version of calmoe recorded
    "spec": ("protocol", "model", "training"),
    "spec.model": ("backbone", "variant"),
    "spec.training": ("epochs", "warmup", "batch", "eta"),
}
MOST_ADDED = 10_000


@dataclass(frozen=True, kw_only=True)
class Added:
    """Predictions from elsewhere that stand in the run as a method with a seed."""

    method: str
    seed: int
    key: str  # of their folder under nodes/
    protocols: tuple[str, ...]  # under which they can be judged


@dataclass(frozen=True, kw_only=True)
class Record:
    """What `spec.json` says. `protocols` are those under which the same models may be judged."""

    spec: RunSpec
    device: str
    fingerprint: str
    training_fingerprint: str
    protocols: tuple[str, ...]
    hard: str | None  # the group of hard test rows
    training_version: int
    weights: str = ""  # the digest of pretrained weights
    sweep: Sweep | None = None
    added: tuple[Added, ...] = ()
    plugins: tuple[Plugin, ...] = ()  # what it uses from outside of calmoe

    @property
    def methods(self) -> tuple[str, ...]:
        """All methods of the tables, those added included, in their order."""
        return in_order([*self.spec.methods, *(added.method for added in self.added)])

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({*self.spec.seeds, *(added.seed for added in self.added)}))

    @property
    def swept(self) -> str:
        """What is swept, such as "eta" or "eta-rho"; empty where nothing is."""
        return self.sweep.name if self.sweep else ""

    def plans(self) -> dict[Point | None, list[Node]]:
        """The nodes by point of the sweep (None where there is none), as the folder's own trainer keyed them.

        Reports thus read what an older trainer left. Weights count by content, wherever they lay.
        """
        variants = [*self.sweep.variants(self.spec).items()] if self.sweep else [(None, self.spec)]
        facts = (self.training_fingerprint, self.device, self.training_version, self.weights, self.plugins)
        return {point: make_plan(variant, *facts) for point, variant in variants}

    def merged(self, plans: Mapping[Point | None, list[Node]]) -> list[Node]:
        """All these nodes, each once; parents first."""
        labels = {self.sweep.label(p) if self.sweep and p is not None else "": p for p in plans}
        return merge({label: plans[point] for label, point in labels.items()})

    def as_json(self) -> dict[str, Any]:
        """As `spec.json` holds it."""
        document: dict[str, Any] = {
            "spec": self.spec.as_table(),
            "device": self.device,
            "training_version": self.training_version,
            "fingerprint": self.fingerprint,
            "training_fingerprint": self.training_fingerprint,
            "protocols": list(self.protocols),
            "hard": self.hard,
        }
        if self.weights:
            document["weights"] = self.weights
        if self.sweep is not None:
            document["sweep"] = self.sweep.asdict()
        if self.added:
            document["added"] = [{**vars(a), "protocols": list(a.protocols)} for a in self.added]
        if self.plugins:
            document["plugins"] = [plugin.as_json() for plugin in self.plugins]
        return document


def parse_record(path: Path, document: dict[str, Any]) -> Record:
    """The record that a `spec.json` holds; every field is checked."""
    with about(path):
        table("", document, FIELDS)
        version = whole("training_version", document.get("training_version", 1), least=1)
        if version > TRAINING_VERSION:
            raise InputError(
                f"training_version {version} is newer than this calmoe's {TRAINING_VERSION}: update calmoe"
            )
        parts = {"spec": document["spec"]}
        for name, keys in SPEC_FIELDS.items():
            part = table(name, parts[name], keys)
            parts |= {f"{name}.{key}": part[key] for key in keys}
        plugins = parse_plugins(document.get("plugins", []))
        spec = from_table(document["spec"])
        if spec.target and not is_name(spec.target):  # a report on targets has a folder of this name
            raise InputError(f"target {shown(spec.target)} is no name for a folder")
        one_of("device", document["device"], ("cpu", "cuda"))
        for name in ("fingerprint", "training_fingerprint", "weights"):
            text(name, document.get(name, ""), most=200)
        if document["hard"] is not None:
            text("hard", document["hard"])
        return Record(
            spec=spec,
            device=document["device"],
            fingerprint=document["fingerprint"],
            training_fingerprint=document["training_fingerprint"],
            protocols=_protocols(document["protocols"], spec.protocol),
            hard=document["hard"],
            training_version=version,
            weights=document.get("weights", ""),
            sweep=_sweep(document["sweep"], spec) if "sweep" in document else None,
            added=_added(document.get("added", [])),
            plugins=plugins,
        )


def _protocols(names: Any, own: str = "") -> tuple[str, ...]:
    for name in items("protocols", names, least=1, most=len(PROTOCOLS)):
        one_of("protocols", name, PROTOCOLS)
    if (own and own not in names) or len({*names}) < len(names):
        raise InputError(f"protocols must name {own or 'some'} and each protocol once")
    return tuple(names)


def _sweep(document: Any, spec: RunSpec) -> Sweep:
    """The sweep; that of one setting names its `values`, that of several their `points`."""
    if "settings" in table("sweep", document):
        fields = table("sweep", document, ("settings", "points"))
        settings = items("sweep.settings", fields["settings"], least=1, most=MOST_SETTINGS)
        points = items("sweep.points", fields["points"], least=1, most=MOST_POINTS)
    else:
        fields = table("sweep", document, ("setting", "values"))
        settings = [fields["setting"]]
        values = items("sweep.values", fields["values"], least=1, most=MOST_POINTS)
        points = [[value] for value in values]
    for setting in settings:
        text("sweep.settings", setting)
    size = len(settings)
    whole_points = [
        tuple(
            swept_value("sweep.points", value)
            for value in items("sweep.points", point, least=size, most=size)
        )
        for point in points
    ]
    sweep = make_points(settings, whole_points)
    sweep.variants(spec)
    return sweep


def _added(document: Any) -> tuple[Added, ...]:
    added = []
    for entry in items("added", document, most=MOST_ADDED):
        fields = table("added", entry, ("method", "seed", "key", "protocols"))
        if not re.fullmatch("[0-9a-f]{32}", text("added.key", fields["key"])):
            raise InputError(f"added.key {shown(fields['key'])} is no key")
        if not is_name(text("added.method", fields["method"])):
            raise InputError(f"added.method {shown(fields['method'])} is no name")
        added.append(
            Added(
                method=fields["method"],
                seed=whole("added.seed", fields["seed"]),
                key=fields["key"],
                protocols=_protocols(fields["protocols"]),
            )
        )
    if len({(a.method, a.seed) for a in added}) < len(added):
        raise InputError("added must name each method and seed once")
    return tuple(added)
