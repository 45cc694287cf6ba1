"""Which router: the simplest that is as good as the best on rows that it did not learn from.

Every candidate is fitted on all folds but one and judged by its log loss on that one. The best has the lowest
mean; taken is the simplest candidate within one standard error of it, of the differences row by row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calmoe.models.router import (
    MOST_EPOCHS,
    Lessons,
    Router,
    candidates,
    fit_constants,
    fit_gate,
    row_losses,
)
from calmoe.models.watching import each_told
from calmoe.objectives import Objective


@dataclass(frozen=True)
class Trial:
    """A candidate, and its log loss on the rows that were left out."""

    kind: str
    expert: int
    losses: np.ndarray  # [N]
    log_loss: float
    epochs: int = 0  # of a gate


def try_candidates(
    lessons: Lessons, folds: np.ndarray, objective: Objective, gate: bool, seed: int
) -> list[Trial]:
    """Every candidate's losses on the folds that it did not learn from."""
    experts, features = lessons.expert_log_probs.shape[1], lessons.features.shape[1]
    count = int(folds.max()) + 1
    gate = gate and count > 2 and features > 0
    listed = list(candidates(experts, gate))
    losses = {each: np.empty(len(folds)) for each in listed}
    epochs = []
    for fold in each_told("the router, fold by fold", range(count), count):
        test = torch.from_numpy(np.flatnonzero(folds == fold))
        train = lessons.take(torch.from_numpy(np.flatnonzero(folds != fold)))
        judged = lessons.take(test)
        routers = fit_constants(listed, train, objective)
        for kind, expert in listed:
            if kind == "gate":
                stop = (fold + 1) % count
                inner = lessons.take(torch.from_numpy(np.flatnonzero((folds != fold) & (folds != stop))))
                held_out = lessons.take(torch.from_numpy(np.flatnonzero(folds == stop)))
                begin = fit_constants([("weights", 0)], inner, objective)["weights", 0]
                routers["gate", 0], best = fit_gate(
                    inner, objective, begin, seed + fold, MOST_EPOCHS, held_out
                )
                epochs.append(best)
            losses[kind, expert][test.numpy()] = row_losses(routers[kind, expert], judged)
    weights = lessons.weights.numpy()
    return [
        Trial(
            kind,
            expert,
            values,
            float(np.average(values, weights=weights)),
            round(float(np.median(epochs))) if kind == "gate" else 0,
        )
        for (kind, expert), values in losses.items()
    ]


def choose(trials: Sequence[Trial], weights: np.ndarray, clusters: np.ndarray | None = None) -> Trial:
    """The first trial within one standard error of the best: mean, best expert, weights, gate.

    The mean comes first: it has nothing to choose. clusters: rows that vary together.
    """
    best = min(trials, key=lambda trial: trial.log_loss)
    alone = min((trial for trial in trials if trial.kind == "expert"), key=lambda trial: trial.log_loss)
    order = {"mean": 0, "expert": 1, "weights": 2, "gate": 3}
    mixtures = [trial for trial in trials if trial.kind != "expert"]
    for trial in sorted([alone, *mixtures], key=lambda trial: order[trial.kind]):
        differences = trial.losses - best.losses
        if trial is best or differences @ weights / weights.sum() <= standard_error(
            differences, weights, clusters
        ):
            return trial
    return best


def standard_error(values: np.ndarray, weights: np.ndarray, clusters: np.ndarray | None = None) -> float:
    """Of the weighted mean of values that are independent between clusters, or between rows.

    >>> round(standard_error(np.array([1.0, 3.0]), np.ones(2)), 3)
    1.0
    """
    deviations = weights * (values - values @ weights / weights.sum())
    sums = deviations if clusters is None else np.bincount(clusters, deviations)
    count = len(sums)
    return float(np.sqrt(count / max(count - 1, 1) * (sums @ sums)) / weights.sum())


def fit_chosen(trial: Trial, lessons: Lessons, objective: Objective, seed: int) -> Router:
    """The chosen candidate, learned from all rows."""
    key = (trial.kind, trial.expert)
    if trial.kind != "gate":
        return fit_constants([key], lessons, objective)[key]
    begin = fit_constants([("weights", 0)], lessons, objective)["weights", 0]
    return fit_gate(lessons, objective, begin, seed, trial.epochs, None)[0]
