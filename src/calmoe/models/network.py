"""Training a mixture on prepared rows: sharp gradients, averaged weights, early stopping on held-out rows."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from calmoe.averaging import update_average
from calmoe.backbones.mlp import MLP
from calmoe.mixture import MixtureClassifier, MixtureHead
from calmoe.models.watching import each_told
from calmoe.objectives import ERM, Objective, cross_entropy
from calmoe.sharpness import sharp_gradients


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the network learns."""

    objective: Objective
    rho: float
    average: float
    max_epochs: int
    patience: int
    batch_size: int
    learning_rate: float
    weight_decay: float


@dataclass(frozen=True)
class Examples:
    """Prepared rows; equal ones are one row of a larger weight."""

    features: Tensor  # [N, D] float32
    labels: Tensor  # [N]
    weights: Tensor  # [N] of mean 1

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray | Tensor) -> "Examples":
        index = torch.as_tensor(rows)
        return Examples(self.features[index], self.labels[index], self.weights[index])


def merge_equal(features: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Examples:
    """Rows in one order whatever the order they came in, equal rows as one: a weight of 2 is two rows.

    >>> merged = merge_equal(np.array([[1.0], [0.0], [1.0]]), np.array([1, 0, 1]), np.ones(3))
    >>> merged.features.flatten(), merged.weights
    (tensor([0., 1.]), tensor([0.6667, 1.3333]))
    """
    keyed = np.column_stack([features.astype(np.float32), labels.astype(np.float32)]) + 0.0  # −0 is 0
    plain = np.ascontiguousarray(keyed).view([("", keyed.dtype)] * keyed.shape[1]).ravel()
    _, first, place = np.unique(plain, return_index=True, return_inverse=True)
    total = np.bincount(place.ravel(), weights)
    return Examples(
        torch.from_numpy(keyed[first, :-1].copy()),
        torch.from_numpy(labels[first].astype(np.int64)),
        torch.from_numpy((total / total.mean()).astype(np.float32)),
    )


def make_network(
    features: int, classes: int, experts: int, hidden: Sequence[int], router_hidden: int
) -> MixtureClassifier:
    """An MLP under a mixture head."""
    backbone = MLP(features, tuple(hidden))
    head = MixtureHead(backbone.out_features, classes, experts, router_hidden)
    return MixtureClassifier(backbone, head)


def train(
    model: MixtureClassifier, examples: Examples, held_out: Examples | None, recipe: Recipe, seed: int
) -> tuple[nn.Module, list[float]]:
    """The averaged weights of the best epoch, and the held-out log loss of each epoch."""
    source = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    averaged = copy.deepcopy(model)
    best, curve, step = copy.deepcopy(averaged.state_dict()), [], 0
    for epoch in each_told("epochs", range(recipe.max_epochs), recipe.max_epochs):
        for batch in _batches(examples, recipe, source):
            part = examples.take(batch)
            sharp_gradients(partial(_value, model, part, recipe.objective), model, recipe.rho)
            optimizer.step()
            step += 1
            decay = min(recipe.average, step / (step + 10))  # early averages are short
            update_average(list(averaged.parameters()), list(model.parameters()), decay)
        if held_out is None:
            continue
        curve.append(log_loss(averaged, held_out))
        if curve[-1] == min(curve):
            best = copy.deepcopy(averaged.state_dict())
        if epoch - int(np.argmin(curve)) >= recipe.patience:
            break
    if held_out is not None:
        averaged.load_state_dict(best)
    return averaged, curve


def _batches(examples: Examples, recipe: Recipe, source: torch.Generator) -> Iterator[Tensor]:
    """Every row once; for a robust objective, rows in proportion to their weight."""
    weighted = bool((examples.weights != examples.weights[0]).any())
    if weighted and not isinstance(recipe.objective, ERM):
        order = torch.multinomial(examples.weights, len(examples), replacement=True, generator=source)
    else:
        order = torch.randperm(len(examples), generator=source)
    batches = order.split(recipe.batch_size)
    if len(batches) > 1 and len(batches[-1]) < recipe.batch_size // 4:
        batches = (*batches[:-2], torch.cat(batches[-2:]))  # no step on a handful of rows
    return iter(batches)


def _value(model: nn.Module, part: Examples, objective: Objective) -> Tensor:
    output = model(part.features)
    if isinstance(objective, ERM):
        return (part.weights * objective.loss(output, part.labels)).mean()
    return objective(output, part.labels)


@torch.no_grad()
def log_loss(model: nn.Module, examples: Examples) -> float:
    """The weighted mean log loss."""
    losses = cross_entropy(model(examples.features), examples.labels)
    return float((examples.weights * losses).sum() / examples.weights.sum())
