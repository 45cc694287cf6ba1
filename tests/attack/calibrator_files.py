"""Attack: fitted calibrators."""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attack.damage import damaged, damaged_json
from attack.figures import Progress, Tally
from attack.running import Target, Wrong
from attack.running import attack as run_attack
from attack.watching import unchanged
from calmoe.calibration import (
    MatrixScaling,
    PerExpertTemperature,
    RoutingRecalibration,
    ShiftedTemperature,
    Temperature,
    TopLabelIsotonic,
    VectorScaling,
)
from calmoe.errors import InputError
from small_calibrators import every_kind, overconfident

LARGEST = 1.7e308


def _calibrators(folder: Path) -> dict[str, Any]:
    """By kind: what `save` writes."""
    output, labels = overconfident(rows=400)
    fitted = every_kind(output, labels)
    repair = RoutingRecalibration(bins=3, rounds=20).fit(output, labels).with_curve(output, labels)
    repair.coefficients_ = np.linspace(-1, 1, repair.coefficients_.size).reshape(repair.coefficients_.shape)
    repair.status_, repair.rounds_, repair.gain_, repair.gain_error_ = "repaired", 20, 0.01, 0.001
    fitted["RoutingRecalibration"] = repair
    for name, calibrator in fitted.items():
        calibrator.save(folder / f"{name}.json")
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in fitted}


def attempt_calibrator(
    kind: Any, fields: dict[str, Callable[[Any], Any]], random: Random, seeds: Any, folder: Path
) -> None:
    """Fitted values are the file's, of the right types, and transform gives probabilities."""
    path, saved = folder / "calibrator.json", seeds[kind.__name__]
    whole = json.dumps(saved, indent=2).encode()
    path.write_bytes(damaged_json(saved, random) if random.random() < 0.7 else damaged(whole, random))
    with unchanged(folder):
        calibrator = kind.load(path)
    given = json.loads(path.read_bytes())
    for field, loaded in fields.items():
        value = given.get(field)  # files of earlier versions lack some
        if not _same(loaded(calibrator), value):
            raise Wrong(f"{field} is not the file's: {loaded(calibrator)!a}, not {value!a}"[:300])
        if ("status" in field or field == "message") and not _words(value):
            raise Wrong(f"{field} is no text: {value!a}"[:300])
    output, _ = overconfident(rows=5)
    try:
        of_experts = kind in (PerExpertTemperature, RoutingRecalibration)
        result = calibrator.transform(output if of_experts else output.log_probs)
    except InputError:
        return  # fitted on another number of experts or classes
    probs = (result if isinstance(result, Tensor) else result.log_probs).exp().sum(1)
    if not torch.allclose(probs, torch.ones_like(probs), atol=1e-3):
        raise Wrong(f"transform gives no probabilities: they sum to {probs.tolist()}")


def _same(loaded: Any, given: Any) -> bool:
    if isinstance(given, list):
        return isinstance(loaded, list) and len(given) == len(loaded) and all(map(_same, loaded, given))
    if isinstance(given, bool | str) or isinstance(loaded, bool | str):
        return type(given) is type(loaded) and given == loaded
    if given is None:  # unknown, or no gain
        return loaded is None or (isinstance(loaded, list) and all(math.isnan(value) for value in loaded))
    return isinstance(given, int | float) and abs(given) <= LARGEST and float(given) == float(loaded)


def _words(value: Any) -> bool:
    return all(isinstance(word, str) for word in (value if isinstance(value, list) else [value]))


ONE = {
    "solver": lambda c: c.solver,
    "temperature": lambda c: c.temperature_,
    "status": lambda c: c.status_,
}
SHIFTED = {**ONE, "effective": lambda c: c.effective_}
EACH = {
    "weighted": lambda c: c.weighted,
    "clamp": lambda c: list(c.clamp),
    "solver": lambda c: c.solver,
    "temperatures": lambda c: c.temperatures_,
    "statuses": lambda c: c.statuses_,
}
ROUTING = {
    "bins": lambda c: c.bins,
    "rate": lambda c: c.rate,
    "rounds": lambda c: c.rounds,
    "seed": lambda c: c.seed,
    "temperature": lambda c: c.temperature_.temperature_,
    "temperature_status": lambda c: c.temperature_.status_,
    "coefficients": lambda c: c.coefficients_.tolist(),
    "steps": lambda c: c.rounds_,
    "status": lambda c: c.status_,
    "message": lambda c: c.message_,
    "gain": lambda c: [c.gain_, c.gain_error_],
}


VECTOR = {"weights": lambda c: c.weights_.tolist(), "intercepts": lambda c: c.intercepts_.tolist()}
MATRIX = {
    "matrix": lambda c: c.matrix_.tolist(),
    "intercepts": lambda c: c.intercepts_.tolist(),
    "strength": lambda c: c.strength_,
}
CURVE = {
    "temperature": lambda c: c.temperature_.temperature_,
    "temperature_status": lambda c: c.temperature_.status_,
    "confidences": lambda c: c.confidences_.tolist(),
    "probabilities": lambda c: c.probabilities_.tolist(),
}


def _calibrator_target(kind: Any, fields: dict[str, Any], cases: int) -> Target:
    return Target(kind.__name__, cases, _calibrators, partial(attempt_calibrator, kind, fields))


TARGETS = [
    _calibrator_target(Temperature, ONE, 2000),
    _calibrator_target(ShiftedTemperature, SHIFTED, 1000),
    _calibrator_target(PerExpertTemperature, EACH, 3000),
    _calibrator_target(RoutingRecalibration, ROUTING, 4000),
    _calibrator_target(VectorScaling, VECTOR, 2000),
    _calibrator_target(MatrixScaling, MATRIX, 2000),
    _calibrator_target(TopLabelIsotonic, CURVE, 2000),
]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Every kind of them."""
    return run_attack(TARGETS, scale, seed, progress)
