"""Trainings of one method, target and seed: whether two differ, and the error that this makes."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from scipy.stats import t as student

from calmoe.defaults import LEVEL
from calmoe.errors import InputError
from calmoe.methods import source
from calmoe.metrics import Interval
from calmoe.report.rows_over_seeds import Row, Rows
from studies.rows import PROTOCOL, Place, by_key, place_of, read_results

AS_TRAINED = ("last", 1)  # weights and views of a run without average= and views=
SCORES = ("accuracy", "nll_ts", "brier_ts", "ece_ts")
ROUNDING = 1e-6  # of the scores of stored rows


class Error(NamedTuple):
    """A standard deviation, or a mean's standard error, with its degrees of freedom."""

    size: float
    freedom: float

    def half(self, level: float = LEVEL) -> float:
        """How far Student's interval reaches to either side."""
        return self.size * float(student.ppf((1 + level) / 2, self.freedom))

    def of_a_mean(self, number: int) -> "Error":
        return Error(self.size / math.sqrt(number), self.freedom)


Moves = dict[str, Error]  # by score


def over_seeds(interval: Interval) -> Error:
    """What the seeds' scatter says of the mean of their differences."""
    return Error(interval.standard_error, len(interval.samples) - 1)


def same_training(first: Row, second: Row) -> bool:
    """Whether all scores agree to the last digit: the same sums, done again.

    That says nothing of how far rounding moves a training, so such a pair is no rerun.
    """
    return all(abs(first[score] - second[score]) < ROUNDING for score in SCORES)


def deviation(trainings: Iterable[Sequence[float]]) -> Error:
    """Of one training around the mean of its target and seed; a group has the trainings of one of these.

    >>> round(deviation([[0.50, 0.52], [0.70, 0.68]]).size, 4)
    0.0141
    """
    groups = [group for group in trainings if len(group) > 1]
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum((value - mean(group)) ** 2 for group in groups for value in group)
    return Error(math.sqrt(squares / freedom), freedom)


def of_a_difference(first: Error, second: Error) -> Error:
    """The error of a difference of two that err apart (Welch and Satterthwaite)."""
    squares = [(error.size**2, error.freedom) for error in (first, second)]
    total = sum(square for square, _ in squares)
    return Error(math.sqrt(total), total**2 / sum(square**2 / freedom for square, freedom in squares))


def as_trained(rows: Rows) -> Rows:
    """Of rows that `cells` wrote, those that a run without averages and views has, too."""
    return [row for row in rows if (row["weights"], row["views"]) == AS_TRAINED]


def other_run(folder: Path, method: str, weights: str, views: int) -> Rows:
    """A cell of another run, as rows that `cells` writes; none where that run has no such reading."""
    if (weights, views) != AS_TRAINED:
        return []
    rows = [row for row in read_results(folder / "results.jsonl") if row["protocol"] == PROTOCOL]
    own = [row for row in rows if row["method"] == method]
    return [{**row, "target": place_of(row)[0], "weights": weights, "views": views} for row in own]


def rerun_moves(folder: Path, cells: Rows, columns: Sequence[str]) -> Moves:
    """By score: how far one training lies from the mean of several, as a difference from Vanilla MoE.

    Methods of one target and seed have one Vanilla MoE, so that they move together: their root mean square
    counts. The rerun of results.jsonl is again.jsonl or, where there is none, the study's own last weights.
    A training that comes out the same again is no rerun; neither is MoCaE, which has Vanilla's training.
    """
    again = folder / "again.jsonl"
    first = _by_model(read_results(folder / "results.jsonl"))
    second = _by_model(read_results(again) if again.exists() else as_trained(cells))
    rerun = {key for key in first.keys() & second.keys() if not same_training(first[key], second[key])}
    pairs = sorted((m, place) for m, place in rerun if m != "vanilla" and ("vanilla", place) in rerun)
    if not pairs:
        raise InputError(f"{folder}: its two runs share no method but Vanilla MoE, or no seed")
    moves = {}
    for column in (c for c in columns if all(first[key][c] is not None for key in pairs)):
        squares: dict[Place, list[float]] = {}
        for method, place in pairs:
            before, after = (
                run[method, place][column] - run["vanilla", place][column] for run in (first, second)
            )
            squares.setdefault(place, []).append((after - before) ** 2)
        # a move is one training less another: its square is twice the variance of one, in the mean
        moves[column] = Error(math.sqrt(mean(map(mean, squares.values())) / 2), len(squares))
    return moves


def _by_model(rows: Rows) -> dict[tuple[str, Place], Row]:
    """The rows of trained models, by method and place."""
    corrected = [row for row in rows if row.get("protocol", PROTOCOL) == PROTOCOL]
    trained = [row for row in corrected if source(row["method"]) == row["method"]]
    return by_key(trained, lambda row: (row["method"], place_of(row)))
