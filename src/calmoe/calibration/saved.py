"""How calibrators are kept: one JSON table each, whose `kind` says what it is."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from calmoe.errors import InputError
from calmoe.validation import read_json


def read_saved(path: str | Path, kind: str, keys: Collection[str]) -> dict[str, Any]:
    """The table that a calibrator of this kind saved, with these keys."""
    return check_saved(read_file(path), f"{path}: ", kind, keys)


def read_file(path: str | Path) -> Any:
    """Whatever a JSON file holds."""
    try:
        return read_json(path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path}: not a readable JSON file ({error.strerror or error})") from None


def check_saved(saved: Any, where: str, kind: str, keys: Collection[str]) -> dict[str, Any]:
    """Refuse a table of another kind, or without these keys; `where` begins the message."""
    if not isinstance(saved, dict) or saved.get("kind") != kind or not all(key in saved for key in keys):
        raise InputError(f"{where}not a saved {kind} (expected kind and {', '.join(keys)})")
    return saved
