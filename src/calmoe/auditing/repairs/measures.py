"""What repairs do to NLL, ECE and accuracy, on rows that they were not fitted on, with intervals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from calmoe.auditing.repairs.answers import Answers
from calmoe.auditing.repairs.candidates import NOTHING, TEMPERATURE
from calmoe.auditing.statistics.estimates import Estimate, binned_gap, mean, normal, within

CROSSED = 2**0.5
"""Rows that teach each other's judges count double in the variance of a gain, at most: standard errors pay;
not that of a temperature, whose one number hardly depends on single rows."""
TITLES = {
    "nothing": "no repair",
    "temperature": "one temperature",
    "isotonic": "isotonic regression",
    "vector": "vector scaling",
    "matrix": "matrix scaling",
    "routing": "boosting by routing",
}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A number after a repair, less the number without any, and less the number after one temperature.

    Changes of the NLL and of the accuracy are paired row by row. That of an ECE, which has no normal law near
    zero, has the ends of two intervals that hold together: it is wide.
    """

    value: Estimate
    against_nothing: Estimate
    against_temperature: Estimate


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A repair on rows that it was not fitted on; `name` is "chosen" for whatever each fold's rest chose."""

    name: str
    nll: Compared
    ece: Compared
    accuracy: Compared

    @property
    def title(self) -> str:
        return TITLES.get(self.name, "choosing, as a whole")


def measure(
    judged: Mapping[str, list[Answers]], crossed: bool, bins: int, level: float
) -> dict[str, Candidate]:
    """Each repair by name; crossed: whether rows teach and judge in turn."""
    possible = np.isfinite(judged[NOTHING][0].loss)
    losses = {name: np.mean([a.loss[possible] for a in each], axis=0) for name, each in judged.items()}
    right = {name: np.mean([a.right for a in each], axis=0) for name, each in judged.items()}
    inner, outer = (
        {name: _ece(each, bins, wide) for name, each in judged.items()} for wide in (level, (1 + level) / 2)
    )
    wider = CROSSED if crossed else 1.0
    return {
        name: Candidate(
            name=name,
            nll=_means(name, losses, level, wider, np.inf),
            ece=Compared(
                value=inner[name],
                against_nothing=_gap(name, NOTHING, inner, outer),
                against_temperature=_gap(name, TEMPERATURE, inner, outer),
            ),
            accuracy=_means(name, right, level, wider, 1.0),
        )
        for name in judged
    }


def _means(
    name: str, values: Mapping[str, np.ndarray], level: float, wider: float, highest: float
) -> Compared:
    def change(other: str) -> Estimate:
        paired = mean(values[name] - values[other], level)
        times = 1.0 if {name, other} <= {NOTHING, TEMPERATURE} else wider
        return within(normal(paired.value, times * paired.standard_error, level), -highest, highest)

    return Compared(
        value=within(mean(values[name], level), 0.0, highest),
        against_nothing=change(NOTHING),
        against_temperature=change(TEMPERATURE),
    )


def _ece(trials: list[Answers], bins: int, level: float) -> Estimate:
    """Over the trials, value and ends on average: they judge the same rows."""
    estimates = [
        binned_gap(
            answers.outcome - answers.confidence,
            answers.bins(bins),
            bins,
            level=level,
            noise=answers.confidence * (1 - answers.confidence),
        )
        for answers in trials
    ]
    return Estimate(*(float(np.mean(part)) for part in zip(*estimates, strict=True)))


def _gap(name: str, other: str, inner: Mapping[str, Estimate], outer: Mapping[str, Estimate]) -> Estimate:
    if inner[name] == inner[other]:
        return Estimate(0.0, 0.0, 0.0, 0.0)
    error = float(np.hypot(inner[name].standard_error, inner[other].standard_error))
    low, high = outer[name].low - outer[other].high, outer[name].high - outer[other].low
    return Estimate(inner[name].value - inner[other].value, low, high, error)
