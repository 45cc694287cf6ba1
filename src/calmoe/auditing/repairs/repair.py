"""The repair that helps, if one does: every candidate on rows new to it, the choice, and why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from calmoe.arrays import UNSAVED
from calmoe.auditing.repairs.answers import Answers, ece_by_chance
from calmoe.auditing.repairs.candidates import NOTHING, TEMPERATURE, candidates
from calmoe.auditing.repairs.choosing import Outcome, Rows, judge
from calmoe.auditing.statistics.estimates import Estimate, binned_gap, mean, normal, within
from calmoe.calibration import Calibrator, Temperature
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions
from calmoe.render.wording import decimal

FEWEST = 200  # rows: with fewer there is nothing to choose from
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


class TooFewRows(InputError):
    """There are not enough rows to choose a repair."""


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
        return TITLES.get(self.name, "the chosen repair")


@dataclass(frozen=True, kw_only=True)
class Repair:
    """Candidates, what was chosen, and what is recommended: a name, or None where nothing surely helps.

    Attributes:
        rows: The rows that were judged.
        learned: The rows that taught.
        crossed: Whether they are the same ones, by folds.
        impossible: Judged rows whose label has probability zero; they are left out of the NLL.
        candidates: What each candidate gains, by name.
        left_out: Candidates that were not tried, and why.
        choosing: What choosing gains, on rows that took no part in it.
        picked: What was chosen there.
        chosen: What all rows choose.
        recommended: `chosen` where choosing helps and surely lowers one temperature's NLL, else one
            temperature where that helps; it helps if it surely lowers the NLL, or lowers it and takes the ECE
            below where it surely was. Never what surely raises the ECE, above what chance shows on so many
            rows.
        reason: One sentence.
        temperature: The one temperature.
        temperature_status: How its fit ended.
        fitted: The recommended repair for other data, fitted on `learned` rows.
        fits: Every candidate's.

    Example:
        >>> from calmoe.worlds import miscalibrated
        >>> result = repair(miscalibrated(seed=0).sample(400, seed=0))
        >>> result.temperature > 1, "temperature" in result.candidates
        (True, True)
    """

    rows: int
    learned: int
    crossed: bool
    impossible: int
    candidates: Mapping[str, Candidate]
    left_out: Mapping[str, str]
    choosing: Candidate
    picked: tuple[str, ...]
    chosen: str
    recommended: str | None
    reason: str
    temperature: float
    temperature_status: str
    fitted: Calibrator = field(metadata=UNSAVED)  # has a file of its own
    fits: Mapping[str, Calibrator] = field(metadata=UNSAVED)

    @property
    def before(self) -> Candidate:
        """The probabilities as they are."""
        return self.candidates[NOTHING]

    @property
    def after(self) -> Candidate:
        """What the recommendation is worth; the probabilities as they are where there is none."""
        if self.recommended is None:
            return self.before
        return self.candidates[TEMPERATURE] if self.recommended == TEMPERATURE else self.choosing


def repair(
    predictions: Predictions,
    *,
    of: Of = "top",
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    inside: Callable[[float], None] = lambda share: None,
) -> Repair:
    """Try every candidate, choose, and judge the choice on rows that took no part in it.

    Args:
        predictions: What the model said, with labels.
        of: "top" judges "the predicted class is right", a number c "the label is c".
        bins: The number of equal-width bins.
        level: The certainty of intervals.
        seed: Which rows teach and which are judged.
        inside: Hears which share of the work is done.

    Returns:
        The candidates, the recommendation, and the fitted calibrator.

    Example:
        >>> from calmoe.worlds.binary import miscalibrated
        >>> result = repair(miscalibrated(seed=0, temperature=2.0).sample(2000, seed=0))
        >>> result.recommended, result.after.nll.against_nothing.high < 0
        ('temperature', True)
    """
    labels = predictions.known_labels
    log_probs = predictions.output.log_probs
    possible = int((log_probs.gather(1, labels[:, None]) > -float("inf")).sum())
    if possible < FEWEST:
        zero = " whose label has a probability above zero" * (possible < len(predictions))
        raise TooFewRows(f"there are {possible} rows{zero}: choosing a repair needs {FEWEST}")
    tried = candidates(predictions.num_classes, predictions.num_experts)
    outcome = judge(Rows(predictions.output, labels, of, bins), tried, seed, inside)
    judged = {name: [trial.by_name[name] for trial in outcome.trials] for name in tried.names}
    judged["chosen"] = [trial.chosen for trial in outcome.trials]
    measured = _measured(judged, outcome, bins, level)
    before = measured[NOTHING].ece.value.value
    worse = {
        name: measured[name].ece.value.low > max(before, ece_by_chance(judged[name][0], bins))
        for name in (TEMPERATURE, "chosen")
    }
    recommended = _recommended(outcome.choice.name, measured, worse)
    temperature = outcome.fits[TEMPERATURE].fitted
    assert isinstance(temperature, Temperature)
    return Repair(
        rows=len(outcome.rows),
        learned=outcome.learned,
        crossed=outcome.crossed,
        impossible=int(np.isinf(judged[NOTHING][0].loss).sum()),
        candidates={name: measured[name] for name in tried.names},
        left_out=dict(tried.left_out),
        choosing=measured["chosen"],
        picked=tuple(name for trial in outcome.trials for name in trial.picked),
        chosen=outcome.choice.name,
        recommended=recommended,
        reason=_reason(recommended, outcome.choice.name, measured, worse),
        temperature=temperature.temperature_,
        temperature_status=temperature.status_,
        fitted=outcome.fits[recommended or NOTHING],
        fits=outcome.fits,
    )


def _recommended(chosen: str, measured: Mapping[str, Candidate], worse: Mapping[str, bool]) -> str | None:
    temperature, choosing = measured[TEMPERATURE], measured["chosen"]
    before = measured[NOTHING].ece.value
    plain = _helps(temperature, before) and not worse[TEMPERATURE]
    if chosen not in (NOTHING, TEMPERATURE) and not worse["chosen"]:
        beyond = _surely_lowers(choosing.nll.against_temperature) or not plain
        if beyond and _helps(choosing, before):
            return chosen
    return TEMPERATURE if plain and chosen != NOTHING else None


def _helps(candidate: Candidate, before: Estimate) -> bool:
    """Whether it surely lowers the NLL; or lowers it, and the ECE to below where it surely was."""
    change = candidate.nll.against_nothing
    return _surely_lowers(change) or (change.value < 0 and candidate.ece.value.value < before.low)


def _surely_lowers(change: Estimate) -> bool:
    return change.high < 0


def _measured(
    judged: Mapping[str, list[Answers]], outcome: Outcome, bins: int, level: float
) -> dict[str, Candidate]:
    possible = np.isfinite(judged[NOTHING][0].loss)
    losses = {name: np.mean([a.loss[possible] for a in each], axis=0) for name, each in judged.items()}
    right = {name: np.mean([a.right for a in each], axis=0) for name, each in judged.items()}
    inner, outer = (
        {name: _ece(each, bins, wide) for name, each in judged.items()} for wide in (level, (1 + level) / 2)
    )
    wider = CROSSED if outcome.crossed else 1.0
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


def _reason(
    recommended: str | None, chosen: str, measured: Mapping[str, Candidate], worse: Mapping[str, bool]
) -> str:
    """What was found, in one sentence."""
    before, temperature, choosing = measured[NOTHING], measured[TEMPERATURE], measured["chosen"]
    if recommended is not None:
        after = temperature if recommended == TEMPERATURE else choosing
        gain = in_brackets(after.nll.against_nothing)
        beyond = ""
        if recommended != TEMPERATURE:
            beyond = f", {in_brackets(after.nll.against_temperature)} of it beyond one temperature"
        return (
            f"{TITLES[recommended].capitalize()} changes the NLL by {gain}{beyond}, and takes the ECE from "
            f"{_bounds(before.ece.value)} to {_bounds(after.ece.value)}, on rows that it was not fitted on."
        )
    lowers = _surely_lowers(temperature.nll.against_nothing)
    if lowers and worse[TEMPERATURE]:
        return (
            f"One temperature would change the NLL by {in_brackets(temperature.nll.against_nothing)}, but "
            f"raise the ECE from {_bounds(before.ece.value)} to {_bounds(temperature.ece.value)}."
        )
    if chosen == NOTHING:
        return "On rows that it was not fitted on, no repair does better than none."
    change = in_brackets(choosing.nll.against_nothing)
    return f"The best, {TITLES[chosen]}, changes the NLL by {change} on rows new to it: no sure gain."


def in_brackets(estimate: Estimate, decimals: int = 4) -> str:
    """A change with its interval."""
    value, low, high = (decimal(number, decimals, "+") for number in estimate[:3])
    return f"{value} [{low}, {high}]"


def _bounds(ece: Estimate) -> str:
    return f"{ece.value:.3f} [{ece.low:.3f}, {ece.high:.3f}]"
