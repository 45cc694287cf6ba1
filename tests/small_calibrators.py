"""A mixture's output with labels, and one fitted calibrator of each kind."""

import warnings
from typing import Any

import torch
from torch import Tensor

from calmoe.calibration import (
    Identity,
    MatrixScaling,
    PerExpertTemperature,
    RoutingRecalibration,
    ShiftedTemperature,
    Temperature,
    TopLabelIsotonic,
    VectorScaling,
)
from calmoe.mixture import MixtureOutput
from strategies import generator, random_output


def overconfident(rows: int = 600, classes: int = 3, experts: int = 2) -> tuple[MixtureOutput, Tensor]:
    """What experts say of so many classes, and labels that are less certain."""
    output = random_output(0, n=rows, classes=classes, experts=experts)
    truth = (0.5 * output.log_probs).softmax(1)
    return output, torch.multinomial(truth, 1, generator=generator(1)).squeeze(1)


def boosted(output: MixtureOutput, labels: Tensor, rounds: int = 20) -> RoutingRecalibration:
    """Boosting by routing, and the curve after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        temperature = Temperature().fit(output.log_probs, labels)
    return RoutingRecalibration.after([rounds], temperature, output, labels)[0].with_curve(output, labels)


def every_kind(output: MixtureOutput, labels: Tensor) -> dict[str, Any]:
    """By the name of its class."""
    logs = output.log_probs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = [
            *(each.fit(logs, labels) for each in (Identity(), Temperature(), TopLabelIsotonic())),
            *(each.fit(logs, labels) for each in (VectorScaling(), MatrixScaling())),
            ShiftedTemperature().fit(logs, labels, torch.ones(len(labels))),
            PerExpertTemperature().fit(output, labels),
            boosted(output, labels),
        ]
    return {type(each).__name__: each for each in fitted}
