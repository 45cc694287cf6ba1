"""Tables of named things that users add to: methods, objectives, losses, datasets, backbones.

`TABLE.register(name, thing)` adds one; an installed package offers its own through an entry point, which is
loaded when its name is first looked up. A run's record leaves stand-ins, so that runs can be read without
the code of their plug-ins.
"""

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from calmoe.errors import InputError, check_known
from calmoe.files import is_name
from calmoe.origins import SESSION, Origin, caller, code_digest, is_own_file, loading

T = TypeVar("T")
REGISTRIES: dict[str, "Registry[Any]"] = {}  # by kind


class Registry(dict[str, T], Generic[T]):
    """calmoe's own things by name, and those that users add; `group` is the name of the entry points.

    `check` refuses, with an InputError, what is not such a thing.

    >>> parts = Registry("part", "parts", {"wheel": 4}, lambda name, thing: None)
    >>> parts.register("door", 5)
    >>> parts["door"], parts.origin("wheel")
    (5, None)
    >>> parts.register("wheel", 3)
    Traceback (most recent call last):
    calmoe.errors.InputError: there is another part called 'wheel', of calmoe: give yours another name
    """

    def __init__(
        self, kind: str, group: str, packaged: dict[str, T], check: Callable[[str, Any], None]
    ) -> None:
        super().__init__(packaged)
        self.kind, self.group, self._check = kind, group, check
        self._packaged, self._origins = dict(packaged), dict[str, Origin]()
        if group.startswith("calmoe."):
            REGISTRIES[kind] = self

    # --- adding

    def register(self, name: str, thing: T) -> None:
        """Make a thing of one's own known by its name, in this process."""
        self._add(name, thing, caller())

    def __setitem__(self, name: str, thing: T) -> None:
        """As `register`; but whoever assigns to a name of calmoe's own replaces it, and runs' keys know."""
        if name in self._packaged and self._packaged[name] is thing:
            super().__setitem__(name, thing)
            self._origins.pop(name, None)
        elif name in self._packaged:
            self._check(name, thing)
            self._put(name, thing, caller())
        else:
            self.register(name, thing)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._origins.pop(name, None)

    def stand_in(self, name: str, thing: T, where: str, digest: str) -> None:
        """What a record says of a thing whose code may not be here; code that is here has precedence."""
        origin = self._origins.get(name)
        if name not in self or (origin and not origin.present):
            self._put(name, thing, Origin(where, digest, present=False))

    def _add(self, name: str, thing: T, origin: Origin) -> None:
        if not is_name(name):
            raise InputError(f"a {self.kind} cannot be called {name!r}: give letters, digits, '_' or '-'")
        self._check(name, thing)
        there = self._origins.get(name)
        taken = there is None or (there.present and there.where != origin.where)
        if name in self and self[name] != thing and taken:
            owner = there.where if there else "calmoe"
            raise InputError(
                f"there is another {self.kind} called {name!r}, of {owner}: give yours another name"
            )
        if there is not None or name not in self:
            self._put(name, thing, origin)

    def _put(self, name: str, thing: T, origin: Origin) -> None:
        super().__setitem__(name, thing)
        self._origins[name] = origin

    # --- looking up

    def origin(self, name: str) -> Origin | None:
        """Where a thing comes from; None for calmoe's own."""
        return self._origins.get(name)

    def names(self) -> list[str]:
        """All names: those of installed plug-ins too, which are not loaded for it."""
        return list(dict.fromkeys([*self, *offered(self.group)]))

    def check(self, name: str) -> None:
        """Refuse a name that nobody registered and no installed plug-in offers."""
        if name not in self:
            check_known(self.kind, name, self.names())
            self[name]

    def __missing__(self, name: str) -> T:
        if name not in offered(self.group):
            raise KeyError(name)
        self._load(name)
        return self[name]

    def here(self, name: str) -> T:
        """The thing itself, with its code; one that a record alone names is refused."""
        self.check(name)
        origin = self._origins.get(name)
        if origin is not None and not origin.present:
            if name not in offered(self.group):
                raise InputError(missing(self.kind, name, origin.where))
            self._load(name)
        return self[name]

    def _load(self, name: str) -> None:
        """Load the installed plug-in of this name, whole or not at all."""
        entry = offered(self.group)[name]
        where = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
        with whole(f"the plug-in {name!r} of {where} ({self.group})"), loading(where):
            thing = entry.load()
            module = sys.modules[entry.module]
            self._add(name, thing, Origin(where, ""))
            settle(where, code_digest(module, version=where))


def missing(kind: str, name: str, where: str) -> str:
    """That a plug-in's code is not here, and what to do."""
    return f"the {kind} {name!r} comes from a plug-in that is not loaded: {remedy(where)}"


def remedy(where: str) -> str:
    """How to load the plug-in of this origin."""
    if where.endswith(".py"):
        return f"give --plugin {where}, or name it under plugins in your .toml"
    return "register it again" if where == SESSION else f"install {where}"


def settle(where: str, digest: str) -> None:
    """The digest of a plug-in that was just loaded is known: note it with all that it registered."""
    for registry in REGISTRIES.values():
        for name, origin in registry._origins.items():
            if origin == Origin(where, ""):
                registry._origins[name] = Origin(where, digest)


@contextmanager
def whole(plugin: str) -> Iterator[None]:
    """Load a plug-in whole or not at all; whatever goes wrong in it is one line that names it."""
    before = {kind: (dict(each), dict(each._origins)) for kind, each in REGISTRIES.items()}
    try:
        yield
    except BaseException as error:
        for kind, registry in REGISTRIES.items():
            own = {name: thing for name, thing in registry.items() if name not in registry._origins}
            things, origins = before.get(kind, (own, {}))  # calmoe's own, if the plug-in was first to ask
            registry.clear()
            registry.update(things)
            registry._origins = origins
        if isinstance(error, Exception | SystemExit):
            raise InputError(f"{plugin} does not load: {cause(error)}") from None
        raise


def cause(error: BaseException) -> str:
    """An exception as one line: where it was raised, and what it says."""
    said = " ".join(str(error).split())
    if isinstance(error, InputError):
        return said
    named = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}" if error.lineno else named
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own_file(frame.filename)]
    return f"{named} (line {own[-1].lineno} of {own[-1].filename})" if own else named


@cache
def offered(group: str) -> dict[str, EntryPoint]:
    """The entry points of the group by name; of two with one name, that of the first package by name."""
    entries = sorted(entry_points(group=group), key=lambda e: e.dist.name if e.dist else "", reverse=True)
    return {entry.name: entry for entry in entries}
