"""A sweep: some settings take several values, all else stays, and what the points share is trained once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from calmoe.backbones import BACKBONES, backbone_options
from calmoe.errors import InputError, check_known, shown
from calmoe.experiments.plan import ALWAYS, LATER
from calmoe.experiments.spec import RunSpec, narrowed, setting_text
from calmoe.methods import METHODS, Method, card
from calmoe.render.wording import listed, shortest
from calmoe.training.settings import ModelSettings, TrainingSettings, declared_settings
from calmoe.validation import items, number, text, whole

Value: TypeAlias = bool | int | float | str | tuple[int, ...]
Point: TypeAlias = tuple[Value, ...]  # a value for each setting of a sweep, in their order

PAPER_VALUES: Mapping[str, tuple[float, ...]] = {
    "eta": (0.5, 1, 1.5, 2, 2.5, 3, 4, 5),
    "warmup": (0, 5, 10, 15, 20, 25, 30, 40),
}
HORIZON = 50  # epochs, for which the warm-ups above are meant
MOST_SETTINGS = 8
MOST_POINTS = 10_000  # of a folder
OF_RANKS = ("batch_norm", "sharding")  # how several processes share a model; on one they change nothing
OF_A_RUN = ("backbone", "weights")  # they bring files of their own: a run has one of each
OF_THE_HEAD = ("experts", "router_hidden", "routing")


def sweepable() -> dict[str, Any]:
    """The settings that a sweep may change, and their types: all of a training, and most of a model.

    >>> sweepable()["eta"], sweepable()["warmup"]
    (<class 'float'>, <class 'int'>)
    """
    training = {f.name: f.type for f in fields(TrainingSettings) if f.name not in ("own", *OF_RANKS)}
    model = {f.name: f.type for f in fields(ModelSettings) if f.name not in OF_A_RUN}
    return {**training, **dict.fromkeys(declared_settings(), float), **model}


def is_number(setting: str) -> bool:
    """Whether the setting takes numbers, which have an order."""
    return sweepable()[setting] in (int, float)


@dataclass(frozen=True)
class Sweep:
    """The settings, and the points to train: at each, every setting has a value."""

    settings: tuple[str, ...]
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """What folders and files call the sweep, such as "eta-rho"."""
        return "-".join(self.settings)

    @property
    def values(self) -> tuple[Value, ...]:
        """The values of the first setting, which is mostly the only one."""
        return tuple(dict.fromkeys(point[0] for point in self.points))

    def variants(self, spec: RunSpec) -> dict[Point, RunSpec]:
        """`spec` at each point, all checked; for each setting there must be a method that reads it."""
        for setting in self.settings:
            _check_read(spec, setting)
        return {point: self._at(spec, point) for point in self.points}

    def _at(self, spec: RunSpec, point: Point) -> RunSpec:
        kinds, own = sweepable(), dict[str, Any](spec.training.own)
        changes: dict[str, dict[str, Any]] = {"model": {}, "training": {}}
        for setting, value in zip(self.settings, point, strict=True):
            typed = kinds[setting](value) if kinds[setting] in (int, float) else value
            if setting in declared_settings():
                own[setting] = typed
            else:
                of_model = setting in ModelSettings.__dataclass_fields__
                changes["model" if of_model else "training"][setting] = typed
        training = replace(spec.training, own=own, **changes["training"])
        return narrowed(spec, training=training, model=replace(spec.model, **changes["model"]))

    def label(self, point: Point) -> str:
        """What a plan and messages call the point, such as "eta 2, rho 0.1"."""
        named = zip(self.settings, point, strict=True)
        return ", ".join(f"{setting} {value_text(value)}" for setting, value in named)

    def merged(self, other: "Sweep") -> "Sweep":
        """Both sweeps' points."""
        points = (*self.points, *other.points)
        if len({*points}) > MOST_POINTS:
            raise InputError(f"that is more than {MOST_POINTS:,} points in a folder: give another --out")
        return make_points(self.settings, points)

    def asdict(self) -> dict[str, Any]:
        """As a record holds it; a sweep of one setting as it always did."""
        points = [[_plain(value) for value in point] for point in self.points]
        if len(self.settings) == 1:
            return {"setting": self.settings[0], "values": [value for (value,) in points]}
        return {"settings": list(self.settings), "points": points}

    def row_facts(self, point: Point) -> dict[str, Any]:
        """What a row of results says of its point; `row_point` reads it."""
        if len(self.settings) == 1:
            return {"setting": self.settings[0], "value": _plain(point[0])}
        return {"point": {s: _plain(value) for s, value in zip(self.settings, point, strict=True)}}


def row_point(row: Mapping[str, Any]) -> dict[str, Value]:
    """The swept settings of a row and their values; empty where the row is not of a sweep.

    >>> row_point({"setting": "eta", "value": 2}), row_point({"point": {"eta": 2, "hidden": [8, 8]}})
    ({'eta': 2}, {'eta': 2, 'hidden': (8, 8)})
    """
    point = {row["setting"]: row["value"]} if "setting" in row else row.get("point", {})
    return {setting: tuple(value) if isinstance(value, list) else value for setting, value in point.items()}


def setting_value(spec: RunSpec, setting: str) -> Value:
    """The value of a setting in a run without the sweep.

    >>> from calmoe.experiments.spec import load_preset
    >>> setting_value(load_preset("digits"), "eta"), setting_value(load_preset("digits"), "experts")
    (2.0, 4)
    """
    of_model = setting in ModelSettings.__dataclass_fields__
    value: Value = getattr(spec.model, setting) if of_model else spec.training.value(setting)
    return value


def swept_value(field: str, value: Any) -> Value:
    """A value of a setting as a file has it: a number, a word, true or false, or a list of whole numbers."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(field, value, most=1000)
    if isinstance(value, list):
        return tuple(whole(field, width) for width in items(field, value, most=1000))
    number(field, value)
    return value  # as it is: captions show whole numbers as such


def value_text(value: Value) -> str:
    """As tables and commands write it.

    >>> value_text(2.0), value_text("soft"), value_text((8, 8)), value_text(True)
    ('2', 'soft', '[8,8]', 'true')
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return shortest(value)
    return setting_text(_plain(value)).replace(" ", "")


def make_sweep(setting: str, values: Sequence[Value]) -> Sweep:
    """A sweep of one setting, its values checked, each once, rising.

    >>> make_sweep("eta", (2, 0.5, 2)).values
    (0.5, 2)
    """
    return make_points([setting], [(value,) for value in values])


def make_points(settings: Sequence[str], points: Sequence[Point]) -> Sweep:
    """A sweep of these settings at these points, all checked, each once, rising; settings by the alphabet.

    >>> make_points(["rho", "eta"], [(0.1, 2), (0.05, 2), (0.1, 2)])
    Sweep(settings=('eta', 'rho'), points=((2, 0.05), (2, 0.1)))
    """
    kinds = sweepable()
    for setting in settings:
        check_known("setting to sweep", setting, kinds)
    if len(settings) > MOST_SETTINGS or len({*settings}) < len(settings) or not settings:
        raise InputError(f"a sweep is over 1 to {MOST_SETTINGS} settings, each named once")
    if not points:
        raise InputError("a sweep needs a value at least")
    for setting, values in zip(settings, zip(*points, strict=True), strict=True):
        for value in {*values}:
            _check_value(setting, kinds[setting], value)
    ordered = tuple(sorted(settings))
    places = [settings.index(setting) for setting in ordered]
    unique = dict.fromkeys(tuple(point[place] for place in places) for point in points)
    first = ordered.index("warmup") if "warmup" in ordered else 0  # plans merge shorter warm-ups first
    return Sweep(ordered, tuple(sorted(unique, key=lambda point: rising((point[first], *point)))))


def paper_sweep(setting: str, epochs: int) -> Sweep | None:
    """The paper's values, with warm-ups in proportion to the epochs; None where it swept no such setting."""
    if setting not in PAPER_VALUES:
        return None
    values = PAPER_VALUES[setting]
    if setting == "warmup":
        values = tuple(round(value * epochs / HORIZON) for value in values)
    return make_sweep(setting, values)


def _check_value(setting: str, kind: Any, value: Value) -> None:
    """Refuse a value of another kind; whether it is in the setting's range, the spec says."""
    if kind not in (int, float):
        fits = isinstance(value, kind) if kind in (bool, str) else _is_widths(value)
        if not fits:
            needed = {bool: "true or false", str: "a word"}.get(kind, "a list of whole numbers such as [64]")
            raise InputError(f"{setting} must be {needed}, not {shown(_plain(value))}")
        return
    if isinstance(value, bool | str | tuple):
        raise InputError(f"{setting} must be a number, not {shown(_plain(value))}")
    if not math.isfinite(value):
        raise InputError(f"{setting} must be a finite number, not {value:g}")
    if kind is int and not float(value).is_integer():
        raise InputError(f"{setting} is a count: its values must be whole numbers, not {value:g}")


def _is_widths(value: Value) -> bool:
    return isinstance(value, tuple) and all(type(width) is int for width in value)


def is_read(spec: RunSpec, setting: str) -> bool:
    """Whether the setting changes anything in any of the run's methods.

    >>> from calmoe.experiments.spec import load_preset
    >>> spec = narrowed(load_preset("digits"), methods=("single", "vanilla"))
    >>> is_read(spec, "experts"), is_read(spec, "eta")
    (True, False)
    """
    return any(_reads(card(name), setting, spec.model) for name in spec.methods)


def unread(spec: RunSpec, settings: Iterable[str]) -> list[str]:
    """Those that change nothing in the run's methods; a warm-up with ERM counts as a part of ERM.

    Of a method or backbone whose plug-in is not loaded, nobody knows.

    >>> from calmoe.experiments.spec import load_preset
    >>> unread(narrowed(load_preset("digits"), methods=("recommended",)), ["rho", "epochs", "warmup"])
    ['rho']
    """
    origin, known = BACKBONES.origin(spec.model.backbone), sweepable()
    if (origin is not None and not origin.present) or not {*spec.methods} <= {*METHODS}:
        return []
    return [s for s in settings if s in known and s != "warmup" and not is_read(spec, s)]


def _check_read(spec: RunSpec, setting: str) -> None:
    """Refuse a setting that changes nothing."""
    if is_read(spec, setting):
        return
    fixed = {name: card(name).fixed[setting] for name in spec.methods if setting in card(name).fixed}
    having = [name for name, method in METHODS.items() if _reads(method, setting, spec.model)]
    if not having:
        raise InputError(f"the backbone {spec.model.backbone} has no {setting}: sweep another setting")
    if fixed:
        held = listed([f"{name} fixes {setting}={setting_text(value)}" for name, value in fixed.items()])
        alike = [name for name in having if METHODS[name].head == card(next(iter(fixed))).head]
        raise InputError(
            f"{held}: sweep a method that leaves it open, such as {next(iter(alike), having[0])}"
        )
    raise InputError(
        f"{', '.join(spec.methods)} has no {setting}: sweep a method that has, such as {having[0]}"
    )


def may_read(name: str, setting: str) -> bool:
    """Whether the setting changes what the method trains with some backbone; of an unknown method all may.

    >>> may_read("robust", "eta"), may_read("robust", "rho"), may_read("mine", "rho")
    (True, False, True)
    """
    return name not in METHODS or _reads(METHODS[name], setting, None)


def _reads(method: Method, setting: str, model: ModelSettings | None) -> bool:
    """Whether the setting changes what the method trains; a warm-up with ERM changes nothing for ERM."""
    if setting in method.fixed:
        return False
    if setting == "warmup":
        return method.objective != "erm" or method.gradient != "plain"
    if setting == "forget_moments":
        return method.objective != "erm"
    if setting in OF_THE_HEAD:
        return method.head == "mixture"
    if setting in ModelSettings.__dataclass_fields__:
        return model is None or setting in backbone_options(model.backbone)
    return setting in (*ALWAYS, *LATER, *method.settings)


def rising(point: Point) -> tuple[tuple[float, str, tuple[int, ...]], ...]:
    """To sort points by: numbers and lists of them rise, words follow the alphabet.

    >>> sorted([((8, 8), 2), ((8,), 10), ((8,), 9)], key=rising)
    [((8,), 9), ((8,), 10), ((8, 8), 2)]
    """
    return tuple(
        (float(value), "", ())
        if isinstance(value, int | float)
        else (0.0, value, ())
        if isinstance(value, str)
        else (0.0, "", value)
        for value in point
    )


def _plain(value: Value) -> Any:
    """As JSON has it."""
    return list(value) if isinstance(value, tuple) else value
