"""A sweep: one setting takes several values, all else stays, and what the values share is trained once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calmoe.errors import InputError, check_known, shown
from calmoe.experiments.spec import RunSpec, narrowed
from calmoe.methods import METHODS, Method
from calmoe.render.wording import shortest
from calmoe.validation import parse_number

KINDS: Mapping[str, type] = {"eta": float, "warmup": int}
VALUES: Mapping[str, tuple[float, ...]] = {
    "eta": (0.5, 1, 1.5, 2, 2.5, 3, 4, 5),
    "warmup": (0, 5, 10, 15, 20, 25, 30, 40),
}
MOST_VALUES = 100
HORIZON = 50  # epochs, for which the warm-ups above are meant


@dataclass(frozen=True)
class Sweep:
    """The setting and its values, rising."""

    setting: str
    values: tuple[float, ...]

    def variants(self, spec: RunSpec) -> dict[float, RunSpec]:
        """`spec` with each value, all checked; some method must know the setting."""
        kind = KINDS[self.setting]
        if not any(_knows(METHODS[name], self.setting) for name in spec.methods):
            named = ", ".join(spec.methods)
            raise InputError(f"{named} has no {self.setting}: sweep a method that has, such as robust")
        return {
            value: narrowed(spec, training=replace(spec.training, **{self.setting: kind(value)}))
            for value in self.values
        }

    def label(self, value: float) -> str:
        return f"{self.setting} {shortest(value)}"

    def merged(self, other: "Sweep") -> "Sweep":
        """Both sweeps' values."""
        return make_sweep(self.setting, (*self.values, *other.values))

    def asdict(self) -> dict[str, Any]:
        return {"setting": self.setting, "values": list(self.values)}


def _knows(method: Method, setting: str) -> bool:
    """Whether the setting changes what the method trains."""
    if setting == "eta":
        return method.objective in ("tilted", "filtered", "entropic")
    return method.objective != "erm" or method.gradient == "rectified"


def make_sweep(setting: str, values: tuple[float, ...]) -> Sweep:
    """A sweep with its values checked, each once, rising.

    >>> make_sweep("eta", (2, 0.5, 2)).values
    (0.5, 2)
    """
    check_known("setting to sweep", setting, KINDS)
    for value in values:
        if not math.isfinite(value):
            raise InputError(f"{setting} must be a finite number, not {value:g}")
        if KINDS[setting] is int and not float(value).is_integer():
            raise InputError(f"{setting} counts epochs: its values must be whole numbers, not {value:g}")
    return Sweep(setting, tuple(sorted(set(values))))


def parse_values(setting: str, text: str | None, epochs: int) -> Sweep:
    """Numbers by commas; if none are given, the paper's, with warm-ups in proportion to the epochs.

    >>> parse_values("warmup", None, epochs=10).values
    (0, 1, 2, 3, 4, 5, 6, 8)
    """
    check_known("setting to sweep", setting, KINDS)
    if text is None:
        values = VALUES[setting]
        return make_sweep(
            setting, tuple(round(v * epochs / HORIZON) for v in values) if setting == "warmup" else values
        )
    try:
        numbers = tuple(parse_number(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"values {shown(text)}: write numbers by commas, such as 0.5,1,2") from None
    sweep = make_sweep(setting, tuple(int(v) if v.is_integer() else v for v in numbers))
    if len(sweep.values) > MOST_VALUES:
        raise InputError(f"there are more than {MOST_VALUES} values: ask for them in several commands")
    return sweep
