"""The residents of a trainer, and how many of them it keeps: a long study has more than fit into memory.

Every model setting, head, weight decay and precision needs a resident of its own, and every rule a step on
it. Those used last are kept, since the next seed's methods need them again, and on a GPU they are compiled.
"""

import gc
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from calmoe.training.resident import Resident
from calmoe.training.settings import ModelSettings

Key = TypeVar("Key")
Value = TypeVar("Value")
Residents: TypeAlias = dict[tuple[ModelSettings, str, float, str], Resident]
"""By model settings, head, weight decay and precision; the one used last is the last."""

KEPT = 8  # residents
KEPT_PARAMETERS = 500_000_000  # of all of them: 8 GB with gradients and moments
KEPT_STEPS = 64  # of a resident: two for every objective and rule


def recent(kept: dict[Key, Value], key: Key, make: Callable[[], Value], most: int | None = None) -> Value:
    """The value at `key`, made if it is not there, and used last now; at most so many are kept.

    >>> kept = {1: "a", 2: "b"}
    >>> recent(kept, 1, lambda: "never made"), recent(kept, 3, lambda: "c", most=2), kept
    ('a', 'c', {1: 'a', 3: 'c'})
    """
    value = kept.pop(key) if key in kept else make()
    kept[key] = value
    while most is not None and len(kept) > most:
        del kept[next(iter(kept))]
    return value


def let_old_go(residents: Residents) -> None:
    """Free those that were not used for longest, with their steps, until the others are few enough."""
    gone = False
    while len(residents) > 1 and (len(residents) > KEPT or _parameters(residents) > KEPT_PARAMETERS):
        residents.pop(next(iter(residents))).steps.clear()  # a step refers to its resident
        gone = True
    if gone:
        gc.collect()  # compiled code refers to itself, and nobody else knows what it holds on a GPU


def _parameters(residents: Residents) -> int:
    return sum(part.numel() for resident in residents.values() for part in resident.parameters)
