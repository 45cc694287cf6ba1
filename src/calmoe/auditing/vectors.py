"""What trees learn of whole probability vectors: a few numbers a vector, however many classes there are.

Two classes need none of it: a vector is then one probability, which the configuration holds already.
"""

import torch
from torch import Tensor

FEW_CLASSES = 12  # with so many, the mixture's vector stands in full beside its summary
LARGEST = 3  # sorted probabilities of the mixture's vector


def chunk_rows(classes: int, experts: int, most: int) -> int:
    """Rows whose expert vectors are held in double precision at a time: 32 MiB, and at most `most` rows."""
    return max(1, min(most, (1 << 22) // (classes * experts)))


def mixture_summary(probs: Tensor) -> Tensor:
    """Of the mixture's vectors [n, C]: largest probabilities, margin, entropy; all classes if few. [n, A]"""
    classes = probs.shape[1]
    if classes <= 2:
        return probs[:, :0]
    largest = probs.topk(min(LARGEST, classes), dim=1).values
    entropy = torch.special.entr(probs).sum(dim=1, keepdim=True)
    whole = probs if classes <= FEW_CLASSES else probs[:, :0]
    return torch.cat([largest, largest[:, :1] - largest[:, 1:2], entropy, whole], dim=1)


def experts_summary(probs: Tensor, routing: Tensor, experts: Tensor) -> Tensor:
    """Of the experts' vectors [n, K, C] beside the mixture's [n, C]. [n, 3K + 2]

    Each expert's largest probability, its probability of the mixture's second class, and its total variation
    from the mixture; the mean of the latter, and the weight of those that predict the mixture's class.
    """
    if probs.shape[1] <= 2 or routing.shape[1] == 1:
        return probs[:, :0]
    first, second = probs.topk(2, dim=1).indices.unbind(dim=1)
    own = experts.max(dim=2)
    runner_up = experts.gather(2, second.view(-1, 1, 1).expand(-1, experts.shape[1], 1)).squeeze(2)
    apart = (experts - probs[:, None]).abs().sum(dim=2) / 2
    agree = (routing * (own.indices == first[:, None])).sum(dim=1, keepdim=True)
    mean_apart = (routing * apart).sum(dim=1, keepdim=True)
    return torch.cat([own.values, runner_up, apart, mean_apart, agree], dim=1)
