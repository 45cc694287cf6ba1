"""Folders that belong to a command: a mark names the command, and the files that calmoe wrote there.

A command writes into a folder that is new, empty or its own. It replaces and removes the files that the mark
names, and leaves all others alone.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from calmoe.errors import InputError, about
from calmoe.files import hold, inside, leftovers, legible, unfinished, write_json, write_whole
from calmoe.validation import read_document

OWNER = ".calmoe.json"
PAGE = "report.html"


class Kind(NamedTuple):
    """A kind of folder, and the option that names one.

    unmarked: the names of the files that an early calmoe, which left no marks, wrote into a folder.
    """

    name: str
    option: str
    unmarked: Callable[[Path], set[str]]


def owned(folder: Path, kind: Kind) -> set[str]:
    """The names of calmoe's files in the folder; an InputError if the folder is neither free nor its own."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"{kind.option} must be a folder, and {legible(folder)} is a file")
    if not folder.exists():
        return set()
    if os.path.lexists(folder / OWNER):
        return _read_mark(folder, kind)
    if all(unfinished(name) == OWNER for name in os.listdir(folder)):
        return set()
    if names := kind.unmarked(folder):
        return names
    raise InputError(
        f"{legible(folder)} is not empty and no {kind.name} that calmoe wrote: give a new folder with "
        f"{kind.option}"
    )


@contextmanager
def claimed(folder: Path, kind: Kind, names: Collection[str]) -> Iterator[set[str]]:
    """Hold the folder, and mark it as ours with the files `names` that are about to be written.

    Gives the names in the mark from before: only those files are surely ours to remove. Writes nothing if
    the folder, or a file with one of the names, belongs to somebody else.
    """
    _check(folder, kind, names)
    with _alone(folder, kind):
        _check(folder, kind, names)
        before = _read_mark(folder, kind) if os.path.lexists(folder / OWNER) else set()
        _write_mark(folder, kind, before | set(names))
        _remove_leftovers(folder, {OWNER, *before, *names})
        yield before


def put(folder: Path, kind: Kind, files: Mapping[str, bytes]) -> None:
    """Write the files into the folder, the page last; remove what calmoe wrote there only before.

    A folder inside it with a page of its own gets a mark of its own.
    """
    places = _places(files)
    for place, parts in places.items():
        _check(_at(folder, place), kind, parts)
    with ExitStack() as stack:
        before = {
            place: stack.enter_context(claimed(_at(folder, place), kind, parts))
            for place, parts in places.items()
        }
        for place, parts in reversed(places.items()):  # the page that leads to the others comes last
            _replace(_at(folder, place), kind, before[place], parts)


def _replace(folder: Path, kind: Kind, before: set[str], files: Mapping[str, bytes]) -> None:
    for name in sorted(files, key=lambda name: name == PAGE):  # the page comes last
        path = _at(folder, name)
        path.parent.mkdir(exist_ok=True)
        write_whole(path, files[name])
    for path in (_at(folder, name) for name in before - set(files)):
        if path.is_file():
            path.unlink()
    _write_mark(folder, kind, files)


def _places(files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """The files by name in each folder that has a page; "" is the folder itself.

    >>> _places({"report.html": b"", "art/report.html": b"", "art/figures/a.png": b""})
    {'': {'report.html': b''}, 'art': {'report.html': b'', 'figures/a.png': b''}}
    """
    apart = {name.rpartition("/")[0] for name in files if name.endswith(f"/{PAGE}")}
    places: dict[str, dict[str, bytes]] = {"": {}}
    for name, data in files.items():
        place = name.partition("/")[0] if name.partition("/")[0] in apart else ""
        places.setdefault(place, {})[name.removeprefix(f"{place}/")] = data
    return places


def _check(folder: Path, kind: Kind, names: Collection[str]) -> set[str]:
    """The names that `owned` gives; an InputError if a foreign file has one of `names`."""
    before = owned(folder, kind)
    for name in names:
        path = _at(folder, name)
        if os.path.lexists(path) and not (name in before and path.is_file()):
            raise InputError(
                f"{legible(path)} is in the way, and calmoe did not write it: move it, or give another "
                f"{kind.option}"
            )
    return before


def _at(folder: Path, name: str) -> Path:
    return inside(folder, *name.split("/")) if name else folder


def _read_mark(folder: Path, kind: Kind) -> set[str]:
    remedy = f"give another {kind.option}"
    match read_document(folder / OWNER):
        case {"kind": str(name), "files": [*files]} if name.isidentifier() and {*map(type, files)} <= {str}:
            if name != kind.name:
                raise InputError(
                    f"{legible(folder)} belongs to `calmoe {name}`, not to `calmoe {kind.name}`: {remedy}"
                )
            with about(legible(folder / OWNER)):
                for file in files:
                    inside(folder, *file.split("/"))
            return set(files)
    raise InputError(f"{legible(folder / OWNER)} is damaged: {remedy}")


def _write_mark(folder: Path, kind: Kind, names: Collection[str]) -> None:
    write_json(folder / OWNER, {"kind": kind.name, "files": sorted(names)})


def _remove_leftovers(folder: Path, names: Collection[str]) -> None:
    for place in {name.rpartition("/")[0] for name in names}:
        part = _at(folder, place)
        ours = {name.rpartition("/")[2] for name in names if name.rpartition("/")[0] == place}
        for path in leftovers(part, ours.__contains__) if part.is_dir() else ():
            path.unlink()


@contextmanager
def _alone(folder: Path, kind: Kind) -> Iterator[None]:
    """Create the folder if need be, and keep other processes out by a lock on the folder itself.

    Folders that were created here and stayed empty are removed again.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError, ImportError):  # some systems have no locks for folders
            hold(
                handle,
                f"another calmoe is writing to {legible(folder)}: wait for it, or give another {kind.option}",
            )
        yield
    finally:
        os.close(handle)
        with suppress(OSError):
            for path in made:
                path.rmdir()
