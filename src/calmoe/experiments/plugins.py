"""The plug-ins of a run: what its record and its keys know of them, and how it is read without their code.

The digest of a plug-in's code is in the keys of the nodes that its objective, loss or backbone trains. A
dataset's is not: keys know the content of the data. Methods are data, all of which keys know already.
A run is read by what its record says of its plug-ins; no code of theirs runs for it.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from calmoe.backbones import BACKBONES
from calmoe.data import DATASETS, DatasetCard
from calmoe.errors import InputError, shown
from calmoe.experiments.spec import RunSpec, check_fixed
from calmoe.files import is_name
from calmoe.methods import (
    GRADIENTS,
    LOSSES,
    METHODS,
    OBJECTIVES,
    Method,
    Recipe,
    Setting,
    check_method,
    source,
)
from calmoe.registry import Registry, missing, remedy
from calmoe.training.settings import ModelSettings, Stage, TrainingSettings
from calmoe.validation import boolean, items, number, one_of, table, text

TABLES: dict[str, Registry[Any]] = {  # what methods are made of comes before them
    "objective": OBJECTIVES,
    "loss": LOSSES,
    "method": METHODS,
    "dataset": DATASETS,
    "backbone": BACKBONES,
}
CARD = (
    "title", "family", "colour", "marker", "head", "objective", "loss", "gradient", "warmup", "post_hoc",
    "weights_of", "fixed", "pools_views",
)  # fmt: skip
MOST = 1000


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """Something from outside of calmoe that a run uses; `facts` are what a reader without its code needs."""

    kind: str
    name: str
    origin: str
    digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def is_here(self) -> bool:
        """Whether its code is loaded, changed or not."""
        origin = TABLES[self.kind].origin(self.name)
        return origin is not None and origin.present

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "facts": dict(self.facts)}


def used_names(spec: RunSpec) -> list[tuple[str, str]]:
    """By kind and name all that the spec's runs are made of, calmoe's own included."""
    methods = dict.fromkeys([*spec.methods, *map(source, spec.methods)])
    cards = [METHODS[name] for name in methods]
    return [
        *dict.fromkeys(("objective", method.objective) for method in cards),
        *dict.fromkeys(("loss", method.loss) for method in cards),
        *(("method", name) for name in methods),
        ("dataset", spec.dataset),
        ("backbone", spec.model.backbone),
    ]


def check_here(spec: RunSpec) -> None:
    """Refuse to train what a record alone names: the code of its plug-in is not here."""
    for name in spec.methods:
        check_fixed(METHODS.here(source(name)).fixed_with(spec.model.backbone))
        METHODS.here(name)  # an installed one brings objectives and losses that have no entry of their own
    for kind, name in used_names(spec):
        TABLES[kind].here(name)


def plugins_of(spec: RunSpec) -> tuple[Plugin, ...]:
    """The plug-ins that the spec uses, as they are now."""
    plugins = []
    for kind, name in used_names(spec):
        thing, origin = TABLES[kind][name], TABLES[kind].origin(name)
        if origin is not None:
            facts = FACTS[kind](thing) if kind in FACTS else {}
            plugins.append(
                Plugin(kind=kind, name=name, origin=origin.where, digest=origin.digest, facts=facts)
            )
    return tuple(plugins)


def united_plugins(old: Iterable[Plugin], new: Iterable[Plugin]) -> tuple[Plugin, ...]:
    """Both, each once; the new ones as they are now."""
    return tuple({(p.kind, p.name): p for p in (*old, *new)}.values())


def changed(old: Iterable[Plugin], new: Iterable[Plugin]) -> list[Plugin]:
    """The new ones whose code is not what it was; that of a dataset does not matter, its content does."""
    digests = {(p.kind, p.name): p.digest for p in old}
    trains = [p for p in new if p.kind in ("objective", "loss", "backbone")]
    return [p for p in trains if digests.get((p.kind, p.name), p.digest) != p.digest]


def missing_plugins(plugins: Iterable[Plugin]) -> list[str]:
    """A line for every origin whose code is not loaded."""
    return [
        f"the plug-in {origin} is not loaded ({', '.join(map(str, absent))})"
        for origin, absent in _absent(plugins).items()
    ]


def _absent(plugins: Iterable[Plugin]) -> dict[str, list[Plugin]]:
    absent: dict[str, list[Plugin]] = {}
    for plugin in plugins:
        if not plugin.is_here:
            absent.setdefault(plugin.origin, []).append(plugin)
    return absent


def check_loaded(path: Path, plugins: Iterable[Plugin]) -> None:
    """Refuse to go on with a run one of whose plug-ins is not loaded."""
    for line, origin in zip(missing_plugins(plugins), _absent(plugins), strict=True):
        raise InputError(f"{path}: {line}: {remedy(origin)}")


# --- what keys know


class Cards(NamedTuple):
    """Methods and their settings as a record's plug-ins say; where it names none, as calmoe knows them."""

    plugins: Sequence[Plugin]

    def _facts(self, kind: str, name: str) -> Mapping[str, Any] | None:
        return next((p.facts for p in self.plugins if (p.kind, p.name) == (kind, name)), None)

    def method(self, name: str) -> Method:
        facts = self._facts("method", name)
        return METHODS[name] if facts is None else Method(name=name, **facts)

    def training(self, method: Method, training: TrainingSettings) -> dict[str, Any]:
        """The settings that this method reads beside those that every method reads, with their values."""
        facts = self._facts("objective", method.objective)
        if facts is None:
            return {name: training.value(name) for name in method.settings}
        values = {n: training.value(n) for n in (*facts["settings"], *GRADIENTS[method.gradient])}
        return values | {name: training.own.get(name, own[0]) for name, own in facts["own"].items()}

    def code(self, stage: Stage, model: ModelSettings) -> dict[str, str]:
        """The digests of the code that trains the stage; empty where all of it is calmoe's."""
        used = {("objective", stage.objective), ("loss", stage.loss), ("backbone", model.backbone)}
        return {str(p): p.digest for p in self.plugins if (p.kind, p.name) in used}


def fields_of(kind: Any) -> set[str]:
    return {each.name for each in fields(kind)}


# --- what records hold


def _objective_facts(recipe: Recipe) -> dict[str, Any]:
    own = {
        name: [setting.default, setting.low, None if math.isinf(setting.high) else setting.high]
        for name, setting in recipe.own.items()
    }
    return {"settings": list(recipe.settings), "own": own, "robust": bool(recipe.robust)}


def _method_facts(method: Method) -> dict[str, Any]:
    facts = {name: getattr(method, name) for name in CARD} | {"fixed": dict(method.fixed)}
    return facts | ({"on_texts": dict(method.on_texts)} if method.on_texts else {})


def _dataset_facts(known: DatasetCard) -> dict[str, Any]:
    return {"hard": known.hard, "domains": list(known.domains), "needs_folder": known.needs_folder}


FACTS: dict[str, Any] = {
    "objective": _objective_facts,
    "method": _method_facts,
    "dataset": _dataset_facts,
}


def parse_plugins(document: Any) -> tuple[Plugin, ...]:
    """The plug-ins that a record names, checked; each leaves a stand-in where its code is not here."""
    parsed = []
    for entry in items("plugins", document, most=MOST):
        given = table("plugins", entry, ("kind", "name", "origin", "digest", "facts"))
        kind, name = one_of("plugins.kind", given["kind"], TABLES), text("plugins.name", given["name"])
        if not is_name(name) or not re.fullmatch("[0-9a-f]{64}", text("plugins.digest", given["digest"])):
            raise InputError(f"plugins: {shown(name)} has no proper name or digest")
        facts = _checked_facts(kind, given["facts"])
        origin = text("plugins.origin", given["origin"], most=5000)
        parsed.append(Plugin(kind=kind, name=name, origin=origin, digest=given["digest"], facts=facts))
    if len({(p.kind, p.name) for p in parsed}) < len(parsed):
        raise InputError("plugins must name each once")
    for kind in TABLES:
        for plugin in parsed:
            if plugin.kind == kind:
                thing = _stand_in(plugin)
                TABLES[kind].stand_in(plugin.name, thing, plugin.origin, plugin.digest)
    for plugin in parsed:
        if plugin.kind == "method":
            check_method(plugin.name, _stand_in(plugin))
    return tuple(parsed)


def _checked_facts(kind: str, document: Any) -> dict[str, Any]:
    if kind == "objective":
        facts = table("plugins.facts", document, ("settings", "own", "robust"))
        for name in items("plugins.settings", facts["settings"], most=MOST):
            one_of("plugins.settings", name, fields_of(TrainingSettings) - {"own"})
        for name, bounds in table("plugins.own", facts["own"]).items():
            if name in fields_of(TrainingSettings) | fields_of(ModelSettings) or not name.isidentifier():
                raise InputError(f"plugins.own: {shown(name)} is no name for a setting of one's own")
            default, low, high = items("plugins.own", bounds, least=3, most=3)
            number("plugins.own", default), number("plugins.own", low)
            if high is not None:
                number("plugins.own", high)
        boolean("plugins.robust", facts["robust"])
        return {name: facts[name] for name in ("settings", "own", "robust")}
    if kind == "method":
        facts = table("plugins.facts", document, CARD)
        settings = {name: facts[name] for name in ("fixed", "on_texts") if name in facts}
        for each in settings.values():
            check_fixed(each)
        boolean("plugins.pools_views", facts["pools_views"])
        for name in CARD[:-2]:
            if facts[name] is not None or name not in ("post_hoc", "weights_of"):
                text(f"plugins.{name}", facts[name], most=1000)
        return {name: facts[name] for name in CARD} | settings
    if kind == "dataset":
        facts = table("plugins.facts", document, ("hard", "domains", "needs_folder"))
        text("plugins.hard", facts["hard"], most=5000), boolean("plugins.needs_folder", facts["needs_folder"])
        for domain in items("plugins.domains", facts["domains"], most=MOST):
            text("plugins.domains", domain, most=1000)
        return {name: facts[name] for name in ("hard", "domains", "needs_folder")}
    return {}


def _stand_in(plugin: Plugin) -> Any:
    """What stands for the plug-in's thing in tables and plans; nothing can be trained with it."""

    def absent(*_: Any, **__: Any) -> Any:
        raise InputError(missing(plugin.kind, plugin.name, plugin.origin))

    facts = plugin.facts
    if plugin.kind == "objective":
        own = {
            name: Setting(default, low, math.inf if high is None else high)
            for name, (default, low, high) in facts["own"].items()
        }
        return Recipe(absent, tuple(facts["settings"]), own, facts["robust"])
    if plugin.kind == "method":
        return Method(name=plugin.name, **facts)
    if plugin.kind == "dataset":
        load = _loader(facts["needs_folder"], absent)
        return DatasetCard(load=load, hard=facts["hard"], domains=tuple(facts["domains"]))
    return absent


def _loader(needs_folder: bool, absent: Any) -> Any:
    if needs_folder:
        return lambda data, protocol="corrected": absent()
    return lambda data=None, protocol="corrected": absent()
