"""The files of an audit: read together, and told where they come from, so that reports can be told apart."""

import hashlib
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from calmoe import __version__
from calmoe.auditing.target.predict import check_target
from calmoe.errors import about
from calmoe.files import legible
from calmoe.predictions import Predictions


def read(
    file: Path, target: Path | None, labelled_target: Path | None
) -> tuple[Predictions, Predictions | None, Predictions | None]:
    """The files of an audit; what keeps one from being audited with the others is told with its path."""
    predictions = Predictions.load(file)
    with about(file):
        predictions.known_labels  # noqa: B018 - refused where there are none

    def beside(role: str, path: Path | None) -> Predictions | None:
        if path is None:
            return None
        other = Predictions.load(path)
        with about(path):
            check_target(predictions, other, role)
        return other

    return predictions, beside("target", target), beside("labelled target", labelled_target)


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
