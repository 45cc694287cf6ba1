"""The audit of predictions in files: read them, audit them under a bar, note where they came from."""

import hashlib
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress, TaskID, TaskProgressColumn, TimeElapsedColumn

from calmoe import __version__
from calmoe.auditing.audit_report import FURTHER_ROWS, TAUGHT_ROWS, AuditReport, audit
from calmoe.auditing.comparison import ModelComparison, compare, told_apart
from calmoe.auditing.event import judged_class
from calmoe.auditing.folder import AUDIT
from calmoe.auditing.presentation.commands import with_options
from calmoe.auditing.presentation.comparison_page import comparison_page
from calmoe.auditing.target.checks import UnfitTarget, another_model
from calmoe.calibration.calibrator import FLATTERED, FLATTERY
from calmoe.defaults import LEVEL
from calmoe.errors import InputError, about, shown
from calmoe.files import json_bytes, legible
from calmoe.formats import NOTE, Columns, name_of
from calmoe.new_rows import (
    EVERY_ROW,
    check_new,
    left_out_note,
    marked_alike,
    new_rows,
    one_of_each,
    with_cluster,
)
from calmoe.ownership import PAGE, owned, put
from calmoe.predictions import Predictions
from calmoe.progress_bar import progress_bar
from calmoe.reading import read_with

FEWEST_LABELS, SURELY = 20, 0.25  # to say that labels count from 1: rows, and a difference in accuracy


def audit_files(
    paths: tuple[Path, Path | None, Path | None],
    columns: Columns,
    *,
    out: Path | None,
    of: str = "top",
    **options: Any,
) -> tuple[AuditReport, Path | None, list[str]]:
    """The report, its page if it goes into a folder `out`, and a line a file that says how it was read.

    paths: the file, a target and labelled rows of it. columns: what the user says about the columns of all
    of them. options: those of `audit`.
    """
    if out is not None:
        owned(out, AUDIT)  # refuses somebody else's folder before the work
    files = dict(zip(("file", "target", "labelled target"), paths, strict=True))
    with progress_bar(TaskProgressColumn(), TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task("reading", total=1.0)
        cluster = options.get("cluster")
        read_as = with_cluster(columns, cluster)
        predictions = read_with(paths[0], read_as)
        with about(paths[0]):
            predictions.known_labels  # noqa: B018 - refused where there are none
            check_new(predictions)
            judged = judged_class(predictions, of, "--of")
        target, labelled_target = (_elsewhere(path, read_as, predictions) for path in paths[1:])
        try:
            report = audit(
                predictions,
                target=target,
                labelled_target=labelled_target,
                of=judged,
                progress=lambda section, done: bar.update(task, description=section, completed=done),
                **options,
            )
        except UnfitTarget as error:
            raise InputError(f"{files[error.role]}: {error}") from None
        bar.update(task, description="writing")
        read = zip(files.items(), (predictions, target, labelled_target), strict=True)
        notes = {
            role: (path, each.metadata[NOTE]) for (role, path), each in read if each and NOTE in each.metadata
        }
        facts = origin(files) | asked_words(columns, cluster)
        facts |= {f"{role} read as": note for role, (_, note) in notes.items()}
        flattered = _flattered(predictions)
        if flattered:
            facts["take care"] = FLATTERY
        doubts = {
            role: note
            for role, each in (("target", target), ("labelled target", labelled_target))
            if each is not None and (note := another_model(predictions, each))
        }
        facts |= {f"take care with the {role}": note for role, note in doubts.items()}
        page = None if out is None else report.save(out, facts)
        lines = [f"{path}: {note}" for path, note in notes.values()]
        lines += [f"{files[role]}: {note}" for role, note in doubts.items()]
        for path, each in zip(paths[1:], (target, labelled_target), strict=True):
            lines += [] if each is None else [f"{path}: {note}" for note in _cases_note(each, cluster)]
        if target is not None and target.labels is not None:
            known = cluster if cluster == EVERY_ROW or cluster in target.groups else None
            command = with_options(f"calmoe audit {shlex.quote(str(paths[1]))}", columns.words, known)
            lines.append(f"{paths[1]}: it has labels, so {command} judges it directly")
        own = (*_from_one(predictions), *_left_out(report), *flattered)
        return report, page, [*lines, *(f"{paths[0]}: {each}" for each in own)]


def compare_files(
    paths: Sequence[Path], columns: Columns, *, out: Path | None, of: str = "top", **options: Any
) -> tuple[ModelComparison, Path | None, list[str]]:
    """The comparison of several models, its page if it goes into a folder `out`, and how files were read.

    The folder holds the comparison's page and audit.json, and each model's audit in model-1, model-2, …
    """
    if out is not None:
        owned(out, AUDIT)
    cluster, seed = options.get("cluster"), options.get("seed", 0)
    names = told_apart([name_of(path).removesuffix(path.suffix) or "model" for path in paths])
    read: dict[str, Predictions] = {}
    for name, path in zip(names, paths, strict=True):
        read[name] = read_with(path, with_cluster(columns, cluster))
        with about(path):
            read[name].known_labels  # noqa: B018 - refused where there are none
            check_new(read[name])
    labels = [each.known_labels.numpy() for each in read.values()]
    same_rows = all(np.array_equal(labels[0], other) for other in labels[1:])
    if same_rows:
        read = dict(zip(read, marked_alike(list(read.values())), strict=True))
        with about(paths[0]):
            check_new(read[names[0]])
    reports: dict[str, tuple[Predictions, AuditReport]] = {}
    with progress_bar(TaskProgressColumn(), TimeElapsedColumn(), transient=True) as bar:
        for name, path in zip(names, paths, strict=True):
            task = bar.add_task(name, total=1.0)
            with about(path):
                judged = judged_class(read[name], of, "--of")
                report = audit(read[name], of=judged, progress=_moving(bar, task), **options)
            reports[name] = one_of_each(new_rows(read[name]), cluster, seed).predictions, report
    comparison = compare(reports, options.get("level", LEVEL), same_rows=same_rows)
    if out is not None:
        words = asked_words(columns, cluster)
        put(out, AUDIT, _comparison_files(comparison, dict(zip(names, paths, strict=True)), words))
    notes = [
        f"{path}: {note}"
        for name, path in zip(names, paths, strict=True)
        for note in [
            *_read_as(read[name]),
            *_from_one(read[name]),
            *_left_out(reports[name][1]),
            *_flattered(read[name]),
        ]
    ]
    return comparison, None if out is None else out / PAGE, notes


def _read_as(predictions: Predictions) -> list[str]:
    """How the file was read, if calmoe did not write it."""
    return [str(predictions.metadata[NOTE])] if NOTE in predictions.metadata else []


def _from_one(predictions: Predictions) -> list[str]:
    """A warning where labels without a 0 fit far better once they are one less."""
    labels, predicted = predictions.known_labels, predictions.output.predicted
    right, right_less_one = ((predicted == labels - less).double().mean().item() for less in (0, 1))
    if labels.min() == 0 or len(labels) < FEWEST_LABELS or right_less_one < right + SURELY:
        return []
    return [
        f"class 0 never comes true, and {right_less_one:.0%} of the predictions are the label less one, "
        f"{right:.0%} the label: if labels count from 1, subtract 1"
    ]


def _left_out(report: AuditReport) -> list[str]:
    """That rows which taught the model, or repeat a case, are left out, where some are."""
    taught = [left_out_note(report.left_out[TAUGHT_ROWS])] if TAUGHT_ROWS in report.left_out else []
    return taught + ([report.left_out[FURTHER_ROWS]] if FURTHER_ROWS in report.left_out else [])


def _flattered(predictions: Predictions) -> list[str]:
    """A warning where a calibrator was fitted on these very rows."""
    return [FLATTERY] if FLATTERED in predictions.metadata else []


def _moving(bar: Progress, task: TaskID) -> Callable[[str, float], None]:
    return lambda section, done: bar.update(task, completed=done)


def _comparison_files(
    comparison: ModelComparison, paths: Mapping[str, Path], words: dict[str, str]
) -> dict[str, bytes]:
    folders = {name: f"model-{i}" for i, name in enumerate(paths, 1)}
    files: dict[str, bytes] = {}
    for model in comparison.models:
        facts = origin({"file": paths[model.name]}) | words
        own = model.report.files(facts)
        files |= {f"{folders[model.name]}/{name}": data for name, data in own.items()}
    facts = origin(paths) | words
    for model in comparison.models:
        facts |= {f"left out of {model.name}": note for note in _left_out(model.report)}
    pages = {name: f"{folder}/{PAGE}" for name, folder in folders.items()}
    files[PAGE] = comparison_page(comparison, pages, facts).html().encode()
    files["audit.json"] = json_bytes({"origin": facts, **comparison.to_dict()})
    return files


def _cases_note(target: Predictions, cluster: str | None) -> list[str]:
    """Which rows of a target count, where the user says what names the cases."""
    if cluster in (None, EVERY_ROW):
        return []
    if cluster not in target.groups:
        return [f"it has no column {shown(cluster, 60)}: each of its rows is taken for a case of its own"]
    judged = one_of_each(new_rows(target), cluster).judged
    return [judged] if judged else []


def _elsewhere(path: Path | None, columns: Columns, source: Predictions) -> Predictions | None:
    """Predictions of the same mixture elsewhere, their classes in the source's order."""
    if path is None:
        return None
    names = source.class_names
    predictions = read_with(path, replace(columns, like=names, label_optional=True))
    own = predictions.class_names
    if names is not None and own is not None and own != names and NOTE in predictions.metadata:
        raise InputError(
            f"{path}: its classes are {', '.join(own[:6])}, those of the source {', '.join(names[:6])}: give "
            "predictions of the same mixture"
        )
    return predictions


def asked_words(columns: Columns, cluster: str | None = None) -> dict[str, str]:
    """The options that say how to read the file, and what names its cases: later commands need them too."""
    options = {"options": shlex.join(columns.words)} if columns.words else {}
    return options if cluster is None else options | {"cluster": cluster}


def origin(files: Mapping[str, Path | None]) -> dict[str, str]:
    """The files by role with the beginnings of their SHA-256, the command, the version and the date."""
    facts: dict[str, str] = {}
    for role, path in files.items():
        if path is not None:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            facts |= {role: name_of(path), f"SHA-256 of the {role}": digest[:16]}
    command = legible(shlex.join(["calmoe", *sys.argv[1:]]))
    now = datetime.now(UTC).isoformat(timespec="minutes")
    return {**facts, "command": command, "calmoe": __version__, "date": now}
