"""Where code from outside calmoe comes from, and a digest of it: changed code is another plug-in.

The digest is over sources: the file that registers something, or all of its package, and the modules of the
user's own that it uses. Packages that are installed beside it count no more than torch does.
"""

import hashlib
import json
import secrets
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

HERE = Path(__file__).parent
SESSION = "this session"


class Origin(NamedTuple):
    """The file or the installed package that something comes from, and the digest of its code.

    present: whether the code is here; it is not where a run's record alone names it.
    """

    where: str
    digest: str
    present: bool = True


LOADING: list[str] = []  # the plug-ins that are being loaded, each by its `where`


@contextmanager
def loading(where: str) -> Iterator[None]:
    """What is registered inside comes from there; its digest is known once it is loaded."""
    LOADING.append(where)
    try:
        yield
    finally:
        LOADING.pop()


def caller() -> Origin:
    """Who registers something now: a plug-in that is being loaded, or the module that calls calmoe.

    What was typed into a session, in no file, counts in this session only: nothing else tells its code.
    """
    if LOADING:
        return Origin(LOADING[-1], "")
    frame = sys._getframe(1)
    while frame.f_back is not None and HERE in Path(frame.f_code.co_filename).parents:
        frame = frame.f_back
    file = frame.f_globals.get("__file__")
    module = sys.modules.get(frame.f_globals.get("__name__", ""))
    if module is None or file is None or not _same(file, frame.f_code.co_filename):
        return Origin(SESSION, secrets.token_hex(32))
    return Origin(Path(file).as_posix(), code_digest(module))


def _same(file: str, other: str) -> bool:
    return Path(file).is_file() and Path(file).resolve() == Path(other).resolve()


def code_digest(module: ModuleType, source: bytes | None = None, version: str = "") -> str:
    """SHA-256 over a module's sources: its own or its package's, and those of the user's modules it uses.

    source: what was run, if the module is a single file; it is read if not given.
    """
    sources: dict[str, bytes] = {}
    seen, queue = {id(module)}, [module]
    while queue:
        each = queue.pop()
        name = "" if each is module else each.__name__
        sources |= {name: source} if each is module and source is not None else _sources(each, name)
        used = [other for other in _used(vars(each)) if id(other) not in seen and _is_own(other)]
        seen |= {id(other) for other in used}
        queue += used
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in sources.items()}
    return hashlib.sha256(json.dumps([version, digests], sort_keys=True).encode()).hexdigest()


def _sources(module: ModuleType, name: str) -> dict[str, bytes]:
    """A single module's source under `name`; a package's, all of it."""
    top = sys.modules.get(module.__name__.partition(".")[0])
    if top is None or not hasattr(top, "__path__") or not getattr(top, "__file__", None):
        return {name: Path(str(module.__file__)).read_bytes()}
    folder = Path(str(top.__file__)).parent
    paths = sorted(folder.rglob("*.py"))
    return {f"{top.__name__}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths}


def _used(namespace: Mapping[str, Any]) -> list[ModuleType]:
    """The modules that the namespace names, or whose functions and classes it does."""
    used = {}
    for value in [*namespace.values()]:
        named = value if isinstance(value, ModuleType) else sys.modules.get(_home(value))
        if isinstance(named, ModuleType):
            used[id(named)] = named
    return list(used.values())


def _home(value: Any) -> str:
    try:
        home = getattr(value, "__module__", "")
    except Exception:  # whatever an object of the user's does when it is asked
        return ""
    return home if isinstance(home, str) else ""


def _is_own(module: ModuleType) -> bool:
    """Whether it is the user's own: not installed, not Python's, not calmoe's."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and is_own_file(file)


def is_own_file(file: str) -> bool:
    """Whether a source is the user's own.

    >>> is_own_file(__file__), is_own_file(json.__file__)
    (False, False)
    """
    if not file.endswith(".py") or not Path(file).is_file():
        return False
    installed = {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not {HERE, *installed} & set(Path(file).absolute().parents)
