"""The numbers behind a run's figures: for each method and seed, from predictions to what JSON can hold.

Compute first: `curves`. Draw second, from a list of these dicts: `calmoe.report.figure_list`. An empty bin or
group has None, never zero; a subset that the data lack has no key at all.
"""

import gzip
import io
import json
import math
import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import as_numpy, plain
from calmoe.calibration import CalibrationWarning, Temperature, frontier
from calmoe.defaults import BINS
from calmoe.errors import InputError, about
from calmoe.metrics import Reliability, accuracy, by_group, ece, reliability
from calmoe.metrics.groups import column_groups
from calmoe.metrics.routing import expert_variance, routing_entropy
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions
from calmoe.report.curve_checks import check_curves
from calmoe.validation import parse_json

Curves: TypeAlias = dict[str, Any]

TEMPERATURES = np.array([float(f"{t:.6g}") for t in np.geomspace(0.25, 8.0, 101)])  # 1 is one of them
HISTOGRAM_BINS = 20
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LARGE = 1_000_000  # bytes: a larger file is compressed
MOST_BYTES = 256 * 2**20  # of a file of curves
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


def reachable(swept: Mapping[str, Any], budgets: Sequence[float] | np.ndarray) -> np.ndarray:
    """The lowest hard ECE of any temperature whose ECE is within each budget; NaN where none is.

    `swept` is `curves(...)["frontier"]`; between its temperatures both errors are taken as linear.

    >>> reachable({"ece": [0.1, 0.0, 0.2], "hard_ece": [0.3, 0.2, 0.1]}, [0.1, 0.2]).round(3)
    array([0.15, 0.1 ])
    """
    known = np.arange(len(swept["ece"]))
    fine = np.linspace(0, known[-1], 50 * known[-1] + 1)
    total, hard = (np.interp(fine, known, swept[name]) for name in ("ece", "hard_ece"))
    within = np.where(total <= np.asarray(budgets)[:, None] + 1e-12, hard, np.inf).min(axis=1)
    return np.where(np.isfinite(within), within, np.nan)


def curves_file(all_curves: Sequence[Curves]) -> tuple[str, bytes]:
    """The name and content of `curves.json`: numbers to six significant digits, a line for each dict.

    A large file is compressed and named `curves.json.gz`.
    """
    lines = ",\n".join(json.dumps(_rounded(c), allow_nan=False, separators=(",", ":")) for c in all_curves)
    data = f"[\n{lines}\n]\n".encode()
    if len(data) > LARGE:
        return "curves.json.gz", gzip.compress(data, mtime=0)
    return "curves.json", data


def read_curves(path: Path) -> list[Curves]:
    """The curves in such a file; they are all that the figures need."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: not a readable file of curves ({error})") from None
    with about(path):
        return parse_curves(path.name, data)


def parse_curves(name: str, data: bytes) -> list[Curves]:
    """The curves that `curves_file` wrote."""
    try:
        if name.endswith(".gz"):
            with gzip.open(io.BytesIO(data)) as stream:
                data = stream.read(MOST_BYTES + 1)
        all_curves = parse_json(data, MOST_BYTES)
    except (OSError, EOFError, zlib.error, InputError) as error:
        raise InputError(f"not a readable file of curves ({error})") from None
    if not isinstance(all_curves, list):
        raise InputError("not a file of curves (expected a list, a dict for each method and seed)")
    return check_curves(all_curves, HISTOGRAM_BINS, len(QUANTILES))


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


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
