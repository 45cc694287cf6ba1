"""Compute the numbers behind a run's figures: for each method and seed, from its predictions.

Compute first: `curves`. Draw second, from a list of these dicts: `calmoe.report.figure_list`. An empty bin or
group has None, never zero; a subset that the data lack has no key at all.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import as_numpy, plain
from calmoe.calibration import CalibrationWarning, Temperature, frontier
from calmoe.defaults import BINS
from calmoe.metrics import Reliability, accuracy, by_group, ece, reliability
from calmoe.metrics.groups import column_groups
from calmoe.metrics.routing import expert_variance, routing_entropy
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions

Curves: TypeAlias = dict[str, Any]

TEMPERATURES = np.array([float(f"{t:.6g}") for t in np.geomspace(0.25, 8.0, 101)])  # 1 is one of them
HISTOGRAM_BINS = 20
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
VIEWS = {"raw": "no temperature", "scaled": "after the temperature that validation chose"}
ECES = {"raw": "ECE", "scaled": "ECE+TS"}  # what the ECE of each view is called


def curves(
    method: str,
    validation: Predictions,
    test: Predictions,
    hard: str | None = None,
    history: Sequence[Mapping[str, float]] = (),
) -> Curves:
    """Everything that the figures show about one trained model, raw and after its temperature.

    hard names the boolean group column of the hard subset; "easy" is the column of that name, else the rest.
    Validation chooses the temperature, fitted to convergence whatever the protocol; the test labels never do.

    >>> probs, labels = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]), np.array([0, 0, 1, 1])
    >>> predictions = Predictions.from_probs(probs, labels, groups={"odd": [False, False, False, True]})
    >>> numbers = curves("mine", predictions, predictions, hard="odd")
    >>> numbers["rows"], round(numbers["temperature"], 2), numbers["raw"]["groups"]["odd"]["odd"]["accuracy"]
    ({'all': 4, 'easy': 3, 'hard': 1}, 0.53, 0.0)
    """
    parts = _parts(test, hard)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # `temperature_status` says it
        temperature = Temperature().fit(validation.output.log_probs, validation.known_labels)
        swept = _frontier(validation, test, parts)
    log_probs = test.output.log_probs
    return plain(
        {
            "method": method,
            "experts": test.num_experts,
            "rows": {name: int(mask.sum()) for name, mask in parts.items()},
            "validation_rows": len(validation),
            "temperature": temperature.temperature_,
            "temperature_status": temperature.status_,
            "raw": _view(log_probs.exp(), test, parts),
            "scaled": _view(temperature.transform(log_probs).exp(), test, parts),
            "frontier": swept,
            "routing": _routing(test.output, parts),
            "history": _tilt(history),
        }
    )


def _parts(test: Predictions, hard: str | None) -> dict[str, Tensor]:
    """Masks of all rows, of the easy and of the hard ones; a part without rows is left out."""
    parts = {"all": torch.ones(len(test), dtype=torch.bool)}
    if hard is not None:
        mask = test.mask(hard)
        has_easy = hard != "easy" and "easy" in test.groups and test.groups["easy"].dtype == bool
        parts |= {"easy": test.mask("easy") if has_easy else ~mask, "hard": mask}
    return {name: mask for name, mask in parts.items() if mask.any()}


def _view(probs: Tensor, test: Predictions, parts: dict[str, Tensor]) -> dict[str, Any]:
    """What probabilities [N, C] give: reliability, histograms of the confidence, and groups."""
    labels = test.known_labels
    return {
        "reliability": {
            name: _table(reliability(probs[mask], labels[mask], bins=BINS))
            for name, mask in parts.items()
            if name != "easy"
        },
        "histogram": {name: _histogram(probs[mask], labels[mask]) for name, mask in parts.items()},
        "groups": _groups(probs, test),
    }


def _table(table: Reliability) -> dict[str, Any]:
    return {
        "count": table.count,
        "share": table.share,
        "confidence": table.confidence,
        "accuracy": table.accuracy,
        "standard_error": table.standard_error,
        "ece": table.ece,
    }


def _histogram(probs: Tensor, labels: Tensor) -> dict[str, Any]:
    return {
        "count": reliability(probs, labels, bins=HISTOGRAM_BINS).count,
        "confidence": _confidence(probs),
        "accuracy": accuracy(probs, labels),
    }


def _confidence(probs: Tensor, labels: Tensor | None = None, weights: Tensor | None = None) -> float:
    """Mean confidence, with the signature of a metric, for `by_group`."""
    return float(probs.amax(dim=1).double().mean())


def _groups(probs: Tensor, test: Predictions) -> dict[str, Any]:
    """[column][group]: count, accuracy, mean confidence and ECE; columns of measurements are no groups."""
    groups: dict[str, Any] = {}
    for column, masks in column_groups(test.groups, most_words=math.inf).items():
        measured = {
            name: by_group(metric, probs, test.known_labels, masks)
            for name, metric in (("accuracy", accuracy), ("confidence", _confidence), ("ece", ece))
        }
        groups[column] = {
            group: {"count": count, **{name: result.values[group] for name, result in measured.items()}}
            for group, count in measured["ece"].counts.items()
        }
    return groups


def _frontier(validation: Predictions, test: Predictions, parts: dict[str, Tensor]) -> dict[str, Any]:
    """The ECE of all test rows and of the hard ones, temperature by temperature.

    Without a hard subset the test split, such as a new domain, takes its place, and validation, from the
    domains of training, that of all rows. "of" names the two.
    """
    sweep = frontier(validation, test, parts.get("hard", parts["all"]), TEMPERATURES)
    all_rows, names = sweep.ece, ("ECE", "hard ECE")
    if "hard" not in parts:
        everything = np.ones(len(validation), dtype=bool)
        all_rows = frontier(validation, validation, everything, TEMPERATURES).ece
        names = ("validation ECE", "test ECE")
    return {
        "temperature": sweep.temperatures,
        "ece": all_rows,
        "hard_ece": sweep.subset_ece,
        "of": list(names),
        "chosen": sweep.chosen,
    }


def _routing(output: MixtureOutput, parts: dict[str, Tensor]) -> dict[str, Any] | None:
    """Entropy of the routing over log K, and disagreement Σ r_k ‖f_k − f‖²; one expert has neither."""
    experts = output.log_routing.shape[1]
    if experts == 1:
        return None
    routing, answers = (as_numpy(part.double()) for part in (output.routing, output.expert_probs))
    columns = {"entropy": routing_entropy(routing), "disagreement": expert_variance(routing, answers)}
    return {
        column: {
            name: {
                "mean": float(values[mask.numpy()].mean()),
                "quantiles": np.quantile(values[mask.numpy()], QUANTILES),
            }
            for name, mask in parts.items()
        }
        for column, values in columns.items()
    }


def _tilt(history: Sequence[Mapping[str, float]]) -> dict[str, Any] | None:
    """Share of negative weights and Γ_eff, epoch by epoch; None where training did not tilt."""
    tilted = [entry for entry in history if "gamma_eff" in entry]
    columns = ("epoch", "negative_share", "gamma_eff")
    return {column: [entry.get(column) for entry in tilted] for column in columns} if tilted else None
