"""A search space: for each setting its values or its range; from it come grids, pairs and random points."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from calmoe.errors import InputError, check_known, shown
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.sweep import Point, Sweep, Value, make_points, make_sweep, paper_sweep, sweepable
from calmoe.validation import parse_number

MOST_VALUES = 100  # of --values
MOST_AT_ONCE = 1000  # points of one command
DIGITS = 4  # of a number drawn at random: commands and tables stay legible


@dataclass(frozen=True)
class Choices:
    """A setting and its values."""

    setting: str
    values: tuple[Value, ...]

    @property
    def ends(self) -> tuple[Value, ...]:
        """The values that go furthest: if these can be trained, all can."""
        numbers = [value for value in self.values if isinstance(value, int | float)]
        return (min(numbers), max(numbers)) if len(numbers) == len(self.values) else self.values

    def draw(self, generator: np.random.Generator) -> Value:
        return self.values[int(generator.integers(len(self.values)))]


@dataclass(frozen=True)
class Range:
    """A setting and the numbers between two ends; log: every power of ten is as likely as another."""

    setting: str
    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        return sweepable()[self.setting] is int

    @property
    def ends(self) -> tuple[Value, ...]:
        return (self.low, self.high)

    def draw(self, generator: np.random.Generator) -> Value:
        """A number of the range, with four digits where it is not whole."""
        margin = 0.5 if self.whole else 0.0  # so that the ends are as likely as what is between
        low, high = self.low - margin, self.high + margin
        if self.log:
            drawn = math.exp(generator.uniform(math.log(low), math.log(high)))
        else:
            drawn = generator.uniform(low, high)
        rounded: float = round(drawn) if self.whole else float(f"{drawn:.{DIGITS}g}")
        return min(max(rounded, self.low), self.high)


Axis: TypeAlias = Choices | Range


def parse_axis(word: str) -> Axis:
    """A setting with its values or its range.

    >>> parse_axis("eta=0,1,2")
    Choices(setting='eta', values=(0, 1, 2))
    >>> parse_axis("learning_rate=1e-4..1e-2:log")
    Range(setting='learning_rate', low=0.0001, high=0.01, log=True)
    """
    setting, equals, text = (part.strip() for part in word.partition("="))
    if not equals or not setting:
        raise InputError(f"{shown(word)}: write a setting and its values, such as eta=0,1,2")
    check_known("setting to sweep", setting, sweepable())
    if ".." in text:
        return _range(setting, text)
    return Choices(setting, parse_choices(setting, text))


def parse_space(words: Sequence[str]) -> list[Axis]:
    """Several settings, each named once.

    >>> [axis.setting for axis in parse_space(["eta=0,1", "warmup=0..10"])]
    ['eta', 'warmup']
    """
    axes = [parse_axis(word) for word in words]
    named = [axis.setting for axis in axes]
    for setting in named:
        if named.count(setting) > 1:
            raise InputError(f"{setting} is given twice: name all its values at once")
    return axes


def parse_values(setting: str, text: str | None, epochs: int) -> Sweep:
    """Values of one setting by commas; if none are given, the paper's, with warm-ups as its epochs have.

    >>> parse_values("warmup", None, epochs=10).values
    (0, 1, 2, 3, 4, 5, 6, 8)
    """
    check_known("setting to sweep", setting, sweepable())
    if text is None:
        if (sweep := paper_sweep(setting, epochs)) is None:
            raise InputError(f"say which values of {setting} to sweep, such as --values 1,2,4")
        return sweep
    sweep = make_sweep(setting, parse_choices(setting, text))
    if len(sweep.points) > MOST_VALUES:
        raise InputError(f"there are more than {MOST_VALUES} values: ask for them in several commands")
    return sweep


def parse_choices(setting: str, text: str) -> tuple[Value, ...]:
    """The values of a setting by commas, as given, each checked.

    >>> parse_choices("hidden", "[64],[64,64]"), parse_choices("routing", "soft,hard")
    (((64,), (64, 64)), ('soft', 'hard'))
    """
    kind = sweepable()[setting]
    values: tuple[Value, ...]
    if kind in (int, float):
        values = _numbers(text)
    elif kind in (bool, str):
        words = [word.strip() for word in text.split(",")]
        values = tuple(
            {"true": True, "false": False}.get(word, word) if kind is bool else word for word in words
        )
    else:
        values = _lists(setting, text)
    make_sweep(setting, values)
    _check_many(len(values))
    return values


def grid(axes: Sequence[Axis]) -> Sweep:
    """Every combination of the values.

    >>> grid(parse_space(["eta=0,1", "rho=0.1"])).points
    ((0, 0.1), (1, 0.1))
    """
    values = _values(axes)
    _check_many(math.prod(map(len, values)))
    return make_points([axis.setting for axis in axes], [*product(*values)])


def paired(axes: Sequence[Axis]) -> Sweep:
    """The first values together, then the second ones, and so on.

    >>> paired(parse_space(["eta=0,1", "rho=0.1,0.2"])).points
    ((0, 0.1), (1, 0.2))
    """
    values = _values(axes)
    if len({*map(len, values)}) > 1:
        counts = ", ".join(f"{axis.setting} {len(own)}" for axis, own in zip(axes, values, strict=True))
        raise InputError(f"--paired needs as many values of each setting, not {counts}")
    return make_points([axis.setting for axis in axes], [*zip(*values, strict=True)])


def random_points(axes: Sequence[Axis], count: int, seed: int) -> Sweep:
    """`count` points at random, fewer where some fall together; the first of more points are the same ones.

    Each setting has random numbers of its own, whatever the other settings are and in which order they stand.

    >>> random_points(parse_space(["eta=0..4"]), 2, seed=0) == random_points(parse_space(["eta=0..4"]), 2, 0)
    True
    """
    if count < 1:
        raise InputError("--random must be at least 1, such as --random 20")
    _check_many(count)
    streams = [np.random.default_rng([seed, *axis.setting.encode()]) for axis in axes]
    points = [
        tuple(axis.draw(stream) for axis, stream in zip(axes, streams, strict=True)) for _ in range(count)
    ]
    return make_points([axis.setting for axis in axes], points)


def check_space(axes: Sequence[Axis], spec: RunSpec) -> None:
    """Refuse a space with a corner that cannot be trained, before anything is: it could be drawn."""
    corners: list[Point] = [*product(*(axis.ends for axis in axes))]
    make_points([axis.setting for axis in axes], corners).variants(spec)


def _values(axes: Sequence[Axis]) -> list[tuple[Value, ...]]:
    """The values of all axes; a range has none."""
    for axis in axes:
        if isinstance(axis, Range):
            raise InputError(
                f"{axis.setting} has a range: give --random 20 or --optuna 20 to draw from it, or its values"
            )
    return [axis.values for axis in axes if isinstance(axis, Choices)]


def _check_many(points: int) -> None:
    if points > MOST_AT_ONCE:
        raise InputError(f"that is {points:,} points, at most {MOST_AT_ONCE:,} in one command: ask for fewer")


def _numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(parse_number(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"values {shown(text)}: write numbers by commas, such as 0.5,1,2") from None
    return tuple(map(_short, numbers))


def _short(number: float) -> float:
    """Whole numbers as such: labels and commands show them."""
    return int(number) if number.is_integer() else number


def _lists(setting: str, text: str) -> tuple[Value, ...]:
    try:
        lists: Any = json.loads(f"[{text}]")
    except (ValueError, RecursionError):
        lists = None
    if not lists or not all(isinstance(each, list) and {*map(type, each)} == {int} for each in lists):
        raise InputError(f"{setting}={shown(text)}: write lists by commas, such as [64],[64,64]")
    return tuple(map(tuple, lists))


def _range(setting: str, text: str) -> Range:
    """ "1e-4..1e-2:log" as a range of the setting."""
    ends, colon, scale = (part.strip() for part in text.partition(":"))
    try:
        low, high = (_short(parse_number(end)) for end in ends.split(".."))
    except ValueError:
        raise InputError(f"{setting}={shown(text)}: write a range such as 0..4, or 1e-4..1e-2:log") from None
    if sweepable()[setting] not in (int, float):
        raise InputError(f"{setting} takes no numbers: name its values by commas")
    make_sweep(setting, (low, high))
    if colon and scale != "log":
        raise InputError(f"{setting}={shown(text)}: after the colon stands log, or nothing")
    if low >= high or (colon and low <= 0):
        raise InputError(f"{setting}={shown(text)}: a range goes up{', from above 0' * bool(colon)}")
    return Range(setting, low, high, bool(colon))
