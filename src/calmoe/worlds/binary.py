"""Worlds of two classes: a finite set of configurations s with P(s), routing, experts and the true m(s).

Every quantity that the audit estimates is here an exact finite sum, which can test the audit. `confidence`
and `correct` are those of the predicted class, as in the audit. `calmoe.worlds.multiclass` has more classes.

>>> world = cancelling(seed=0, delta=0.1)
>>> round(world.hidden, 6), round(world.level_set_error, 6)
(0.1, 0.0)
>>> len(world.sample(1000, seed=1))
1000
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import expit, logit

from calmoe.auditing.statistics.tilting import tilt
from calmoe.defaults import BINS
from calmoe.metrics.binned import width_bins
from calmoe.metrics.routing import expert_variance
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions
from calmoe.worlds.finite import Finite


@dataclass(frozen=True, kw_only=True)
class World(Finite):
    """M configurations of a two-class mixture of K experts, whose truth is known.

    Args:
        probability: P(s), sums to 1. [M]
        routing: r_k(s). [M, K]
        experts: Each expert's probability of class 1. [M, K]
        truth: m(s) = P(Y = 1 | s). [M]
        said: The mixture's probability of class 1 after a recalibration; Σ_k r_k f_k unless given. [M]

    Example:
        >>> one, half = np.array([1.0]), np.array([[0.5, 0.5]])
        >>> world = World(probability=one, routing=half, experts=np.array([[0.9, 0.5]]), truth=0.6 * one)
        >>> world.confidence.round(6), round(world.hidden, 6)  # says 0.7, is right in 0.6
        (array([0.7]), 0.1)
    """

    experts: np.ndarray
    truth: np.ndarray
    said: np.ndarray | None = None

    @property
    def mixture(self) -> np.ndarray:
        """f(s), the probability of class 1: Σ_k r_k f_k unless a recalibration changed it. [M]"""
        return (self.routing * self.experts).sum(axis=1) if self.said is None else self.said

    @property
    def confidence(self) -> np.ndarray:
        return np.maximum(self.mixture, 1 - self.mixture)

    @property
    def correct(self) -> np.ndarray:
        return np.where(self.mixture > 0.5, self.truth, 1 - self.truth)

    def classwise_ece(self, bins: int = BINS) -> float:
        gap, total = self.probability * (self.truth - self.mixture), 0.0
        for probability in (self.mixture, 1 - self.mixture):
            index = width_bins(torch.as_tensor(probability), bins).numpy()
            total += float(np.abs(np.bincount(index, gap)).sum())
        return total / 2

    def own(self, expert: int) -> tuple[np.ndarray, np.ndarray]:
        own = self.experts[:, expert]
        return np.maximum(own, 1 - own), np.where(own > 0.5, self.truth, 1 - self.truth)

    def recalibrated(self, transform: Callable[[MixtureOutput], MixtureOutput]) -> "World":
        """The same world after a recalibration of its mixture, `transform`, in every configuration."""
        every = self._predictions(np.arange(len(self.probability)), None)
        return replace(self, said=transform(every.output).probs[:, 1].numpy())

    @property
    def nll(self) -> float:
        """E[−log f_Y]."""
        f = self.mixture
        return float(-self.probability @ (self.truth * np.log(f) + (1 - self.truth) * np.log1p(-f)))

    @property
    def brier(self) -> float:
        """E Σ_c (p_c − 1[Y = c])²."""
        f, m = self.mixture, self.truth
        return float(2 * self.probability @ (m * (1 - f) ** 2 + (1 - m) * f**2))

    def sample(self, rows: int, seed: int) -> Predictions:
        random = np.random.default_rng(seed)
        drawn = random.choice(len(self.probability), size=rows, p=self.probability)
        labels = (random.random(rows) < self.truth[drawn]).astype(np.int64)
        return self._predictions(drawn, labels)

    def _predictions(self, drawn: np.ndarray, labels: np.ndarray | None) -> Predictions:
        mixture, experts = self.mixture[drawn], self.experts[drawn]
        return Predictions.from_probs(
            np.stack([1 - mixture, mixture], axis=1),
            labels,
            routing=self.routing[drawn],
            expert_probs=np.stack([1 - experts, experts], axis=2),
            groups={"configuration": drawn},
        )


def calibrated(seed: int, experts: int = 3, configurations: int = 80) -> World:
    """Calibrated in every configuration: m(s) = f(s).

    Args:
        seed: Which world.
        experts: The number of experts.
        configurations: The number of configurations.

    Returns:
        The world.

    Example:
        >>> round(calibrated(seed=0).hidden, 6)
        0.0
    """
    random = np.random.default_rng(seed)
    routing = random.dirichlet(np.full(experts, 0.8), size=configurations)
    answers = random.uniform(0.03, 0.97, size=(configurations, experts))
    return _believed(routing, answers, random)


def _believed(routing: np.ndarray, answers: np.ndarray, random: np.random.Generator) -> World:
    """Random P(s), and what the mixture says is true: m(s) = Σ_k r_k f_k."""
    return World(
        probability=random.dirichlet(np.full(len(routing), 4.0)),
        routing=routing,
        experts=answers,
        truth=(routing * answers).sum(axis=1),
    )


def cancelling(
    seed: int, delta: float = 0.1, experts: int = 3, levels: int = 40, rule: str | None = None
) -> World:
    """Calibrated only by cancellation (section 4.2): each level p occurs twice, with m = p + δ and p − δ.

    Args:
        seed: Which world.
        delta: δ.
        experts: The number of experts.
        levels: The number of levels p.
        rule: What the sign of δ follows, "leading" (the leading expert) or "disagreement" (how far the
            experts are apart); one of them at random unless given.

    Returns:
        The world.

    Example:
        >>> world = cancelling(seed=0, delta=0.1)
        >>> round(world.level_set_error, 6), round(world.hidden, 6)
        (0.0, 0.1)
    """
    random = np.random.default_rng(seed)
    rule = rule or str(random.choice(["leading", "disagreement"]))
    level = np.repeat(random.uniform(0.53, 0.88, size=levels), 2)
    sign = np.tile([1.0, -1.0], levels)
    routing = -np.sort(-random.dirichlet(np.full(experts, 1.5), size=2 * levels), axis=1)
    if rule == "leading":  # the largest weight goes to expert 0, or to one of the others
        lead = np.where(sign > 0, 0, random.integers(1, experts, size=2 * levels))
        rows = np.arange(2 * levels)
        routing[rows, 0], routing[rows, lead] = routing[rows, lead], routing[rows, 0].copy()
        reach = random.uniform(0.3, 1.0, size=2 * levels)
    else:
        routing = random.permuted(routing, axis=1)
        reach = np.where(sign > 0, random.uniform(0.6, 1.0, 2 * levels), random.uniform(0.0, 0.4, 2 * levels))
    offset = random.normal(size=(2 * levels, experts))
    offset -= (routing * offset).sum(axis=1, keepdims=True)  # Σ_k r_k f_k = p whatever the offsets
    room = np.where(offset > 0, 0.99 - level[:, None], level[:, None] - 0.01)
    furthest = (room / np.maximum(np.abs(offset), 1e-9)).min(axis=1)
    answers = level[:, None] + offset * (furthest * reach)[:, None]
    order = random.permutation(experts)
    return World(
        probability=np.repeat(random.dirichlet(np.full(levels, 4.0)), 2) / 2,
        routing=routing[:, order],
        experts=answers[:, order],
        truth=level + sign * delta,
    )


def calibrated_experts(seed: int, signals: int = 5) -> World:
    """Two experts, each calibrated on its routing-weighted view, and an aggregate that is not.

    Expert k is the posterior P(Y = 1 | A_k) of a signal of its own; the signals are independent given Y, and
    the router follows a state that is independent of both. The average is underconfident, as every linear
    pool of calibrated forecasts is.

    Args:
        seed: Which world.
        signals: How many values a signal has.

    Returns:
        The world.

    Example:
        >>> world = calibrated_experts(seed=0)
        >>> round(world.expert_ece(0), 6), world.ece() > 0.01
        (0.0, True)
    """
    random = np.random.default_rng(seed)
    given = random.dirichlet(np.full(signals, 1.5), size=(2, 2))  # [expert, Y, signal]
    views = random.dirichlet([3.0, 3.0], size=3)  # the routing in each state
    states = random.dirichlet([4.0, 4.0, 4.0])
    first, second, state = (axis.ravel() for axis in np.indices((signals, signals, 3)))
    joint = 0.5 * given[0][:, first] * given[1][:, second] * states[state]  # [Y, M]
    posterior = given[:, 1] / given.sum(axis=1)  # [expert, signal]
    return World(
        probability=joint.sum(axis=0) / joint.sum(),
        routing=views[state],
        experts=np.stack([posterior[0][first], posterior[1][second]], axis=1),
        truth=joint[1] / joint.sum(axis=0),
    )


def hard_routed(seed: int, delta: float = 0.1, experts: int = 3, levels: int = 40) -> World:
    """One-hot routing, calibrated in each slice (k, f_k), while m is off by ±δ with what the others say.

    Args:
        seed: Which world.
        delta: δ.
        experts: The number of experts.
        levels: The number of levels p.

    Returns:
        The world.

    Example:
        >>> world = hard_routed(seed=0)
        >>> round(float(world.fragility(np.array([0.1]), regions_only=True)[0]), 6)
        0.0
    """
    random = np.random.default_rng(seed)
    level = np.repeat(random.uniform(0.53, 0.88, size=levels), 2)
    sign = np.tile([1.0, -1.0], levels)
    chosen = np.repeat(np.arange(levels) % experts, 2)
    high = random.uniform(level[:, None], 0.98, size=(2 * levels, experts))
    low = random.uniform(0.1, level[:, None], size=(2 * levels, experts))
    answers = np.where(sign[:, None] > 0, high, low)
    answers[np.arange(2 * levels), chosen] = level
    return World(
        probability=np.repeat(random.dirichlet(np.full(levels, 4.0)), 2) / 2,
        routing=np.eye(experts)[chosen],
        experts=answers,
        truth=level + sign * delta,
    )


def miscalibrated(seed: int, temperature: float = 2.0, experts: int = 3, configurations: int = 80) -> World:
    """Overconfident everywhere: m(s) = σ(logit f(s) / T), a function of f alone; nothing cancels.

    Args:
        seed: Which world.
        temperature: T.
        experts: The number of experts.
        configurations: The number of configurations.

    Returns:
        The world.

    Example:
        >>> world = miscalibrated(seed=0)
        >>> round(world.hidden - world.ece(), 6)
        0.0
    """
    world = calibrated(seed, experts, configurations)
    return replace(world, truth=expit(logit(world.mixture) / temperature))


def confident(seed: int, experts: int = 3, configurations: int = 80) -> World:
    """Calibrated in every configuration and nearly always right, as networks often are: errors are rare.

    Args:
        seed: Which world.
        experts: The number of experts.
        configurations: The number of configurations.

    Returns:
        The world.

    Example:
        >>> confident(seed=0).accuracy > 0.9
        True
    """
    random = np.random.default_rng(seed)
    routing = random.dirichlet(np.full(experts, 0.8), size=configurations)
    wrong = 10 ** -random.uniform(2.0, 4.5, size=(configurations, 1))
    answers = expit(logit(1 - wrong) + random.normal(size=(configurations, experts)))
    return _believed(routing, answers, random)


def shifted(world: World, seed: int, epsilon: float = 0.2) -> World:
    """The world under a random reweighting of KL ε: the tilt of a random mix of f, r, f_k and disagreement.

    Args:
        world: The world as it was.
        seed: Which shift.
        epsilon: Its size, ε.

    Returns:
        The world after the shift.

    Example:
        >>> world = cancelling(seed=0)
        >>> target = shifted(world, seed=0, epsilon=0.2)
        >>> float((target.probability * np.log(target.probability / world.probability)).sum().round(6))
        0.2
    """
    disagreement = np.sqrt(expert_variance(world.routing, world.experts))
    features = np.column_stack([world.confidence, disagreement, world.routing, world.experts])
    spread = features.std(axis=0)
    varied = spread > 0
    direction = np.random.default_rng(seed).normal(size=int(varied.sum()))
    scores = (features[:, varied] / spread[varied]) @ direction
    return world.reweighted(tilt(scores, epsilon, world.probability))


def broken(world: World, delta: float = 0.1) -> World:
    """The same configurations with another m(s): the predicted class is right δ less often, 0.01 at least.

    Args:
        world: The world as it was.
        delta: δ.

    Returns:
        A world in which the assumption "m(S) stays" fails.

    Example:
        >>> world = calibrated(seed=0)
        >>> broken(world, delta=0.1).accuracy < world.accuracy
        True
    """
    correct = np.maximum(world.correct - delta, 0.01)
    return replace(world, truth=np.where(world.mixture > 0.5, correct, 1 - correct))


WORLDS: dict[str, Callable[[int], World]] = {
    "calibrated": calibrated,
    "cancelling": cancelling,
    "calibrated experts": calibrated_experts,
    "hard-routed": hard_routed,
    "miscalibrated": miscalibrated,
}
"""Worlds of two classes by name: functions of a seed."""
