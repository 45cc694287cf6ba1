"""Add predictions from elsewhere to a run, as a method of their own."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import torch

from calmoe.errors import InputError
from calmoe.experiments.evaluation import VALIDATION
from calmoe.experiments.record import Added
from calmoe.experiments.run import Run
from calmoe.experiments.store import RunFolder
from calmoe.files import is_name
from calmoe.methods import METHODS
from calmoe.predictions import Predictions


def add_predictions(
    path: Path,
    method: str,
    seed: int,
    validation: Predictions,
    test: Predictions,
    augmented: Predictions | None = None,
) -> Run:
    """Let predictions from elsewhere stand in a run as a method of their own; the same call replaces them.

    Their rows are the run's rows, in its order: labels must agree, and groups are the run's. `augmented` are
    predictions for validation rows under the training augmentation, which the published protocol needs.
    """
    if method in METHODS or not is_name(method):
        raise InputError(f"{method!r} cannot name predictions from elsewhere: give a new name")
    folder = RunFolder(path)
    with folder.locked():
        run = Run.open(path)
        if run.sweep is not None:
            raise InputError(f"{path} is a sweep: predictions from elsewhere join a run")
        finished = run.finished()
        if not finished:
            raise InputError(f"{path} has no finished model to compare with: run its command first")
        own = folder.predictions(finished[0].key)
        given = {"validation": validation, "validation_augmented": augmented, "test": test}
        aligned = {s: _aligned(s, p, own[s]) for s, p in given.items() if p is not None}
        key = hashlib.sha256(json.dumps(["added", method, seed]).encode()).hexdigest()[:32]
        protocols = tuple(p for p in run.record.protocols if VALIDATION[p] in aligned)
        if not protocols:
            raise InputError(
                "the run is judged under the published protocol alone: "
                "give predictions for augmented validation rows too"
            )
        folder.add_predictions(key, aligned, method=method, seed=seed)
        added = Added(method=method, seed=seed, key=key, protocols=protocols)
        others = tuple(a for a in run.record.added if (a.method, a.seed) != (method, seed))
        record = replace(run.record, added=(*others, added))
        folder.write_record(record)
        run = Run(folder, record)
        run.write_results(run.evaluate())
        return run


def class_names_of(path: Path) -> tuple[str, ...] | None:
    """What the run's classes are called, in its order; None where it has no finished model that says so."""
    run = Run.open(path)
    finished = run.finished()
    return run.folder.predictions(finished[0].key)["test"].class_names if finished else None


def _aligned(split: str, given: Predictions, own: Predictions) -> Predictions:
    """The given predictions with the run's labels and groups, if they are for the run's rows."""
    shapes = (given.output.log_probs.shape, own.output.log_probs.shape)
    if shapes[0] != shapes[1]:
        raise InputError(
            f"{split}: predictions for {shapes[0][0]:,} rows and {shapes[0][1]} classes; "
            f"the run has {shapes[1][0]:,} rows and {shapes[1][1]} classes"
        )
    if given.labels is None and given.class_names not in (None, own.class_names) and own.class_names:
        raise InputError(
            f"{split}: its classes are {', '.join(given.class_names[:6])}, the run's are "
            f"{', '.join(own.class_names[:6])}: name the run's with --classes, in the order of the "
            "probabilities"
        )
    if given.labels is not None and not torch.equal(given.labels.cpu().long(), own.known_labels.cpu().long()):
        at = int((given.labels.cpu().long() != own.known_labels.cpu().long()).nonzero()[0, 0])
        raise InputError(
            f"{split}: the label of row {at + 1} is {int(given.labels[at])}, the run's is "
            f"{int(own.known_labels[at])}: give predictions for the run's rows, in their order"
        )
    return replace(given, labels=own.labels, groups=own.groups)
