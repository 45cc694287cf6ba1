"""The candidates for a repair, simplest first, and their fits."""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from calmoe.calibration import (
    CalibrationWarning,
    Calibrator,
    Identity,
    MatrixScaling,
    RoutingRecalibration,
    Temperature,
    TopLabelIsotonic,
    VectorScaling,
)
from calmoe.calibration.log_linear import Labelled, fit_diagonal, fit_matrices, log_distribution
from calmoe.calibration.matrix_scaling import MOST_CLASSES, STRENGTHS
from calmoe.metrics.scores import possible
from calmoe.mixture import MixtureOutput

NOTHING, TEMPERATURE, ISOTONIC, VECTOR, MATRIX, ROUTING = (
    *("nothing", "temperature", "isotonic"),
    *("vector", "matrix", "routing"),
)
NAMES = (NOTHING, TEMPERATURE, ISOTONIC, VECTOR, MATRIX, ROUTING)
"""Simplest first."""

ROUNDS = (20, 60)  # of boosting


class Variant(NamedTuple):
    """A candidate by name, with the setting that cross-validation has to choose as well."""

    name: str
    setting: float = 0.0  # the strength of a matrix, the rounds of boosting
    curve: bool = False  # whether a rising curve follows the boosting


class Candidates(NamedTuple):
    """Those that are tried, simplest first, and why others are not."""

    variants: tuple[Variant, ...]
    left_out: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        return [name for name in NAMES if any(variant.name == name for variant in self.variants)]


def candidates(classes: int, experts: int) -> Candidates:
    """Those that so many classes and experts allow.

    >>> candidates(classes=10, experts=1).names
    ['nothing', 'temperature', 'isotonic', 'vector', 'matrix']
    """
    variants = [Variant(name) for name in (NOTHING, TEMPERATURE, ISOTONIC, VECTOR)]
    left_out = {}
    if classes <= MOST_CLASSES:
        variants += [Variant(MATRIX, strength) for strength in STRENGTHS]
    else:
        left_out[MATRIX] = f"there are {classes:,} classes, more than {MOST_CLASSES}"
    if experts > 1:
        variants += [Variant(ROUTING, count, curve) for count in ROUNDS for curve in (False, True)]
    else:
        left_out[ROUTING] = "there is one expert"
    return Candidates(tuple(variants), left_out)


def fit(variants: Sequence[Variant], output: MixtureOutput, labels: Tensor) -> dict[Variant, Calibrator]:
    """Each variant fitted on these rows, all on top of one temperature.

    Where the predicted class is always right, or always wrong, boosting by routing stays at the temperature.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        temperature = Temperature().fit(output.log_probs, labels)
    kept = possible(output.log_probs, labels)
    if not kept.all():
        output, labels = output.take(kept), labels[kept]
    logs = log_distribution(output.log_probs)
    rows = Labelled(logs.numpy(), labels.numpy(), 1 / temperature.temperature_)
    fits: dict[Variant, Calibrator] = {}
    for variant in variants:
        if variant.name == NOTHING:
            fits[variant] = Calibrator(Identity())
        elif variant.name == ISOTONIC:
            fits[variant] = Calibrator(TopLabelIsotonic().fit_on(temperature, logs, labels))
        elif variant.name == VECTOR:
            fits[variant] = Calibrator(VectorScaling().take(fit_diagonal(rows)))
        else:
            fits[variant] = Calibrator(temperature)
    matrices = [variant for variant in variants if variant.name == MATRIX]
    strengths = [variant.setting for variant in matrices]
    for variant, weights in zip(matrices, fit_matrices(rows, strengths) if matrices else (), strict=True):
        fits[variant] = Calibrator(MatrixScaling().take(weights, variant.setting))
    right = temperature.transform(logs).argmax(dim=1) == labels
    boosted = [variant for variant in variants if variant.name == ROUTING]
    if boosted and right.any() and not right.all():
        counts = [int(variant.setting) for variant in boosted]
        steps = RoutingRecalibration.after(counts, temperature, output, labels)
        for variant, one in zip(boosted, steps, strict=True):
            fits[variant] = Calibrator(one.with_curve(output, labels) if variant.curve else one)
    return fits
