"""A run's predictions as files of their own, for `calmoe audit` and whoever else reads them."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from calmoe.calibration import CalibrationWarning, Temperature
from calmoe.errors import InputError
from calmoe.experiments.curves import Model, models
from calmoe.experiments.engine import expected
from calmoe.experiments.evaluation import SOLVER
from calmoe.experiments.records import record_of
from calmoe.experiments.store import RunFolder
from calmoe.predictions import Predictions


def export(
    run: Path,
    to: Path,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    scaled: bool = False,
) -> list[Path]:
    """Write what the run's models say of validation and test: METHOD-SEED/validation.safetensors, and test.

    As its method reads them: MoCaE's experts have their temperatures. Only some `methods` and `seeds`, if
    given. scaled: after the temperature that validation chooses, as in the columns "+TS".
    """
    record = record_of(run)
    if record.get("sweep"):
        raise InputError(f"{run} is a sweep, with several models of a method and seed: export takes a run")
    done = {(method, seed) for _, method, seed, _, done in expected(RunFolder(run), record) if done}
    asked = {(m, s) for m in methods or {m for m, _ in done} for s in seeds or {s for _, s in done}}
    lacking = sorted(asked - done) if methods or seeds else []
    if lacking or not done:
        named = ", ".join(f"{method} seed {seed}" for method, seed in lacking) or "any method"
        raise InputError(f"{run} has not finished {named}: `calmoe run` with the same settings trains it")
    written = []
    for model in models(run, seeds=seeds):
        if methods and model.method not in methods:
            continue
        folder = to / f"{model.method}-{model.seed}"
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"dataset": record["spec"]["dataset"], "target": record["spec"].get("target", "")}
        facts |= {"method": model.method, "seed": model.seed, "protocol": record["spec"]["protocol"]}
        for split, predictions in _splits(model, facts["protocol"], scaled).items():
            told = {**predictions.metadata, **facts, "split": split, "scaled": scaled}
            path = folder / f"{split}.safetensors"
            replace(predictions, metadata=told).save(path)
            written.append(path)
    return written


def rescaled(predictions: Predictions, temperature: Temperature) -> Predictions:
    """The mixture after a temperature; routing and experts stay."""
    output = predictions.output
    return replace(predictions, output=output._replace(log_probs=temperature.transform(output.log_probs)))


def _splits(model: Model, protocol: str, scaled: bool) -> dict[str, Predictions]:
    splits = {"validation": model.validation, "test": model.test}
    if not scaled:
        return splits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # results.jsonl has its status
        fitted = Temperature(SOLVER[protocol]).fit(
            model.validation.output.log_probs, model.validation.known_labels
        )
    return {split: rescaled(predictions, fitted) for split, predictions in splits.items()}
