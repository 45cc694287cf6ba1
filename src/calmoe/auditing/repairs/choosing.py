"""Choose a repair, and judge the choosing on rows that took no part in it.

The choice is by cross-validated NLL: the best, unless one temperature, or nothing, is within one paired
standard error of it; and none that surely raises the ECE. Few rows are cut into four folds. Fits on the rows
outside two folds choose for each of the two; what the other three choose, fitted on all of them, answers the
fourth. Of many rows some are learned from, with the same folds, and others judge what was chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from torch import Tensor

from calmoe.arrays import as_tensor
from calmoe.auditing.repairs.answers import Answers, answer, raises_ece
from calmoe.auditing.repairs.candidates import NAMES, NOTHING, TEMPERATURE, Candidates, Variant, fit
from calmoe.calibration import Calibrator
from calmoe.metrics.checks import Of
from calmoe.mixture import MixtureOutput

FOLDS = 4
SIMPLE = (NOTHING, TEMPERATURE)
CELLS = 2_000_000  # rows times classes that are enough to learn from
MOST_TO_LEARN, FEWEST_TO_LEARN = 30_000, 2_000  # rows, however few or many classes
MOST_TO_JUDGE = 300_000
SMALL, REPEATS = 3_000, 3  # with fewer rows than that, so many random cuts into folds


class Rule(NamedTuple):
    """errors: so many paired standard errors behind the best in NLL, nothing or one temperature still wins.

    rise: how far what is recommended may raise the ECE, a negligible size: tables show so many decimals.
    """

    errors: float = 1.0
    rise: float = 0.001


RULE = Rule()


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A chosen variant, and the best variant of each name."""

    name: str
    best: Mapping[str, Variant]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One cut of the rows: what candidates, and whatever was chosen, answer on rows new to them."""

    by_name: Mapping[str, Answers]
    chosen: Answers
    picked: tuple[str, ...]  # what was chosen, once for each part that was judged


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """rows: those that were judged; learned: how many taught. crossed: whether these are the same ones.

    fits: each candidate as it would be used, at its best variant.
    """

    rows: np.ndarray
    learned: int
    crossed: bool
    trials: tuple[Trial, ...]
    choice: Choice
    fits: Mapping[str, Calibrator]


@dataclass(frozen=True)
class Rows:
    """Labelled rows, and how they are judged."""

    output: MixtureOutput
    labels: Tensor
    of: Of
    bins: int
    rule: Rule = RULE

    def take(self, rows: np.ndarray) -> "Rows":
        index = as_tensor(rows)
        output = self.output.take(index)
        return replace(self, output=output, labels=self.labels[index])

    def __len__(self) -> int:
        return len(self.labels)


def choose(answers: Mapping[Variant, Answers], bins: int, rule: Rule = RULE) -> Choice:
    """Nothing, or one temperature, where within one paired standard error of the least NLL; else the best.

    None that raises the ECE by more than chance explains. Rows to whose label the model gives probability
    zero are left out: they cost infinitely much.
    """
    nothing = answers[Variant(NOTHING)]
    possible = np.isfinite(nothing.loss)
    means = {variant: float(each.loss[possible].mean()) for variant, each in answers.items()}
    best = {
        name: min((variant for variant in answers if variant.name == name), key=means.__getitem__)
        for name in NAMES
        if any(variant.name == name for variant in answers)
    }
    sound = [
        variant
        for name, variant in best.items()
        if name == NOTHING or not raises_ece(nothing, answers[variant], bins)
    ]
    chosen = min(sound, key=means.__getitem__)
    for variant in sound:
        behind = answers[variant].loss[possible] - answers[chosen].loss[possible]
        if variant.name in SIMPLE and behind.mean() <= rule.errors * behind.std() / len(behind) ** 0.5:
            return Choice(name=variant.name, best=best)
    return Choice(name=chosen.name, best=best)


def learned_rows(rows: int, classes: int) -> int:
    """How many of the rows teach: all, unless there are more than twice what is enough."""
    enough = min(MOST_TO_LEARN, max(FEWEST_TO_LEARN, CELLS // classes))
    return rows if rows <= 2 * enough else enough


def judge(rows: Rows, tried: Candidates, seed: int, inside: Callable[[float], None]) -> Outcome:
    """Choose, fit and judge; `inside` hears which share of it is done."""
    learned = learned_rows(len(rows), rows.output.log_probs.shape[1])
    if learned < len(rows):
        return _judge_on_others(rows, tried, learned, seed, inside)
    repeats = REPEATS if len(rows) <= SMALL else 1
    seeds = np.random.SeedSequence(seed).generate_state(repeats)
    trials, finals = [], []
    for i, one in enumerate(map(int, seeds)):
        trial, held_out = _nested(rows, tried, one, _part(inside, i, repeats))
        trials.append(trial)
        finals.append(held_out)
    choice = choose(_mean_answers(finals), rows.bins, rows.rule)
    fits = _fits(choice, rows)
    return Outcome(
        rows=np.arange(len(rows)),
        learned=learned,
        crossed=True,
        trials=tuple(trials),
        choice=choice,
        fits=fits,
    )


def _judge_on_others(
    rows: Rows, tried: Candidates, learned: int, seed: int, inside: Callable[[float], None]
) -> Outcome:
    order = np.random.default_rng(seed).permutation(len(rows))
    teach = rows.take(order[:learned])
    held_out = _held_out(teach, tried.variants, _folds(teach.labels.numpy(), seed), inside)
    choice = choose(held_out, rows.bins, rows.rule)
    fits = _fits(choice, teach)
    judged = order[learned:][:MOST_TO_JUDGE]
    others = rows.take(judged)
    by_name = {name: answer(one, others.output, others.labels, rows.of) for name, one in fits.items()}
    trial = Trial(by_name=by_name, chosen=by_name[choice.name], picked=(choice.name,))
    return Outcome(rows=judged, learned=learned, crossed=False, trials=(trial,), choice=choice, fits=fits)


def _nested(
    rows: Rows, tried: Candidates, seed: int, inside: Callable[[float], None]
) -> tuple[Trial, dict[Variant, Answers]]:
    """The trial, and what fits on three folds answer on the fourth."""
    fold, variants = _folds(rows.labels.numpy(), seed), tried.variants
    choosing = [{variant: Answers.empty(len(rows)) for variant in variants} for _ in range(FOLDS)]
    pairs = list(combinations(range(FOLDS), 2))
    for i, pair in enumerate(pairs):
        taught = rows.take(np.flatnonzero(~np.isin(fold, pair)))
        for variant, fitted in fit(variants, taught.output, taught.labels).items():
            for judged, chosen_for in (pair, pair[::-1]):
                held = np.flatnonzero(fold == judged)
                choosing[chosen_for][variant].put(held, _answer(fitted, rows.take(held)))
        _part(inside, 0, 2)((i + 1) / len(pairs))
    held_out = _held_out(rows, variants, fold, _part(inside, 1, 2))
    by_name = {name: Answers.empty(len(rows)) for name in tried.names}
    chosen, picked = Answers.empty(len(rows)), []
    for k, answers in enumerate(choosing):
        here, elsewhere = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
        others = {variant: each.take(elsewhere) for variant, each in answers.items()}
        choice = choose(others, rows.bins, rows.rule)
        for name, variant in choice.best.items():
            by_name[name].put(here, held_out[variant].take(here))
        chosen.put(here, by_name[choice.name].take(here))
        picked.append(choice.name)
    return Trial(by_name=by_name, chosen=chosen, picked=tuple(picked)), held_out


def _held_out(
    rows: Rows, variants: Sequence[Variant], fold: np.ndarray, inside: Callable[[float], None]
) -> dict[Variant, Answers]:
    """What fits on the other folds answer on each fold."""
    answers = {variant: Answers.empty(len(rows)) for variant in variants}
    for k in range(FOLDS):
        taught, held = rows.take(np.flatnonzero(fold != k)), np.flatnonzero(fold == k)
        judged = rows.take(held)
        for variant, fitted in fit(variants, taught.output, taught.labels).items():
            answers[variant].put(held, _answer(fitted, judged))
        inside((k + 1) / FOLDS)
    return answers


def _part(inside: Callable[[float], None], number: int, count: int) -> Callable[[float], None]:
    """Hears the share that is done of one part of `count`."""
    return lambda share: inside((number + share) / count)


def _answer(calibrator: Calibrator, rows: Rows) -> Answers:
    return answer(calibrator, rows.output, rows.labels, rows.of)


def _fits(choice: Choice, rows: Rows) -> dict[str, Calibrator]:
    variants = list(choice.best.values())
    fits = fit(variants, rows.output, rows.labels)
    return {variant.name: fits[variant] for variant in variants}


def _folds(labels: np.ndarray, seed: int) -> np.ndarray:
    """A fold for each row, at random, with an equal share of each class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), int)
    fold[order] = np.arange(len(labels)) % FOLDS
    return fold


def _mean_answers(trials: Sequence[Mapping[Variant, Answers]]) -> dict[Variant, Answers]:
    """Over the trials, row by row."""
    return {
        variant: Answers(*(np.mean(part, axis=0) for part in zip(*(t[variant] for t in trials), strict=True)))
        for variant in trials[0]
    }
