"""The configuration S of each row: routing weights, experts' vectors, the mixture's, and what follows.

All of it concerns one event a row: "the predicted class is right" (or, of=c, "the label is c"). f is the
mixture's probability of that event and f_k is expert k's, Y says whether it came true, D = Y − f.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from calmoe.auditing.event import class_titles
from calmoe.auditing.vectors import chunk_rows, experts_summary, mixture_summary
from calmoe.errors import InputError
from calmoe.metrics.binned import Reliability, reliability_of, width_bins
from calmoe.metrics.checks import Of
from calmoe.metrics.routing import expert_variance, routing_entropy
from calmoe.predictions import Predictions

CHUNK = 1 << 16


class Features(NamedTuple):
    """What trees learn from: numbers, and categories as whole numbers."""

    numbers: np.ndarray  # [N, F] float32
    categories: np.ndarray  # [N, G] int

    def table(self) -> np.ndarray:
        """Both side by side, the categories last. [N, F + G] float32"""
        return np.concatenate([self.numbers, self.categories.astype(np.float32)], axis=1)


@dataclass(frozen=True, kw_only=True)
class Configurations:
    """One event Y a row and the configuration S behind it; float32 where only trees read it, else float64.

    Attributes:
        confidence: f. [N]
        outcome: Y as 0.0 or 1.0; None without labels. [N]
        routing: r, float32. [N, K]
        experts: f_k, float32. [N, K]
        own_confidence: Expert k's probability of the class that it predicts itself, float32. [N, K]
        own_outcome: Whether that class is right, bool; None without labels. [N, K]
        predicted: The class that the mixture predicts. [N]
        num_classes: The number of classes, C.
        class_titles: What sentences call the classes. [C]
        expert_names: What the experts are called. [K]
        event: "top": the predicted class is right; c: the label is c.
        vector: What trees learn of the mixture's vector beside f, float32. [N, A]
        vectors: What they learn of the experts' vectors beside f_k, float32. [N, B]

    Example:
        >>> from calmoe import Predictions
        >>> rows = Predictions.from_probs(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0, 0]))
        >>> Configurations.of(rows).residual.round(6)  # right with 0.9, wrong with 0.7
        array([ 0.1, -0.7])
    """

    confidence: np.ndarray  # [N] f
    outcome: np.ndarray | None  # [N] Y as 0.0 or 1.0; None without labels
    routing: np.ndarray  # [N, K] r, float32
    experts: np.ndarray  # [N, K] f_k, float32
    own_confidence: np.ndarray  # [N, K] expert k's probability of the class that it predicts itself, float32
    own_outcome: np.ndarray | None  # [N, K] whether that class is right, bool; None without labels
    predicted: np.ndarray  # [N] the class that the mixture predicts
    num_classes: int
    class_titles: tuple[str, ...]
    expert_names: tuple[str, ...]
    event: Of  # "top": the predicted class is right; c: the label is c
    vector: np.ndarray  # [N, A] what trees learn of the mixture's vector beside f, float32
    vectors: np.ndarray  # [N, B] what they learn of the experts' vectors beside f_k, float32

    @classmethod
    def of(cls, predictions: Predictions, of: Of = "top") -> "Configurations":
        """The rows of `predictions`; of="top": the predicted class is right; of=c: the label is c."""
        if of != "top" and not (isinstance(of, int) and 0 <= of < predictions.num_classes):
            raise InputError(f'of must be "top" or a class in 0..{predictions.num_classes - 1}, got {of!r}')
        n, k = predictions.output.log_routing.shape
        confidence, outcome = np.empty(n), np.empty(n)
        routing, experts = np.empty((n, k), np.float32), np.empty((n, k), np.float32)
        own, right = np.empty((n, k), np.float32), np.empty((n, k), bool)
        predicted, summaries = np.empty(n, np.int64), []
        labels, step = predictions.labels, chunk_rows(predictions.num_classes, k, CHUNK)
        for start in range(0, n, step):
            rows = slice(start, start + step)
            log_probs, log_routing, expert_logs = (part[rows].double() for part in predictions.output)
            if of == "top":
                top, event = log_probs.max(dim=1)
                own_top, own_event = expert_logs.max(dim=2)
            else:
                event = torch.full((len(log_probs),), int(of))
                top, own_top = log_probs[:, of], expert_logs[:, :, of]
                own_event = event[:, None].expand(-1, k)
            picked = event.view(-1, 1, 1).expand(-1, k, 1)
            confidence[rows] = top.exp().clamp(max=1).numpy()
            routing[rows] = log_routing.exp().numpy()
            experts[rows] = expert_logs.gather(2, picked).squeeze(2).exp().numpy()
            own[rows] = own_top.exp().clamp(max=1).numpy()
            predicted[rows] = log_probs.argmax(dim=1).numpy()
            summaries.append(_summaries(log_probs.exp(), log_routing.exp(), expert_logs.exp()))
            if labels is not None:
                outcome[rows] = (event == labels[rows]).double().numpy()
                right[rows] = (own_event == labels[rows, None]).numpy()
        known = labels is not None
        return cls(
            confidence=confidence,
            outcome=outcome if known else None,
            routing=routing,
            experts=experts,
            own_confidence=own,
            own_outcome=right if known else None,
            predicted=predicted,
            num_classes=predictions.num_classes,
            class_titles=class_titles(predictions),
            expert_names=predictions.expert_names,
            event=of,
            vector=np.concatenate([mixture for mixture, _ in summaries]),
            vectors=np.concatenate([experts for _, experts in summaries]),
        )

    def __len__(self) -> int:
        return len(self.confidence)

    @property
    def num_experts(self) -> int:
        """The number of experts, K."""
        return self.routing.shape[1]

    @property
    def known_outcome(self) -> np.ndarray:
        """Y; an error without labels. [N]"""
        if self.outcome is None:
            raise InputError("these predictions carry no labels, and this part of the audit needs them")
        return self.outcome

    @property
    def residual(self) -> np.ndarray:
        """D = Y − f; an error without labels. [N]"""
        return self.known_outcome - self.confidence

    @property
    def noise(self) -> np.ndarray:
        """f (1 − f): the variance of D where f is true. [N]"""
        return self.confidence * (1 - self.confidence)

    def bins(self, bins: int) -> np.ndarray:
        """Which of `bins` of equal width each confidence is in. [N]"""
        return width_bins(torch.as_tensor(self.confidence), bins).numpy()

    def reliability(self, bins: int) -> Reliability:
        """How often rows of a confidence come true, in each of `bins`; an error without labels."""
        confidence, outcome = torch.as_tensor(self.confidence), torch.as_tensor(self.known_outcome)
        return reliability_of(confidence, outcome, torch.ones_like(confidence), bins=bins)

    @property
    def leading(self) -> np.ndarray:
        """The expert with the largest routing weight. [N]"""
        return self.routing.argmax(axis=1)

    @property
    def entropy(self) -> np.ndarray:
        """The entropy of the routing as a share of log K; zero for one expert. [N]"""
        return routing_entropy(self.routing)

    @property
    def disagreement(self) -> np.ndarray:
        """√(Σ_k r_k (f_k − f̄)²), f̄ = Σ_k r_k f_k: how far apart the routed experts are. [N]"""
        return np.sqrt(expert_variance(self.routing, self.experts))

    @property
    def dissent(self) -> np.ndarray:
        """(1/K) Σ_k f_k − f: the experts without the router, less the mixture. [N]"""
        return self.experts.mean(axis=1) - self.confidence

    def scalars(self) -> np.ndarray:
        """r, f_k, f, entropy, disagreement and dissent: S without the vectors, in numbers. [N, 2K + 4]"""
        derived = np.stack([self.confidence, self.entropy, self.disagreement, self.dissent], axis=1)
        return np.concatenate([self.routing, self.experts, derived.astype(np.float32)], axis=1)

    def own_features(self) -> Features:
        """The mixture's own vector V, without router and experts: f, its summary, the predicted class."""
        numbers = [self.confidence[:, None].astype(np.float32), self.vector]
        return Features(np.concatenate(numbers, axis=1), self.predicted[:, None])

    def features(self) -> Features:
        """The whole configuration S: `own_features`, `scalars`, the experts' vectors, the leading expert.

        Of one expert `own_features`: what it said before a temperature is in some formats and not in others.
        """
        if self.num_experts == 1:
            return self.own_features()
        numbers = [self.vector, self.vectors, self.scalars()]
        return Features(np.concatenate(numbers, axis=1), np.stack([self.predicted, self.leading], axis=1))

    @property
    def confidence_is_all(self) -> bool:
        """Whether f is the whole configuration: one expert, two classes, and the event "the label is c"."""
        return self.num_experts == 1 and self.num_classes == 2 and self.event != "top"


def _summaries(probs: torch.Tensor, routing: torch.Tensor, experts: torch.Tensor) -> list[np.ndarray]:
    summaries = mixture_summary(probs), experts_summary(probs, routing, experts)
    return [summary.numpy().astype(np.float32) for summary in summaries]
