"""Objectives by name, with the settings that they read, and losses by name: what methods are made of.

`OBJECTIVES.register(name, Recipe(...))` and `LOSSES.register(name, function)` add one's own.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from calmoe.errors import InputError, refusal
from calmoe.objectives import (
    ERM,
    CVaR,
    EntropicRisk,
    Loss,
    Objective,
    RobustFiltered,
    RobustMoE,
    brier,
    cross_entropy,
)
from calmoe.registry import Registry


class Setting(NamedTuple):
    """A number that only one objective reads: `--set NAME=VALUE` changes it.

    Args:
        default: Its value where nobody changes it.
        low: The smallest value allowed.
        high: The largest value allowed.

    Example:
        >>> Setting(1.0, low=0.0, high=10.0).default
        1.0
    """

    default: float
    low: float = 0.0
    high: float = math.inf


class Recipe(NamedTuple):
    """An objective by its settings: `make(**settings, loss=...)` builds it.

    Args:
        make: The class of the objective, or a function that returns one.
        settings: Fields of `TrainingSettings` that it reads, such as ("eta",).
        own: Settings that no other objective has, by name.
        robust: Whether it leans on large losses, against a shift.

    Example:
        >>> from calmoe.objectives import CVaR
        >>> Recipe(CVaR, settings=("gamma",)).make(gamma=4.0).gamma
        4.0
    """

    make: Callable[..., Objective]
    settings: tuple[str, ...] = ()
    own: Mapping[str, Setting] = {}
    robust: bool = False


def _check_objective(name: str, recipe: Any) -> None:
    """Refuse what is no recipe of an objective."""
    if not isinstance(recipe, Recipe) or not callable(recipe.make):
        raise refusal(f"the objective {name!r}", "a Recipe(make, ...)", recipe)
    for setting, declared in recipe.own.items():
        if not setting.isidentifier() or not isinstance(declared, Setting):
            raise refusal(f"the objective {name!r}: own", "Settings by name", {setting: declared})
        if not declared.low <= declared.default <= declared.high or math.isinf(declared.default):
            raise InputError(f"the objective {name!r}: the default of {setting} is out of its range")


def _check_loss(name: str, loss: Any) -> None:
    if not callable(loss):
        raise refusal(f"the loss {name!r}", "a function (output, labels) -> losses", loss)


OBJECTIVES = Registry(
    "objective",
    "calmoe.objectives",
    {
        "erm": Recipe(ERM),
        "tilted": Recipe(RobustMoE, ("eta",), robust=True),
        "filtered": Recipe(RobustFiltered, ("eta", "regret", "disagreement"), robust=True),
        "entropic": Recipe(EntropicRisk, ("eta",), robust=True),
        "cvar": Recipe(CVaR, ("gamma",), robust=True),
    },
    _check_objective,
)
"""Objectives by name: `OBJECTIVES.register(name, Recipe(...))` adds one."""
LOSSES: Registry[Loss] = Registry(
    "loss", "calmoe.losses", {"cross_entropy": cross_entropy, "brier": brier}, _check_loss
)
"""Losses by name: `LOSSES.register(name, function)` adds one."""
