"""Where an audit's files come from, so that two reports can be told apart."""

import hashlib
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from calmoe import __version__
from calmoe.files import legible


def origin(files: Mapping[str, Path | None]) -> dict[str, str]:
    """The files by role with the beginnings of their SHA-256, the command, the version and the date."""
    told: dict[str, str] = {}
    for role, path in files.items():
        if path is not None:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            told |= {role: legible(path.name), f"SHA-256 of the {role}": digest[:16]}
    command = legible(shlex.join(["calmoe", *sys.argv[1:]]))
    now = datetime.now(UTC).isoformat(timespec="minutes")
    return {**told, "command": command, "calmoe": __version__, "date": now}
