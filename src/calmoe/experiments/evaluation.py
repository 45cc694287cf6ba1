"""From predictions to a row of results: temperatures are fitted on validation, scores come from test."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from calmoe.calibration import CalibrationWarning, PerExpertTemperature, Temperature
from calmoe.methods import card
from calmoe.metrics import accuracy, adaptive_ece, brier_score, by_group, ece, nll, smooth_ece
from calmoe.metrics.groups import group_masks
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions

EVALUATION_VERSION = 5  # raise it when rows change: sealed results are then computed anew
VIEWS = "views_"
READINGS = (VIEWS, "last_", "last_views_")  # pooled over views; of the last weights, not the average
VALIDATION = {"corrected": "validation", "published": "validation_augmented"}
SOLVER = {"corrected": "exact", "published": "published"}
LEAST_ROWS = 30  # of a group: a smaller one's ECE is mostly noise


def evaluate(
    method: str, seed: int, protocol: str, predictions: dict[str, Predictions], hard: str | None = None
) -> dict[str, Any]:
    """One row: metrics on test, its hard subset and its worst groups, raw and after a temperature ("_ts").

    `validation_nll_ts` is the one number of validation rows: a sweep chooses by it.
    """
    row: dict[str, Any] = {"method": method, "seed": seed, "protocol": protocol}
    validation, test, temperatures = read(method, protocol, predictions)
    if temperatures is not None:
        row["temperatures"] = temperatures
    output, temperature = test.output, fitted_temperature(validation, protocol)
    row |= {"temperature": temperature.temperature_, "temperature_status": temperature.status_}
    row["validation_nll_ts"] = validation_nll_ts(method, protocol, predictions)
    row |= _scores(output, temperature, test.known_labels, "")
    mask = test.mask(hard) if hard else None
    row |= {"n": len(test), "n_hard": int(mask.sum()) if mask is not None else 0}
    if row["n_hard"]:
        part = MixtureOutput(*(values[mask] for values in output))
        row |= _scores(part, temperature, test.known_labels[mask], "hard_")
    else:
        row |= {f"hard_{name}": None for name in _scores(output, temperature, test.known_labels, "")}
    row |= _worst_groups(output, temperature, test, hard)
    for reading in READINGS:
        if f"{reading}test" in predictions:
            row |= _read_otherwise(protocol, reading, *read(method, protocol, predictions, reading)[:2], mask)
    return row


def read(
    method: str, protocol: str, predictions: Mapping[str, Predictions], reading: str = ""
) -> tuple[Predictions, Predictions, list[float] | None]:
    """The rows that a temperature is fitted on and those that are judged, both after the method's post-hoc
    step; and the experts' temperatures if it fits any.

    reading: "" for the image as it is and the weights that the run keeps, or one of `READINGS`. Only the
    former has rows under the training augmentation, on which the published protocol fits.
    """
    augmented = not reading and not card(method).pools_views
    split = VALIDATION[protocol] if augmented else "validation"
    validation, test = predictions[f"{reading}{split}"], predictions[f"{reading}test"]
    views = test.num_experts // predictions["test"].num_experts
    return as_method_reads(method, validation, test, protocol, views)


def used_reading(predictions: Mapping[str, Predictions]) -> str:
    """How a run's model answers when it is used: pooled over views where it has several."""
    return VIEWS if f"{VIEWS}test" in predictions else ""


def validation_nll_ts(method: str, protocol: str, predictions: Mapping[str, Predictions]) -> float | None:
    """The row's `validation_nll_ts` alone, of the model as it is used; None where it is infinite.

    The temperature is fitted on these very rows. One number flatters all models alike; without it, a sweep
    would choose among errors that a temperature removes.
    """
    validation, *_ = read(method, protocol, predictions, used_reading(predictions))
    temperature = fitted_temperature(validation, protocol)
    return _finite(nll(temperature.transform(validation.output.log_probs), validation.known_labels))


def _read_otherwise(
    protocol: str, reading: str, validation: Predictions, test: Predictions, hard: Any
) -> dict[str, Any]:
    """The scores of pooled views, or of the last weights, after a temperature of their own."""
    temperature = fitted_temperature(validation, protocol)
    row: dict[str, Any] = {f"{reading}temperature": temperature.temperature_}
    row |= _scores(test.output, temperature, test.known_labels, reading)
    if hard is not None and hard.any():
        part = MixtureOutput(*(values[hard] for values in test.output))
        row |= _scores(part, temperature, test.known_labels[hard], f"{reading}hard_")
    return row


def fitted_temperature(validation: Predictions, protocol: str) -> Temperature:
    """The temperature that validation chooses, as the protocol solves for it; `status_` says how it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the status says it
        return Temperature(SOLVER[protocol]).fit(validation.output.log_probs, validation.known_labels)


def as_method_reads(
    method: str, validation: Predictions, test: Predictions, protocol: str, views: int = 1
) -> tuple[Predictions, Predictions, list[float] | None]:
    """Both files after the method's post-hoc step, and the experts' temperatures if it fits any.

    views: how many the files pool. An expert has one temperature in all of them, fitted on every view of
    every row.
    """
    if card(method).post_hoc != "per_expert_temperature":
        return validation, test, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # its clamp is part of the method
        experts = PerExpertTemperature(solver=SOLVER[protocol])
        seen = MixtureOutput.cat(validation.output.views(views))
        experts.fit(seen, validation.known_labels.repeat(views))

    def calibrated(predictions: Predictions) -> Predictions:
        each = [experts.transform(view) for view in predictions.output.views(views)]
        return replace(predictions, output=MixtureOutput.pool(each))

    return calibrated(validation), calibrated(test), experts.temperatures_


def _scores(output: MixtureOutput, temperature: Temperature, labels: Tensor, prefix: str) -> dict[str, Any]:
    scaled = temperature.transform(output.log_probs)
    scores = {"accuracy": accuracy(output.probs, labels)}
    for suffix, log_probs in (("", output.log_probs), ("_ts", scaled)):
        probs = log_probs.exp()
        scores |= {
            f"ece{suffix}": ece(probs, labels),
            f"nll{suffix}": nll(log_probs, labels),
            f"brier{suffix}": brier_score(probs, labels),
            f"smooth_ece{suffix}": smooth_ece(probs, labels),
            f"adaptive_ece{suffix}": adaptive_ece(probs, labels),
        }
    return {prefix + name: _finite(value) for name, value in scores.items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _worst_groups(
    output: MixtureOutput, temperature: Temperature, test: Predictions, hard: str | None
) -> dict[str, Any]:
    """The lowest accuracy and the largest ECE of any group; `worst_group` says which, metric by metric."""
    masks, scaled = _groups(test, hard), temperature.transform(output.log_probs)
    judged = {"accuracy": (accuracy, output.probs), "ece": (ece, output.probs), "ece_ts": (ece, scaled.exp())}
    scores = {
        name: by_group(metric, probs, test.known_labels, masks) for name, (metric, probs) in judged.items()
    }
    return {
        **{f"worst_group_{name}": result.worst if masks else None for name, result in scores.items()},
        "worst_group": {name: result.worst_group for name, result in scores.items()} if masks else None,
    }


def _groups(test: Predictions, hard: str | None) -> dict[str, np.ndarray]:
    """The groups' masks, but for the small ones.

    The hard rows have metrics of their own and the easy ones are most of the rest: neither is a group here.
    In CIFAR-10H and the digits the groups are the levels of agreement.
    """
    columns = {name: values for name, values in test.groups.items() if name not in (hard, "easy")}
    return {name: mask for name, mask in group_masks(columns).items() if mask.sum() >= LEAST_ROWS}
