"""The repair that helps, if one does: every candidate on rows new to it, the choice, and why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from calmoe.arrays import UNSAVED
from calmoe.auditing.repairs.candidates import NOTHING, TEMPERATURE, candidates
from calmoe.auditing.repairs.choosing import RULE, SIMPLE, Rows, Rule, judge
from calmoe.auditing.repairs.measures import TITLES, Candidate, Compared, measure
from calmoe.auditing.repairs.words import effect, reason
from calmoe.auditing.statistics.estimates import Estimate, normal
from calmoe.calibration import Calibrator, Temperature
from calmoe.calibration.seen_rows import SeenRows
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError
from calmoe.metrics.checks import Of, check_event
from calmoe.metrics.scores import possible
from calmoe.new_rows import new_rows
from calmoe.predictions import Predictions

__all__ = ["FEWEST", "TITLES", "Candidate", "Compared", "Repair", "TooFewRows", "repair"]

FEWEST = 200  # rows: with fewer there is nothing to choose from
FEWEST_WRONG = 20  # of them, or expected: where errors are rare, rows not seen decide what a repair is worth


class TooFewRows(InputError):
    """There are not enough rows to choose a repair."""


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
            temperature where that helps. A repair helps if it surely lowers the NLL (one temperature: by more
            than a standard error), or lowers it and takes the ECE below where it surely was. Never what
            raises the ECE by more than `Rule.rise`. Where neither is taken, the simplest of the others stands
            in that surely lowers one temperature's NLL, or helps as much where only the ECE stands against a
            temperature; the test, not the interval shown, pays for all that could have stood in.
        worse: Candidates that raise the ECE by more than that.
        reason: One sentence.
        temperature: The one temperature.
        temperature_status: How its fit ended.
        fitted: The recommended repair for other data, fitted on `learned` rows.
        fits: Every candidate's.

    Example:
        >>> from calmoe.worlds import miscalibrated
        >>> result = repair(miscalibrated(seed=0).sample(250, seed=0))
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
    worse: tuple[str, ...]
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
        simple = self.recommended == TEMPERATURE or self.recommended != self.chosen
        return self.candidates[self.recommended] if simple else self.choosing

    def effect(self, name: str) -> str:
        """What the candidate of this name does, and what is recommended instead of it, in a sentence each."""
        sentences = [effect(name, self.before, self.candidates[name])]
        if name in self.worse:
            sentences.append("It raises the ECE.")
        if name != (self.recommended or NOTHING):
            sentences.append(f"Recommended is {TITLES[self.recommended or NOTHING]}.")
        return " ".join(sentences)


def repair(
    predictions: Predictions,
    *,
    of: Of = "top",
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    inside: Callable[[float], None] = lambda share: None,
    rule: Rule = RULE,
) -> Repair:
    """Try every candidate, choose, and judge the choice on rows that took no part in it.

    Rows whose group column `taught_the_model` is true are left out.

    Args:
        predictions: What the model said, with labels.
        of: The event whose ECE is guarded: "top", or the number of a class. NLLs are of all classes.
        bins: The number of equal-width bins.
        level: The certainty of intervals.
        seed: Which rows teach and which are judged.
        rule: What is chosen and recommended.
        inside: Hears which share of the work is done.

    Returns:
        The candidates, the recommendation, and the fitted calibrator.

    Example:
        >>> from calmoe.worlds.binary import miscalibrated
        >>> result = repair(miscalibrated(seed=0, temperature=2.0).sample(1000, seed=0))
        >>> result.recommended, result.after.nll.against_nothing.high < 0
        ('temperature', True)
    """
    check_event(of, predictions.num_classes)
    predictions = new_rows(predictions).predictions
    labels = predictions.known_labels
    usable = int(possible(predictions.output.log_probs, labels).sum())
    if usable < FEWEST:
        zero = " whose label has a probability above zero" * (usable < len(predictions))
        raise TooFewRows(f"there are {usable} rows{zero}: choosing a repair needs {FEWEST}")
    wrong = int((predictions.output.predicted != labels).sum())
    expected = float((1 - predictions.output.confidence.double()).sum())
    if max(wrong, expected) < FEWEST_WRONG:
        raise TooFewRows(
            f"{wrong} rows are wrong and {expected:.0f} are expected to be: choosing a repair needs "
            f"{FEWEST_WRONG}"
        )
    tried = candidates(predictions.num_classes, predictions.num_experts)
    outcome = judge(Rows(predictions.output, labels, of, bins, rule), tried, seed, inside)
    judged = {name: [trial.by_name[name] for trial in outcome.trials] for name in tried.names}
    judged["chosen"] = [trial.chosen for trial in outcome.trials]
    measured = measure(judged, outcome.crossed, bins, level)
    worse = raise_ece(measured, rule)
    recommended = recommend(outcome.choice.name, measured, rule, level)
    seen = SeenRows.of(predictions.output, labels)
    fits = {name: replace(fitted, seen=seen) for name, fitted in outcome.fits.items()}
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
        worse=worse,
        reason=reason(recommended, outcome.choice.name, measured, worse),
        temperature=temperature.temperature_,
        temperature_status=temperature.status_,
        fitted=fits[recommended or NOTHING],
        fits=fits,
    )


def raise_ece(measured: Mapping[str, Candidate], rule: Rule) -> tuple[str, ...]:
    """Those that raise the ECE by more than is negligible, by chance or not."""
    before = measured[NOTHING].ece.value.value
    return tuple(name for name, each in measured.items() if each.ece.value.value > before + rule.rise)


def recommend(chosen: str, measured: Mapping[str, Candidate], rule: Rule, level: float = LEVEL) -> str | None:
    """`chosen` if it beats one temperature, or stands in for one that is not taken; else that, or none."""
    before = measured[NOTHING].ece.value
    helpful = [name for name, each in measured.items() if _helps(each, before, rule)]
    sound = [name for name in helpful if name not in raise_ece(measured, rule)]
    beyond = {name: measured[name].nll.against_temperature for name in sound}
    if chosen == NOTHING:
        return None
    if chosen != TEMPERATURE and {chosen, "chosen"} <= {*sound}:
        gain = beyond["chosen"]
        if gain.high < 0 or (TEMPERATURE not in sound and gain.low <= 0):
            return chosen
    if TEMPERATURE in sound:
        return TEMPERATURE
    others = [name for name in measured if name not in (chosen, "chosen", *SIMPLE)]
    for name in filter(sound.__contains__, others):
        helps, better = (
            stricter(gain, len(others), level).high < 0
            for gain in (measured[name].nll.against_nothing, beyond[name])
        )
        if helps and (better or (TEMPERATURE in helpful and beyond[name].low <= 0)):
            return name
    return None


def stricter(estimate: Estimate, times: int, level: float) -> Estimate:
    """The same with an interval that pays for so many looks (Bonferroni)."""
    return normal(estimate.value, estimate.standard_error, 1 - (1 - level) / times)


def _helps(candidate: Candidate, before: Estimate, rule: Rule) -> bool:
    """Whether it surely lowers the NLL; or lowers it, and the ECE to below where it surely was.

    Of one temperature, which has one number to learn, no more is asked than of the choice.
    """
    change = candidate.nll.against_nothing
    if candidate.name == TEMPERATURE and change.value < -rule.errors * change.standard_error:
        return True
    return change.high < 0 or (change.value < 0 and candidate.ece.value.value < before.low)
