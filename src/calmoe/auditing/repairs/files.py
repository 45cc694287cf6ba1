"""Repairs of predictions in files: choose a calibrator for one file, apply it to another."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from threadpoolctl import threadpool_limits

from calmoe.arrays import check_word
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.event import judged_class
from calmoe.auditing.presentation.words import repeated
from calmoe.auditing.repairs.candidates import NAMES, NOTHING
from calmoe.auditing.repairs.repair import Repair, repair
from calmoe.auditing.sections.repair import sentences
from calmoe.auditing.statistics.repeats import Repeats, find_repeats
from calmoe.calibration import Calibrator
from calmoe.calibration.calibrator import FLATTERED, FLATTERY, with_flattered_marked
from calmoe.errors import InputError, about
from calmoe.files import check_new, file_digest, legible
from calmoe.formats import NOTE, SAVED, Columns, name_of
from calmoe.new_rows import EVERY_ROW, left_out_note, new_rows, one_of_each, with_cluster
from calmoe.reading import read_with

AUTO = "auto"


class Repaired(NamedTuple):
    """What was found, the calibrator that was written, what it does, and notes on the file's rows."""

    repair: Repair
    calibrator: Calibrator
    effect: str
    notes: list[str]


def repair_file(
    path: Path,
    columns: Columns,
    out: Path,
    *,
    kind: str = AUTO,
    of: str = "top",
    seed: int = 0,
    cluster: str | None = None,
    inside: Callable[[float], None] = lambda share: None,
) -> Repaired:
    """Choose a repair for the predictions in `path`, or take this kind of it, and write it to `out`.

    of: the event whose ECE may not rise, as `judged_class` has it. cluster: a column that names cases; one
    row of each teaches and is judged. Where rows seem to repeat each other, nothing is chosen: only a kind is
    taken.
    """
    check_word("--kind", kind, (AUTO, *NAMES))
    check_new(out, (".json",), "a calibrator")
    predictions = read_with(path, with_cluster(columns, cluster))
    with about(legible(path)):
        predictions.known_labels  # noqa: B018 - refused where there are none
        new = one_of_each(new_rows(predictions), cluster, seed)
        predictions = new.predictions
        repeats = find_repeats(predictions, Configurations.of(predictions), new.cases)
        if repeats is not None and kind == AUTO:
            raise InputError(f"{repeated(repeats)}, so no repair can be judged: {_remedy(repeats)}")
        judged = judged_class(predictions, of, "--of")
        with threadpool_limits(1):
            outcome = repair(predictions, of=judged, seed=seed, inside=inside)
        if kind in outcome.left_out:
            raise InputError(f"--kind {kind} is not possible: {outcome.left_out[kind]}")
    name = outcome.recommended or NOTHING if kind == AUTO else kind
    note = f"fitted on {outcome.learned:,} rows of {name_of(path)} (SHA-256 {file_digest(path)[:16]})"
    calibrator = replace(outcome.fits[name], classes=predictions.class_names, note=note)
    calibrator.save(out)
    said = sentences(outcome) if kind == AUTO else outcome.effect(kind)
    read_as = [str(predictions.metadata[NOTE])] if NOTE in predictions.metadata else []
    notes = [*read_as, *([left_out_note(new.left_out)] if new.left_out else [])]
    notes += [new.judged] if new.judged else []
    if repeats is not None:
        notes.append(f"{repeated(repeats)}: the repair may do harm elsewhere; {_remedy(repeats)}")
    return Repaired(outcome, calibrator, said, notes)


def _remedy(repeats: Repeats) -> str:
    option = "" if repeats.column is None else f", with --cluster {shlex.quote(repeats.column)}"
    return f"keep one row of each case{option}; if rows are independent, say so with --cluster {EVERY_ROW}"


def apply_to_file(calibrator: Calibrator, path: Path, columns: Columns, out: Path) -> list[str]:
    """Write the repaired predictions of `path` to `out`; notes on how they were read, and their worth."""
    check_new(out, SAVED, "predictions")
    predictions = read_with(path, replace(columns, like=calibrator.classes, label_optional=True))
    notes = [str(predictions.metadata[NOTE])] if NOTE in predictions.metadata else []
    with about(legible(path)):
        repaired = calibrator.transform(predictions)
    if FLATTERED in repaired.metadata:
        notes.append(FLATTERY)
    repaired = with_flattered_marked(repaired)
    metadata = {key: value for key, value in repaired.metadata.items() if key != NOTE}
    replace(repaired, metadata=metadata | {"calibrator": calibrator.title}).save(out)
    return notes
