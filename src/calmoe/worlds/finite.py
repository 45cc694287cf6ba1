"""The base of all worlds: finitely many configurations, whose ECEs and worst cases are known exactly."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

import numpy as np
import torch

from calmoe.auditing.statistics.tilting import tilt
from calmoe.defaults import BINS
from calmoe.metrics.binned import width_bins
from calmoe.predictions import Predictions


@dataclass(frozen=True, kw_only=True)
class Finite(ABC):
    """M configurations of a mixture of K experts, and the exact sums over them."""

    probability: np.ndarray  # [M], sums to 1
    routing: np.ndarray  # [M, K]

    @property
    @abstractmethod
    def confidence(self) -> np.ndarray:
        """The probability of the predicted class. [M]"""

    @property
    @abstractmethod
    def correct(self) -> np.ndarray:
        """The probability that the predicted class is right: m for the predicted class. [M]"""

    @property
    @abstractmethod
    def mixture(self) -> np.ndarray:
        """The mixture's own vector, or of two classes the probability of class 1. [M, ...]"""

    @abstractmethod
    def own(self, expert: int) -> tuple[np.ndarray, np.ndarray]:
        """An expert's probability of the class that it predicts, and how often that is right. [M], [M]"""

    @abstractmethod
    def sample(self, rows: int, seed: int) -> Predictions:
        """Draw `rows` from the world by a `seed`; the group "configuration" holds the index of s."""

    @property
    def gap(self) -> np.ndarray:
        """h(s) = m(s) − f(s), for the predicted class. [M]"""
        return self.correct - self.confidence

    @property
    def region(self) -> np.ndarray:
        """The leading expert. [M]"""
        return self.routing.argmax(axis=1)

    @property
    def accuracy(self) -> float:
        """E[Y], how often the predicted class is right."""
        return float(self.probability @ self.correct)

    @property
    def balance(self) -> float:
        """E[Y − f]."""
        return float(self.probability @ self.gap)

    @property
    def hidden(self) -> float:
        """E|m(S) − f|: the miscalibration of the configurations, one by one."""
        return float(self.probability @ np.abs(self.gap))

    @property
    def level_set_error(self) -> float:
        """E|E[m(S) − f | f]|, at the exact values of f."""
        levels = np.unique(self.confidence.round(12), return_inverse=True)[1]
        return float(np.abs(np.bincount(levels, self.probability * self.gap)).sum())

    @property
    def visible_gap(self) -> np.ndarray:
        """m(V) − f: the gap as the mixture's own vector V shows it, without router and experts. [M]"""
        vectors = self.mixture.reshape(len(self.probability), -1).round(9)
        same = np.unique(vectors, axis=0, return_inverse=True)[1].ravel()
        mass = np.bincount(same, self.probability)
        return (np.bincount(same, self.probability * self.gap) / np.maximum(mass, 1e-300))[same]

    @property
    def without_routing(self) -> float:
        """E|m(V) − f|: what the mixture's own vector shows."""
        return float(self.probability @ np.abs(self.visible_gap))

    @property
    def routing_adds(self) -> float:
        """E|m(S) − m(V)|: by how much configurations with the same vector differ."""
        return float(self.probability @ np.abs(self.gap - self.visible_gap))

    def reweighted(self, density: np.ndarray) -> Self:
        """The same configurations and m(s), with P(s) times a `density` [M]: what the paper calls a shift."""
        mass = self.probability * density
        return replace(self, probability=mass / mass.sum())

    def bins(self, bins: int = BINS) -> np.ndarray:
        """Which of `bins` of equal width each confidence is in. [M]"""
        return width_bins(torch.as_tensor(self.confidence), bins).numpy()

    def ece(self, bins: int = BINS, weights: np.ndarray | None = None) -> float:
        """Σ_b |E[a (m − f) 1_b]| over `bins`: the population's ECE; a = `weights` [M], 1 unless given."""
        mass = self.probability if weights is None else self.probability * weights
        return float(np.abs(np.bincount(self.bins(bins), mass * self.gap)).sum())

    def cancellation(self, bins: int = BINS) -> float:
        """E|m − f| − ECE: what cancels inside the bins."""
        return self.hidden - self.ece(bins)

    def expert_ece(self, expert: int, bins: int = BINS, *, region: bool = False) -> float:
        """The ECE over `bins` of what an expert predicts, on its view, or where it leads (`region`)."""
        confidence, correct = self.own(expert)
        view = (self.region == expert).astype(float) if region else self.routing[:, expert]
        mass = self.probability * view
        index = width_bins(torch.as_tensor(confidence), bins).numpy()
        return float(np.abs(np.bincount(index, mass * (correct - confidence))).sum() / mass.sum())

    @abstractmethod
    def classwise_ece(self, bins: int = BINS) -> float:
        """The mean over classes of Σ_b |E[(P(Y = c | s) − f_c) 1_b]|, over `bins`."""

    def moments(self, auditors: np.ndarray) -> np.ndarray:
        """E[g (m − f)] for auditors g [M, ...]. [...]"""
        return np.tensordot(self.probability * self.gap, auditors, axes=1)

    @property
    def residual(self) -> np.ndarray:
        """D = Y − f of each configuration if the event comes true, and if it does not. [M, 2]"""
        return np.stack([1 - self.confidence, -self.confidence], axis=1)

    @property
    def chance(self) -> np.ndarray:
        """The probability of each configuration and outcome. [M, 2]"""
        return self.probability[:, None] * np.stack([self.correct, 1 - self.correct], axis=1)

    def worst_square(self, epsilons: np.ndarray) -> np.ndarray:
        """The largest E_a[D²] over densities a of configurations and outcomes, KL `epsilons` [R]. [R]"""
        squares, chance = self.residual.ravel() ** 2, self.chance.ravel()
        return np.array([chance @ (tilt(squares, float(e), chance) * squares) for e in epsilons])

    def worst_ece(self, epsilons: np.ndarray, bins: int = BINS) -> np.ndarray:
        """The largest ECE over the same densities, `epsilons` [R], at `bins`: labels shift too. [R]"""
        used, index = np.unique(self.bins(bins), return_inverse=True)
        signs, chance = np.array(list(product([-1.0, 1.0], repeat=len(used)))), self.chance.ravel()
        scores = (signs[:, index, None] * self.residual).reshape(len(signs), -1)
        return np.array([(tilt(scores, float(e), chance) * scores @ chance).max() for e in epsilons])

    def fragility(self, epsilons: np.ndarray, bins: int = BINS, *, regions_only: bool = False) -> np.ndarray:
        """The largest ECE over reweightings of the configurations within KL radius ε; exact.

        Σ_b |E[a h 1_b]| is the largest of E[a s_b h] over signs s: this tries every sign pattern with its
        exponential tilt.

        Args:
            epsilons: The radii ε. [R]
            bins: The number of equal-width bins.
            regions_only: The density depends on the leading expert alone.
        """
        used, index = np.unique(self.bins(bins), return_inverse=True)
        signs = np.array(list(product([-1.0, 1.0], repeat=len(used))))
        scores, mass = signs[:, index] * self.gap, self.probability
        if regions_only:
            inside = np.eye(self.routing.shape[1])[self.region] * mass[:, None]
            kept = inside.sum(axis=0) > 0
            mass = inside.sum(axis=0)[kept]
            scores = scores @ inside[:, kept] / mass
        return np.array([(tilt(scores, float(e), mass) * scores @ mass).max() for e in np.asarray(epsilons)])
