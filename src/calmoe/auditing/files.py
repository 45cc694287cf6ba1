"""The audit of predictions in files, with a bar on a terminal."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from calmoe.auditing.audit_report import AuditReport, audit
from calmoe.auditing.folder import AUDIT
from calmoe.auditing.origin import origin, read
from calmoe.ownership import owned


def audit_files(
    file: Path, target: Path | None, labelled_target: Path | None, *, out: Path | None, **options: Any
) -> tuple[AuditReport, Path | None]:
    """The report and, where it goes into a folder `out`, its page. options: those of `audit`."""
    if out is not None:
        owned(out, AUDIT)  # somebody else's folder is refused before the work
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=1.0)
        predictions, elsewhere, some = read(file, target, labelled_target)
        report = audit(
            predictions,
            target=elsewhere,
            labelled_target=some,
            progress=lambda part, done: bar.update(task, description=part, completed=done),
            **options,
        )
        bar.update(task, description="writing")
        files = {"file": file, "target": target, "labelled target": labelled_target}
        return report, None if out is None else report.save(out, origin(files))
