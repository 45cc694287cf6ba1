"""Load a plug-in: a Python file of one's own, outside of calmoe, that registers methods, datasets, …."""

import hashlib
import sys
from pathlib import Path
from types import ModuleType

from calmoe.errors import InputError
from calmoe.files import legible
from calmoe.origins import code_digest, loading
from calmoe.registry import REGISTRIES, settle, whole

MOST_BYTES = 16 * 2**20


def load_plugin(path: str | Path) -> None:
    """Run the file: what it registers is known from then on, in this process.

    It runs with all rights of the user: give only files that you trust. A file that fails leaves nothing.

    >>> load_plugin("mine.txt")
    Traceback (most recent call last):
    calmoe.errors.InputError: the plug-in mine.txt must be a Python file, *.py
    """
    path, where = Path(path), legible(Path(path).as_posix())
    if path.suffix != ".py":
        raise InputError(f"the plug-in {legible(path)} must be a Python file, *.py")
    if not path.is_file():
        raise InputError(f"there is no plug-in {legible(path)}")
    source = path.read_bytes()
    if len(source) > MOST_BYTES:
        raise InputError(f"the plug-in {legible(path)} is longer than {MOST_BYTES:,} bytes")
    name = f"calmoe_plugin_{path.stem}_{hashlib.sha256(source).hexdigest()[:16]}"
    module = ModuleType(name)
    module.__file__ = str(path.resolve())
    earlier = sys.modules.get(name)
    sys.modules[name] = module
    try:
        with whole(f"the plug-in {legible(path)}"):
            with loading(where):
                exec(compile(source, str(path), "exec"), vars(module))
            if not any(origin == (where, "", True) for origin in _origins()):
                raise InputError("it registers nothing, as calmoe.methods.register(Method(...)) does")
            settle(where, code_digest(module, source))
    except BaseException:
        del sys.modules[name]
        if earlier is not None:
            sys.modules[name] = earlier
        raise


def _origins() -> list[object]:
    return [origin for registry in REGISTRIES.values() for origin in registry._origins.values()]
