"""A sweep: one setting takes several values, all else stays, and what the values share is trained once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from calmoe.errors import InputError, check_known, shown
from calmoe.experiments.plan import ALWAYS, LATER
from calmoe.experiments.spec import RunSpec, narrowed
from calmoe.methods import METHODS, Method, card
from calmoe.render.wording import shortest
from calmoe.training.settings import TrainingSettings, declared_settings
from calmoe.validation import parse_number

PAPER_VALUES: Mapping[str, tuple[float, ...]] = {
    "eta": (0.5, 1, 1.5, 2, 2.5, 3, 4, 5),
    "warmup": (0, 5, 10, 15, 20, 25, 30, 40),
}
MOST_VALUES = 100
HORIZON = 50  # epochs, for which the warm-ups above are meant


def sweepable() -> dict[str, type]:
    """The settings that a sweep may change, and their types: every number of a training.

    >>> sweepable()["eta"], sweepable()["warmup"]
    (<class 'float'>, <class 'int'>)
    """
    numbers = {f.name: f.type for f in fields(TrainingSettings) if f.type in (int, float)}
    return {**numbers, **dict.fromkeys(declared_settings(), float)}


@dataclass(frozen=True)
class Sweep:
    """The setting and its values, rising."""

    setting: str
    values: tuple[float, ...]

    def variants(self, spec: RunSpec) -> dict[float, RunSpec]:
        """`spec` with each value, all checked; some method must read the setting."""
        if not any(_reads(card(name), self.setting) for name in spec.methods):
            named = ", ".join(spec.methods)
            having = [name for name, method in METHODS.items() if _reads(method, self.setting)]
            raise InputError(f"{named} has no {self.setting}: sweep a method that has, {having[0]} say")
        return {value: narrowed(spec, training=self._changed(spec.training, value)) for value in self.values}

    def _changed(self, training: TrainingSettings, value: float) -> TrainingSettings:
        typed = sweepable()[self.setting](value)
        if self.setting in declared_settings():
            return replace(training, own={**training.own, self.setting: typed})
        return replace(training, **{self.setting: typed})

    def label(self, value: float) -> str:
        return f"{self.setting} {shortest(value)}"

    def merged(self, other: "Sweep") -> "Sweep":
        """Both sweeps' values."""
        return make_sweep(self.setting, (*self.values, *other.values))

    def asdict(self) -> dict[str, Any]:
        return {"setting": self.setting, "values": list(self.values)}


def _reads(method: Method, setting: str) -> bool:
    """Whether the setting changes what the method trains; a warm-up with ERM changes nothing for ERM."""
    if setting in method.fixed:
        return False
    if setting == "warmup":
        return method.objective != "erm" or method.gradient != "plain"
    return setting in (*ALWAYS, *LATER, *method.settings)


def make_sweep(setting: str, values: tuple[float, ...]) -> Sweep:
    """A sweep with its values checked, each once, rising.

    >>> make_sweep("eta", (2, 0.5, 2)).values
    (0.5, 2)
    """
    kinds = sweepable()
    check_known("setting to sweep", setting, kinds)
    for value in values:
        if not math.isfinite(value):
            raise InputError(f"{setting} must be a finite number, not {value:g}")
        if kinds[setting] is int and not float(value).is_integer():
            raise InputError(f"{setting} is a count: its values must be whole numbers, not {value:g}")
    return Sweep(setting, tuple(sorted(set(values))))


def paper_sweep(setting: str, epochs: int) -> Sweep | None:
    """The paper's values, with warm-ups in proportion to the epochs; None where it swept no such setting."""
    if setting not in PAPER_VALUES:
        return None
    values = PAPER_VALUES[setting]
    if setting == "warmup":
        values = tuple(round(value * epochs / HORIZON) for value in values)
    return make_sweep(setting, values)


def parse_values(setting: str, text: str | None, epochs: int) -> Sweep:
    """Numbers by commas; if none are given, the paper's, with warm-ups in proportion to the epochs.

    >>> parse_values("warmup", None, epochs=10).values
    (0, 1, 2, 3, 4, 5, 6, 8)
    """
    check_known("setting to sweep", setting, sweepable())
    if text is None:
        if (sweep := paper_sweep(setting, epochs)) is None:
            raise InputError(f"say which values of {setting} to sweep, such as --values 1,2,4")
        return sweep
    try:
        numbers = tuple(parse_number(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"values {shown(text)}: write numbers by commas, such as 0.5,1,2") from None
    sweep = make_sweep(setting, tuple(int(v) if v.is_integer() else v for v in numbers))
    if len(sweep.values) > MOST_VALUES:
        raise InputError(f"there are more than {MOST_VALUES} values: ask for them in several commands")
    return sweep
