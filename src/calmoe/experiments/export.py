"""Export a run's predictions as files of their own, for `calmoe audit` and whoever else reads them.

Each model's folder appears whole, and is sealed with what it was made of: an export that was stopped goes on.
"""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from calmoe.calibration import Temperature
from calmoe.calibration.temperature_solvers import FITTED
from calmoe.errors import InputError
from calmoe.experiments.evaluation import VIEWS, fitted_temperature
from calmoe.experiments.run import Model, Run
from calmoe.experiments.sealing import MARK, read_seal, read_sealed, seal
from calmoe.experiments.store import SPLITS as STORED
from calmoe.files import inside
from calmoe.methods import METHODS, card
from calmoe.ownership import Kind, claimed
from calmoe.predictions import Predictions

SPLITS = ("validation", "test")
PREDICTIONS = [f"{split}.safetensors" for split in SPLITS]
FILES = (*PREDICTIONS, MARK)
UNFINISHED = ".unfinished"  # the folder that becomes a model's once it is whole


class Exported(NamedTuple):
    """The files that are there now, and what their reader should know."""

    files: list[Path]
    notes: list[str]


def export(
    run: Path,
    to: Path,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    scaled: bool = False,
    views: bool = False,
) -> Exported:
    """Write what the run's models say of validation and test: METHOD-SEED/validation.safetensors, and test.

    As its method reads them: MoCaE's experts have their temperatures. Only some `methods` and `seeds`, if
    given. scaled: after the temperature that validation chooses, as in the columns "+TS". views: pooled over
    them, as in the columns "+views"; each view's experts then count as experts.
    """
    opened = Run.open(run)
    record = opened.record
    if record.sweep:
        raise InputError(f"{run} is a sweep, with several models of a method and seed: export takes a run")
    asked = [(method, seed) for method in methods or record.methods for seed in seeds or record.seeds]
    nodes = {(model.method, model.seed): opened.folder.node(model.key) for model in opened.finished()}
    _check_trained(run, asked, nodes)

    facts = {name: getattr(record.spec, name) for name in ("dataset", "target", "protocol")}
    seals = {
        (method, seed): facts
        | {"method": method, "seed": seed, "scaled": scaled}
        | {"predictions": _digests(nodes[method, seed], views and not card(method).pools_views)}
        for method, seed in asked
    }
    places = {(method, seed): inside(to, f"{method}-{seed}") for method, seed in seals}
    notes = {model: _notes(places[model], seals[model]) for model in seals if os.path.lexists(places[model])}
    left = [model for model in seals if model not in notes]
    folders = [UNFINISHED, *(place.name for place in places.values())]
    with claimed(to, EXPORT, [f"{name}/{file}" for name in folders for file in FILES]):
        methods_left, seeds_left = {method for method, _ in left}, {seed for _, seed in left}
        models = opened.read_models(seeds=seeds_left, methods=methods_left, pooled=views) if left else ()
        for model in models:
            named = (model.method, model.seed)
            if named in left:
                notes[named] = _write(model, places[named], seals[named])
    files = [place / name for place in places.values() for name in PREDICTIONS]
    return Exported(files, [note for model in seals for note in notes[model]])


def _write(model: Model, place: Path, facts: dict[str, Any]) -> list[str]:
    """Write the model's folder, whole or not at all; what its reader should know."""
    metadata = {name: facts[name] for name in ("dataset", "target", "protocol", "method", "seed")}
    metadata["temperature"] = None
    notes, splits = [], {"validation": model.validation, "test": model.test}
    if facts["scaled"]:
        fitted = fitted_temperature(model.validation, facts["protocol"])
        splits = {split: rescaled(predictions, fitted) for split, predictions in splits.items()}
        metadata |= {"temperature": fitted.temperature_, "temperature_status": fitted.status_}
        if fitted.status_ not in FITTED:
            lacks = f"no optimal temperature ({fitted.status_}, T = {fitted.temperature_:.3g})"
            notes.append(f"{place.name}: validation has {lacks}")
    unfinished = inside(place.parent, UNFINISHED)
    unfinished.mkdir(exist_ok=True)
    if foreign := {*os.listdir(unfinished)} - {*FILES}:
        raise InputError(f"{unfinished} holds {min(foreign)!r}, which calmoe did not write: move it")
    for split, predictions in splits.items():
        named = replace(predictions, metadata={**predictions.metadata, **metadata, "split": split})
        named.save(unfinished / f"{split}.safetensors")
    seal(unfinished, PREDICTIONS, **facts, notes=notes)
    unfinished.rename(place)
    return notes


def _notes(place: Path, facts: dict[str, Any]) -> list[str]:
    """What was noted of a model that is there already; one of another run, or made otherwise, is refused."""
    mark = read_seal(place, PREDICTIONS, **facts)
    if mark is None:
        raise InputError(
            f"{place} is there already: damaged, of another run, with other options or by an "
            "earlier calmoe: give another --to"
        )
    return list(mark.get("notes", []))


def rescaled(predictions: Predictions, temperature: Temperature) -> Predictions:
    """The mixture after a temperature; routing and experts stay."""
    output = predictions.output
    return replace(predictions, output=output._replace(log_probs=temperature.transform(output.log_probs)))


def _check_trained(run: Path, asked: Sequence[tuple[str, int]], done: Collection[tuple[str, int]]) -> None:
    """Refuse, before anything is written, what is not trained."""
    if lacking := [f"{method} seed {seed}" for method, seed in asked if (method, seed) not in done]:
        raise InputError(
            f"{run} has not finished {', '.join(lacking)}: `calmoe run` with the same settings trains it, or "
            "choose others by --methods and --seeds"
        )


def _digests(node: Path, views: bool) -> dict[str, str]:
    """Of the predictions that the node is sealed with: of the image as it is, or pooled over views."""
    files = read_sealed(node / MARK)["files"]
    reading = VIEWS if views else ""
    if f"{reading}test.safetensors" not in files:
        raise InputError(
            "the run's models look at each row once: train with --set views=0, or leave out --views"
        )
    splits = {reading + split for split in STORED}
    return {name: digest for name, digest in files.items() if name.removesuffix(".safetensors") in splits}


def _unmarked(folder: Path) -> set[str]:
    """The files of an export by a calmoe that left no marks: then all that is there is models' folders."""
    names = os.listdir(folder)
    own = all(re.fullmatch(rf"({'|'.join(METHODS)})-\d+", name) for name in names)
    files = (f"{name}/{file}" for name in names for file in PREDICTIONS)
    return {file for file in files if own and (folder / file).is_file()}


EXPORT = Kind("export", "--to", _unmarked)
