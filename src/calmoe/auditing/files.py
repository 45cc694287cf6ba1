"""The audit of predictions in files: read them, audit them under a bar, note where they came from."""

import hashlib
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.progress import TaskProgressColumn, TimeElapsedColumn

from calmoe import __version__
from calmoe.auditing.audit_report import AuditReport, audit
from calmoe.auditing.folder import AUDIT
from calmoe.auditing.target.checks import UnfitTarget
from calmoe.errors import InputError, about
from calmoe.files import legible
from calmoe.ownership import owned
from calmoe.predictions import Predictions
from calmoe.progress_bar import progress_bar


def audit_files(
    file: Path, target: Path | None, labelled_target: Path | None, *, out: Path | None, **options: Any
) -> tuple[AuditReport, Path | None]:
    """The report and, if it goes into a folder `out`, its page. options: those of `audit`."""
    if out is not None:
        owned(out, AUDIT)  # refuses somebody else's folder before the work
    files = {"file": file, "target": target, "labelled target": labelled_target}
    with progress_bar(TaskProgressColumn(), TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task("reading", total=1.0)
        predictions = Predictions.load(file)
        with about(file):
            predictions.known_labels  # noqa: B018 - refused where there are none
        try:
            report = audit(
                predictions,
                target=None if target is None else Predictions.load(target),
                labelled_target=None if labelled_target is None else Predictions.load(labelled_target),
                progress=lambda section, done: bar.update(task, description=section, completed=done),
                **options,
            )
        except UnfitTarget as error:
            raise InputError(f"{files[error.role]}: {error}") from None
        bar.update(task, description="writing")
        return report, None if out is None else report.save(out, origin(files))


def origin(files: Mapping[str, Path | None]) -> dict[str, str]:
    """The files by role with the beginnings of their SHA-256, the command, the version and the date."""
    facts: dict[str, str] = {}
    for role, path in files.items():
        if path is not None:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            facts |= {role: legible(path.name), f"SHA-256 of the {role}": digest[:16]}
    command = legible(shlex.join(["calmoe", *sys.argv[1:]]))
    now = datetime.now(UTC).isoformat(timespec="minutes")
    return {**facts, "command": command, "calmoe": __version__, "date": now}
