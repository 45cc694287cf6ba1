"""What to run: a TOML preset with the user's changes, as one frozen dataclass; errors name the setting."""

import json
import math
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from importlib import resources
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import torch

from calmoe.backbones import BACKBONES
from calmoe.backbones.encoder import POOLINGS
from calmoe.data import DATASETS, PROTOCOLS
from calmoe.errors import InputError, check_known, shown
from calmoe.methods import METHODS, PACKAGED
from calmoe.mixture import MixtureHead
from calmoe.registry import Registry
from calmoe.training.settings import (
    BATCH_NORMS,
    SHARDINGS,
    ModelSettings,
    TrainingSettings,
    declared_settings,
)

T = TypeVar("T")
DEFAULT_SEEDS = (42, 43, 44)
MOST_SEEDS = 10_000
MOST_LAYERS = 100
TABLES: dict[str, Registry[Any]] = {"dataset": DATASETS, "methods": METHODS, "backbone": BACKBONES}
CHOICES: dict[str, Iterable[str]] = {
    "protocol": PROTOCOLS,
    "stem": ("cifar", "imagenet"),
    "variant": ("v1", "v1.5"),
    "filter_variant": ("published", "jpeg"),
    "pooling": ("", *POOLINGS),
    "precision": ("auto", "float32", "bfloat16"),
    "batch_norm": BATCH_NORMS,
    "sharding": SHARDINGS,
}
RANGES = {
    "seeds": (0, 2**32 - 1),
    "hidden": (1, 100_000),
    "stages": (3, 4),
    "experts": (1, 10_000),
    "router_hidden": (1, 100_000),
    "epochs": (1, 99_999),
    "warmup": (0, 99_999),
    "batch": (1, 1_000_000),
    "learning_rate": (1e-9, 10),
    "weight_decay": (0, math.inf),
    "eta": (0, math.inf),
    "gamma": (1, math.inf),
    "regret": (0, math.inf),
    "disagreement": (0, math.inf),
    "filter_fraction": (0, 1),
    "rho": (0, math.inf),
    "sharp_every": (1, 1_000),
    "average": (0, 0.999999),
    "views": (0, 10),  # 0: all that the dataset has
}
KINDS = {int: "whole number", float: "number", bool: "true or false", str: "word"}
PRESETS = resources.files("calmoe.experiments") / "presets"
OWN = "training.own"  # where settings stand that a single objective declares


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Methods and seeds on one dataset under one protocol, with one model and one way to train it."""

    dataset: str
    protocol: str = "corrected"
    target: str = ""  # the domain to test on, where the dataset has several
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    keep_weights: bool = True
    model: ModelSettings
    training: TrainingSettings

    @property
    def name(self) -> str:
        """What captions and folders call the run, such as "pacs-sketch"."""
        return "-".join(filter(None, [self.dataset, self.target]))

    def as_table(self) -> dict[str, Any]:
        """Nested plain values, as JSON has them and `from_table` takes them.

        Settings that came later are left out where they are the default.
        """
        table = json.loads(json.dumps(asdict(self)))
        training = table["training"]
        if not training["own"]:
            del training["own"]
        for name in ("batch_norm", "sharding", "sharp_every"):
            if training[name] == getattr(TrainingSettings, name):
                del training[name]
        return table


def load_preset(name: str) -> RunSpec:
    """The preset of the dataset `name`; one that has none gets calmoe's defaults.

    >>> load_preset("digits").training.epochs
    50
    """
    DATASETS.check(name)
    if name not in preset_names():
        return RunSpec(
            dataset=name,
            methods=tuple(m.name for m in PACKAGED.values() if m.family in ("baseline", "robust")),
            seeds=DEFAULT_SEEDS,
            model=ModelSettings(),
            training=TrainingSettings(),
        )
    text = (PRESETS / f"{name}.toml").read_text(encoding="utf-8")
    return from_table(tomllib.loads(text))


def preset_names() -> list[str]:
    """The datasets that have a preset."""
    return sorted(entry.name.removesuffix(".toml") for entry in PRESETS.iterdir())


def from_table(table: dict[str, Any]) -> RunSpec:
    """A RunSpec out of nested plain values, all checked."""
    spec = _build(RunSpec, table)
    if not spec.methods or not spec.seeds:
        raise InputError("methods and seeds must name at least one each")
    for name, values in (("methods", spec.methods), ("seeds", spec.seeds)):
        if len(set(values)) < len(values):
            raise InputError(f"{name} must all differ, not {_shown(values)}")
    if spec.training.warmup > spec.training.epochs:
        raise InputError(f"warmup={spec.training.warmup} must not exceed epochs={spec.training.epochs}")
    if len(spec.model.hidden) > MOST_LAYERS:
        raise InputError(f"model.hidden must name at most {MOST_LAYERS} widths, not {len(spec.model.hidden)}")
    with torch.device("meta"):  # no weights: it checks `routing`
        MixtureHead(1, 2, spec.model.experts, spec.model.router_hidden, spec.model.routing)
    return spec


def with_settings(spec: RunSpec, settings: Sequence[str]) -> RunSpec:
    """`spec` with changes such as "epochs=10", "model.experts=2" or "hidden=[64, 64]".

    Where `epochs` changes and `warmup` does not, the warm-up keeps its share of the epochs.

    >>> with_settings(load_preset("digits"), ["epochs=10"]).training.warmup
    4
    """
    values = []
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise InputError(f"--set {shown(setting)} must be key=value, such as epochs=10")
        values.append((key, _parse(text)))
    return with_values(spec, values)


def with_values(spec: RunSpec, values: Iterable[tuple[str, Any]]) -> RunSpec:
    """`spec` with other values by the names of their settings, as `with_settings` has them."""
    table, places = spec.as_table(), _places()
    changed = set()
    for key, value in values:
        check_known("setting", key, places)
        *sections, leaf = places[key]
        part = table
        for section in sections:
            part = part.setdefault(section, {})
        part[leaf] = value
        changed.add(leaf)
    training, old = table["training"], spec.training
    if "epochs" in changed and "warmup" not in changed and type(training["epochs"]) is int:
        training["warmup"] = round(old.warmup * training["epochs"] / old.epochs)
    changed_spec = from_table(table)
    if "seeds" in changed:
        _check_many(changed_spec.seeds)
    return changed_spec


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds and ranges of seeds, by commas.

    >>> parse_seeds("42-44,50")
    (42, 43, 44, 50)
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})(?:\s*-\s*(\d{1,10}))?\s*", part, re.ASCII)
        if match is None:
            raise InputError(f"seeds {shown(text)}: write numbers and ranges such as 42-46,50")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MOST_SEEDS:
            raise InputError(
                f"seeds {part.strip()!r}: a range goes up, over at most {MOST_SEEDS:,} seeds, such as 42-46"
            )
        seeds |= dict.fromkeys(range(first, last + 1))
        _check_many(seeds)
    return tuple(seeds)


def _check_many(seeds: Collection[int]) -> None:
    if len(seeds) > MOST_SEEDS:
        raise InputError(f"there are more than {MOST_SEEDS:,} seeds: ask for them in several commands")


def parse_methods(text: str) -> tuple[str, ...]:
    """Names of methods, by commas.

    >>> parse_methods("vanilla, robust")
    ('vanilla', 'robust')
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        METHODS.check(name)
    return tuple(dict.fromkeys(names))


def narrowed(spec: RunSpec, **changes: Any) -> RunSpec:
    """`spec` with whole fields replaced, all checked again."""
    return from_table(replace(spec, **changes).as_table())


def _build(kind: type[T], table: dict[str, Any], prefix: str = "") -> T:
    """The dataclass `kind` out of a table; every key and every value is checked."""
    hints = get_type_hints(kind)
    if not isinstance(table, dict) or not all(isinstance(key, str) for key in table):
        raise InputError(f"{prefix.rstrip('.') or 'a run'} must be a table of settings, not {_shown(table)}")
    for key in table:
        check_known("setting", prefix + key, [prefix + name for name in hints])
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name not in table and field.default is field.default_factory is MISSING:
            raise InputError(f"the setting {prefix + field.name!r} is missing")
    ordered = [name for name in hints if name in table]  # methods before settings that one of them declares
    return kind(**{key: _value(prefix + key, table[key], hints[key]) for key in ordered})


def check_fixed(settings: Any) -> None:
    """Refuse what a method's card fixes, if it is no setting of a training or out of its range."""
    _build(TrainingSettings, dict(settings) if isinstance(settings, Mapping) else settings, "training.")


def _value(key: str, value: Any, hint: Any) -> Any:
    if is_dataclass(hint):
        return _build(hint, value, f"{key}.")  # type: ignore[arg-type]
    if key == OWN:
        return _own(value)
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise InputError(f"{key} must be a list of {KINDS[item]}s, not {_shown(value)}")
        return tuple(_value(key, entry, item) for entry in value)
    if not (type(value) is hint or (hint is float and type(value) is int)):
        article = "" if hint is bool else "a "
        raise InputError(f"{key} must be {article}{KINDS[hint]}, not {_shown(value)}")
    _check_bounds(key, value)
    return hint(value)


def _own(values: Any) -> dict[str, float]:
    """The settings that single objectives declare, checked; those that are as declared need not be kept."""
    if not isinstance(values, dict):
        raise InputError(f"{OWN} must be a table of settings, not {_shown(values)}")
    declared, checked = declared_settings(), {}
    for name, value in values.items():
        check_known("setting", name, declared)
        if type(value) not in (int, float):
            raise InputError(f"{OWN}.{name} must be a number, not {_shown(value)}")
        _check_range(f"{OWN}.{name}", value, declared[name].low, declared[name].high)
        if value != declared[name].default:
            checked[name] = float(value)
    return checked


def _check_bounds(key: str, value: Any) -> None:
    leaf = key.rpartition(".")[2]
    if leaf in TABLES:
        TABLES[leaf].check(value)
    if leaf in CHOICES:
        check_known(leaf, value, CHOICES[leaf])
    if leaf in RANGES:
        _check_range(key, value, *RANGES[leaf])


def _check_range(key: str, value: float, low: float, high: float) -> None:
    if not low <= value <= min(high, sys.float_info.max):
        bounds = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        raise InputError(f"{key} must be {bounds}, not {_shown(value)}")


def _places() -> dict[str, tuple[str, ...]]:
    """Where each setting lives, under its dotted name and, for short, its last part."""
    places: dict[str, tuple[str, ...]] = {
        name: (name,) for name in ("protocol", "target", "keep_weights", "methods", "seeds")
    }
    for section, kind in (("model", ModelSettings), ("training", TrainingSettings)):
        for field in fields(kind):
            places[field.name] = places[f"{section}.{field.name}"] = (section, field.name)
    for name in declared_settings():
        places[name] = places[f"{OWN}.{name}"] = places[f"training.{name}"] = ("training", "own", name)
    del places["own"], places[OWN]
    return places


def setting_text(value: Any) -> str:
    """As --set takes it.

    >>> setting_text([16]), setting_text(False), setting_text("v1"), setting_text("18")
    ('[16]', 'false', 'v1', '"18"')
    """
    return value if isinstance(value, str) and _parse(value) == value else json.dumps(value)


def dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """Tables within the table by dotted names.

    >>> dotted({"seeds": [42], "model": {"experts": 4}})
    {'seeds': [42], 'model.experts': 4}
    """
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in dotted(value).items()}
        else:
            flat[name] = value
    return flat


def _parse(text: str) -> Any:
    """A TOML value; anything else is a bare word."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, thousands of digits, or lists in lists without end
        return text
    return parsed["value"] if set(parsed) == {"value"} else text


def _shown(value: Any) -> str:
    return shown(list(value) if isinstance(value, tuple) else value)
