"""What torchrun tells a process about itself, in its environment."""

import os
from dataclasses import dataclass

from calmoe.errors import InputError


@dataclass(frozen=True)
class Launch:
    """One of `size` processes that train together: its rank among all, and among those of its machine."""

    rank: int
    size: int
    local: int


def launch() -> Launch | None:
    """This process among those that torchrun started; None if it is alone."""
    size = _number("WORLD_SIZE", least=1, default=1)
    if size == 1:
        return None
    rank = _number("RANK", least=0, most=size - 1)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise _wrong(f"{name} is missing")
    return Launch(rank, size, _number("LOCAL_RANK", least=0, most=size - 1, default=rank))


def follows() -> bool:
    """Whether another process than this one writes, prints and shows how far the work is."""
    return os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("RANK", "0") != "0"


def _number(name: str, least: int, most: int = 2**31, default: int | None = None) -> int:
    text = os.environ.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal() or not least <= int(text) <= most:
        raise _wrong(f"{name} is {text!r}" if text else f"{name} is missing")
    return int(text)


def _wrong(what: str) -> InputError:
    size = os.environ.get("WORLD_SIZE")
    return InputError(f"WORLD_SIZE is {size!r}, but {what}: start calmoe with torchrun, or unset WORLD_SIZE")
