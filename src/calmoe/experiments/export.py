"""A run's predictions as files of their own, for `calmoe audit` and whoever else reads them."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from calmoe.calibration import CalibrationWarning, Temperature
from calmoe.errors import InputError
from calmoe.experiments.curves import Model, models
from calmoe.experiments.engine import expected
from calmoe.experiments.evaluation import SOLVER
from calmoe.experiments.records import record_of
from calmoe.experiments.store import RunFolder
from calmoe.predictions import Predictions
from calmoe.report.temperatures import FITTED


class Exported(NamedTuple):
    """The files that were written, and what their reader should know."""

    files: list[Path]
    notes: list[str]


def export(
    run: Path,
    to: Path,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    scaled: bool = False,
) -> Exported:
    """Write what the run's models say of validation and test: METHOD-SEED/validation.safetensors, and test.

    As its method reads them: MoCaE's experts have their temperatures. Only some `methods` and `seeds`, if
    given. scaled: after the temperature that validation chooses, as in the columns "+TS".
    """
    record = record_of(run)
    spec, written = record["spec"], Exported([], [])
    if record.get("sweep"):
        raise InputError(f"{run} is a sweep, with several models of a method and seed: export takes a run")
    asked = [(method, seed) for method in methods or spec["methods"] for seed in seeds or spec["seeds"]]
    _check(run, to, asked, {(m, s) for _, m, s, _, done in expected(RunFolder(run), record) if done})
    facts = {name: spec.get(name, "") for name in ("dataset", "target", "protocol")}
    for model in models(run, seeds=seeds, methods=methods):
        folder = to / f"{model.method}-{model.seed}"
        folder.mkdir(parents=True)
        told = {**facts, "method": model.method, "seed": model.seed, "temperature": None}
        splits = {"validation": model.validation, "test": model.test}
        if scaled:
            fitted = _fitted(model, facts["protocol"])
            splits = {split: rescaled(predictions, fitted) for split, predictions in splits.items()}
            told |= {"temperature": fitted.temperature_, "temperature_status": fitted.status_}
            if fitted.status_ not in FITTED:
                found = f"no optimal temperature ({fitted.status_}, T = {fitted.temperature_:.3g})"
                written.notes.append(f"{folder.name}: validation has {found}")
        for split, predictions in splits.items():
            path = folder / f"{split}.safetensors"
            replace(predictions, metadata={**predictions.metadata, **told, "split": split}).save(path)
            written.files.append(path)
    return written


def rescaled(predictions: Predictions, temperature: Temperature) -> Predictions:
    """The mixture after a temperature; routing and experts stay."""
    output = predictions.output
    return replace(predictions, output=output._replace(log_probs=temperature.transform(output.log_probs)))


def _check(run: Path, to: Path, asked: Sequence[tuple[str, int]], done: set[tuple[str, int]]) -> None:
    """Refuse, before anything is written, what is not trained and what would be overwritten."""
    if lacking := [f"{method} seed {seed}" for method, seed in asked if (method, seed) not in done]:
        raise InputError(
            f"{run} has not finished {', '.join(lacking)}: `calmoe run` with the same settings trains it, or "
            "choose others by --methods and --seeds"
        )
    if to.exists() and not to.is_dir():
        raise InputError(f"--to must be a folder, and {to} is a file")
    if there := [folder for method, seed in asked if (folder := to / f"{method}-{seed}").exists()]:
        raise InputError(f"{there[0]} is there already: give another --to")


def _fitted(model: Model, protocol: str) -> Temperature:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the status is told
        validation = model.validation
        return Temperature(SOLVER[protocol]).fit(validation.output.log_probs, validation.known_labels)
