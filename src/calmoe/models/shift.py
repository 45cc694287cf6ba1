"""How robust to be: η, chosen by leaving out values of the column that is expected to shift.

As in use, the experts have not seen the values on which the mixture is judged, and the router has learned
from ordinary cross-fitted answers about other values. Taken is the smallest η within one standard error of
the one with the lowest log loss, over the folds of values.
"""

from collections.abc import Sequence

import numpy as np
import torch

from calmoe.models.choice import Trial, fit_chosen, standard_error
from calmoe.models.objective_choice import named_objective
from calmoe.models.router import Lessons, row_losses

FEWEST_FOLDS = 3  # of values; fewer say nothing about others


def choose_eta(
    chosen: Trial,
    lessons: Lessons,
    unseen: np.ndarray,
    folds: np.ndarray,
    objective: str,
    etas: Sequence[float],
    seed: int,
) -> tuple[float, dict[float, float]]:
    """η, and the log loss of each on values left out.

    unseen: answers of experts that saw none of the rows of the same fold [N, K, C]; folds: −1 for rows that
    are never left out. With fewer than three folds the smallest η is taken, untried.
    """
    count = int(folds.max()) + 1
    if count < FEWEST_FOLDS:
        return min(etas), {}
    answered = lessons._replace(expert_log_probs=torch.from_numpy(unseen))
    judged = np.flatnonzero(folds >= 0)
    losses = {eta: np.empty(len(folds)) for eta in sorted(etas)}
    for eta, values in losses.items():
        for fold in range(count):
            train = lessons.take(torch.from_numpy(np.flatnonzero(folds != fold)))
            test = np.flatnonzero(folds == fold)
            router = fit_chosen(chosen, train, named_objective(objective, eta), seed)
            values[test] = row_losses(router, answered.take(torch.from_numpy(test)))
    weights, clusters = lessons.weights.numpy()[judged], folds[judged]
    means = {eta: float(np.average(values[judged], weights=weights)) for eta, values in losses.items()}
    best = min(means, key=lambda eta: means[eta])
    for eta in losses:
        differences = losses[eta][judged] - losses[best][judged]
        if means[eta] - means[best] <= standard_error(differences, weights, clusters):
            return eta, means
    return best, means
