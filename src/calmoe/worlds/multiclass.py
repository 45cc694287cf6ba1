"""Worlds of several classes; the event is that the predicted class is right.

>>> world = cancelling(seed=0, delta=0.1)
>>> round(world.hidden, 6), round(world.level_set_error, 6)
(0.1, 0.0)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from calmoe.auditing.statistics.tilting import tilt
from calmoe.defaults import BINS
from calmoe.metrics.binned import width_bins
from calmoe.predictions import Predictions
from calmoe.worlds.finite import Finite


@dataclass(frozen=True, kw_only=True)
class Multiclass(Finite):
    """M configurations of a mixture of K experts over C classes; `truth` is P(Y = c | s)."""

    experts: np.ndarray  # [M, K, C]
    truth: np.ndarray  # [M, C]

    @property
    def mixture(self) -> np.ndarray:
        """Σ_k r_k f_k. [M, C]"""
        return (self.routing[:, :, None] * self.experts).sum(axis=1)

    @property
    def confidence(self) -> np.ndarray:
        return self.mixture.max(axis=1)

    @property
    def correct(self) -> np.ndarray:
        return _at(self.truth, self.mixture.argmax(axis=1))

    def own(self, expert: int) -> tuple[np.ndarray, np.ndarray]:
        own = self.experts[:, expert]
        return own.max(axis=1), _at(self.truth, own.argmax(axis=1))

    @property
    def nll(self) -> float:
        """E[−log f_Y]."""
        return float(-self.probability @ (self.truth * np.log(self.mixture)).sum(axis=1))

    @property
    def brier(self) -> float:
        """E Σ_c (p_c − 1[Y = c])²."""
        squares = (self.mixture**2).sum(axis=1) + 1 - 2 * (self.truth * self.mixture).sum(axis=1)
        return float(self.probability @ squares)

    def classwise_ece(self, bins: int = BINS) -> float:
        gap = self.probability[:, None] * (self.truth - self.mixture)
        cells = width_bins(torch.as_tensor(self.mixture), bins).numpy() + bins * np.arange(gap.shape[1])
        return float(np.abs(np.bincount(cells.ravel(), gap.ravel())).sum() / gap.shape[1])

    def sample(self, rows: int, seed: int) -> Predictions:
        random = np.random.default_rng(seed)
        drawn = random.choice(len(self.probability), size=rows, p=self.probability)
        below = self.truth.cumsum(axis=1)[drawn]
        labels = (random.random((rows, 1)) * below[:, -1:] > below).sum(axis=1)
        return Predictions.from_probs(
            self.mixture[drawn],
            labels,
            routing=self.routing[drawn],
            expert_probs=self.experts[drawn],
            groups={"configuration": drawn},
        )


def _at(values: np.ndarray, column: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, column[:, None], axis=1)[:, 0]


def calibrated(seed: int, experts: int = 3, classes: int = 5, configurations: int = 80) -> Multiclass:
    """Calibrated in every configuration, class by class."""
    random = np.random.default_rng(seed)
    routing = random.dirichlet(np.full(experts, 0.8), size=configurations)
    answers = random.dirichlet(np.full(classes, 0.5), size=(configurations, experts))
    return Multiclass(
        probability=random.dirichlet(np.full(configurations, 4.0)),
        routing=routing,
        experts=answers,
        truth=(routing[:, :, None] * answers).sum(axis=1),
    )


def miscalibrated(seed: int, temperature: float = 2.0, experts: int = 3, classes: int = 5) -> Multiclass:
    """Overconfident everywhere: m = f^(1/T) / (f^(1/T) + (1 − f)^(1/T)) of the predicted class."""
    world = calibrated(seed, experts, classes)
    f = world.confidence
    up, down = f ** (1 / temperature), (1 - f) ** (1 / temperature)
    return with_correct(world, up / (up + down))


def cancelling(
    seed: int, delta: float = 0.1, experts: int = 3, classes: int = 5, levels: int = 40
) -> Multiclass:
    """Calibrated only by cancellation: each level p occurs twice, with m = p + δ and p − δ.

    The two have the same experts in another order: where m = p + δ one leads, where m = p − δ the next.
    """
    random = np.random.default_rng(seed)
    routing = -np.sort(-random.dirichlet(np.full(experts, 1.5), size=levels), axis=1)
    answers = random.dirichlet(np.full(classes, 1.0), size=(levels, experts))
    favoured = np.eye(classes)[random.integers(classes, size=levels)][:, None]
    answers += random.uniform(0.5, 5.0, size=(levels, 1, 1)) * favoured
    answers /= answers.sum(axis=2, keepdims=True)
    top = (routing[:, :, None] * answers).sum(axis=1).max(axis=1)
    kept = np.minimum(1.0, (0.88 - 1 / classes) / (top - 1 / classes))[:, None, None]
    answers = kept * answers + (1 - kept) / classes  # p ≤ 0.88 leaves room for p + δ
    order = np.roll(np.arange(experts), 1)
    world = Multiclass(
        probability=np.repeat(random.dirichlet(np.full(levels, 4.0)), 2) / 2,
        routing=np.stack([routing, routing[:, order]], axis=1).reshape(2 * levels, experts),
        experts=np.stack([answers, answers[:, order]], axis=1).reshape(2 * levels, experts, classes),
        truth=np.full((2 * levels, classes), 1 / classes),
    )
    return with_correct(world, world.confidence + np.tile([delta, -delta], levels))


def with_correct(world: Multiclass, correct: np.ndarray) -> Multiclass:
    """The same world with this probability of the predicted class; the others keep their ratios."""
    mixture, rows = world.mixture, np.arange(len(correct))
    predicted = mixture.argmax(axis=1)
    truth = mixture * ((1 - correct) / (1 - world.confidence))[:, None]
    truth[rows, predicted] = correct
    return replace(world, truth=truth)


def shifted(world: Multiclass, seed: int, epsilon: float = 0.2) -> Multiclass:
    """The world under a random reweighting of KL ε towards some classes; f and r matter half as much."""
    random, predicted = np.random.default_rng(seed), world.mixture.argmax(axis=1)
    favour = random.normal(size=world.mixture.shape[1:])[predicted]
    others = np.column_stack([world.confidence, world.routing])
    others = others[:, np.ptp(others, axis=0) > 1e-9]
    features = np.column_stack([favour, others])
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    direction = random.normal(size=others.shape[1])
    weights = np.append(1.0, direction / np.linalg.norm(direction) / 2)
    return world.reweighted(tilt(features @ weights, epsilon, world.probability))


WORLDS: dict[str, Callable[[int], Multiclass]] = {
    "calibrated, 5 classes": calibrated,
    "cancelling, 5 classes": cancelling,
    "miscalibrated, 5 classes": miscalibrated,
}
