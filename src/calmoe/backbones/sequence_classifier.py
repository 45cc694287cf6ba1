"""A mixture on a text encoder for transformers' Trainer: loss first, and no part of the mixture dropped.

This module needs transformers; import it where that is installed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from calmoe.backbones.encoder import Encoder
from calmoe.errors import InputError
from calmoe.mixture import MixtureClassifier, MixtureHead, MixtureOutput
from calmoe.objectives import ERM, Objective

try:
    from transformers.utils import ModelOutput
except ImportError:
    raise InputError("text needs transformers: pip install 'calmoe[text]'") from None

__all__ = ["MixtureForSequenceClassification", "MixtureModelOutput"]


@dataclass
class MixtureModelOutput(ModelOutput):
    """A loss where there are labels, and the parts of a MixtureOutput: `Trainer.predict` gives them all."""

    loss: Tensor | None = None
    log_probs: Tensor | None = None  # [N, C]
    log_routing: Tensor | None = None  # [N, K]
    expert_log_probs: Tensor | None = None  # [N, K, C]

    @property
    def logits(self) -> Tensor | None:
        """log f, whose softmax are the mixture's probabilities."""
        return self.log_probs

    @property
    def mixture(self) -> MixtureOutput:
        return MixtureOutput.of(self)


class MixtureForSequenceClassification(MixtureClassifier):
    """A text encoder and a mixture head, as transformers' Trainer takes a model: texts and labels to a loss.

    `Trainer.predict(...).predictions` are log_probs, log_routing and expert_log_probs.

    Args:
        backbone: The encoder: token ids [N, L] to features.
        head: The mixture on top.
        objective: What `loss` is, `ERM` unless given; Trainer's own `compute_loss_func=RobustMoE()` goes
            first.

    Example:
        >>> import torch
        >>> class Letters(torch.nn.Module):
        ...     def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        ...         return torch.nn.functional.one_hot(input_ids, 8).float().mean(1)
        >>> from calmoe.mixture import MixtureHead
        >>> model = MixtureForSequenceClassification(Letters(), MixtureHead(8, num_classes=3))
        >>> answer = model(torch.randint(8, (5, 4)), labels=torch.tensor([0, 1, 2, 0, 1]))
        >>> answer.log_probs.shape, answer.loss.ndim
        (torch.Size([5, 3]), 0)
    """

    accepts_loss_kwargs = True

    def __init__(self, backbone: nn.Module, head: MixtureHead, objective: Objective | None = None) -> None:
        super().__init__(backbone, head)
        self.objective = objective or ERM()

    @classmethod
    def from_encoder(
        cls,
        weights: str | Path,
        num_classes: int,
        *,
        pooling: str = "cls",
        objective: Objective | None = None,
        **head: Any,
    ) -> "MixtureForSequenceClassification":
        """A new head on a pretrained encoder.

        Args:
            weights: The encoder: a folder, or a name on the hub.
            num_classes: The number of classes.
            pooling: "cls" for the first token's vector, "mean" for the mean over tokens.
            objective: What `loss` is, `ERM` unless given.
            head: Options of `MixtureHead`, such as num_experts=4.
        """
        encoder = Encoder(weights, pooling)
        return cls(encoder, MixtureHead(encoder.out_features, num_classes, **head), objective)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: int | Tensor | None = None,
    ) -> MixtureModelOutput:
        output = self.head(self.backbone(input_ids, attention_mask, token_type_ids))
        loss = None
        if labels is not None:
            loss = self.objective(output, labels, num_items_in_batch=num_items_in_batch)
        return MixtureModelOutput(loss=loss, **output._asdict())
