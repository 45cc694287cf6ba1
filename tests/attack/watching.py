"""Whether anything changed in a folder: by name, kind and content."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from attack.running import Foreign

State = dict[str, str]


def state(folder: Path) -> State:
    """Every file, folder and link below `folder`, and what it holds."""
    found: State = {}
    for place, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(place, name)
            found[os.path.relpath(path, folder)] = _content(path)
    return found


@contextlib.contextmanager
def unchanged(folder: Path, may_change: Callable[[str], bool] = lambda path: False) -> Iterator[None]:
    """Raise Foreign if anything in the folder is another afterwards, but for what may change."""
    before = state(folder)
    try:
        yield
    finally:
        after = state(folder)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        if foreign := [path for path in changed if not may_change(path)]:
            raise Foreign(f"{foreign[0]!a} changed: {foreign[:5]!a}")


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    return "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
