"""The router of a mixture of models: a temperature an expert, weights or a gate, a temperature on the whole.

log f = log softmax(logsumexp_k(log r_k(x) + log softmax(log f_k / T_k)) / T), learned on cross-fitted answers
of the experts. Four kinds, from the simplest to the richest; each begins where the one before it ended.
"""

import math
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from calmoe.calibration import Temperature
from calmoe.calibration.temperature_solvers import CalibrationWarning, temper
from calmoe.errors import InputError
from calmoe.mixture import MixtureOutput, combine
from calmoe.objectives import ERM, Objective, cross_entropy

KINDS = ("expert", "mean", "weights", "gate")
HIDDEN = 16
LEARNING_RATE, WEIGHT_DECAY, BATCH, MOST_EPOCHS, PATIENCE = 5e-3, 1e-3, 256, 60, 6
MOST_STEPS = 50  # an epoch: large tables have larger batches
PRIOR = 1e-3  # of the squared logarithms of weights and temperatures, from where they begin: keeps them near
LARGEST_LOG = 3.0  # of a temperature: between 1/20 and 20
FAINT = 1e-6  # the same for an expert alone: keeps its temperature finite


class Lessons(NamedTuple):
    """What a router learns from; float64."""

    features: Tensor  # [N, D] prepared
    expert_log_probs: Tensor  # [N, K, C] of experts that did not see the row
    labels: Tensor  # [N]
    weights: Tensor  # [N] of mean 1

    def take(self, rows: Tensor) -> "Lessons":
        return Lessons(*(part[rows] for part in self))


class Router(nn.Module):
    """kind: "expert" (number `expert` alone), "mean", "weights" (the same for all rows) or "gate".

    >>> router = Router("mean", experts=2, features=1)
    >>> logs = torch.tensor([[[0.9, 0.1], [0.5, 0.5]]], dtype=torch.float64).log()
    >>> router(torch.zeros(1, 1), logs).probs
    tensor([[0.7000, 0.3000]], dtype=torch.float64, grad_fn=<ExpBackward0>)
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, kind: str, experts: int, features: int, expert: int = 0) -> None:
        super().__init__()
        self.kind, self.expert = kind, expert
        self.log_temperatures = nn.Parameter(torch.zeros(experts, dtype=torch.float64))
        self.log_weights = nn.Parameter(torch.zeros(experts, dtype=torch.float64))
        self.log_temperature = nn.Parameter(torch.zeros((), dtype=torch.float64))
        if kind == "gate":
            self.register_buffer("centre", torch.zeros(features, dtype=torch.float64))
            self.register_buffer("scale", torch.zeros(features, dtype=torch.float64))
            self.hidden = nn.Linear(features, HIDDEN, dtype=torch.float64)
            self.out = nn.Linear(HIDDEN, experts, bias=False, dtype=torch.float64)
            nn.init.zeros_(self.out.weight)

    def forward(self, features: Tensor, expert_log_probs: Tensor) -> MixtureOutput:
        tempered = temper(expert_log_probs, _temperature(self.log_temperatures).unsqueeze(1))
        rows = len(expert_log_probs)
        if self.kind == "expert":
            log_routing = tempered.new_full((rows, tempered.shape[1]), -torch.inf)
            log_routing[:, self.expert] = 0.0
            return MixtureOutput(tempered[:, self.expert], log_routing, tempered)
        scores = self.log_weights.expand(rows, -1)
        if self.kind == "gate":
            standard = (features - self.centre) * self.scale
            scores = scores + self.out(torch.relu(self.hidden(standard)))
        output = combine(torch.log_softmax(scores, dim=1), tempered)
        return output._replace(log_probs=temper(output.log_probs, _temperature(self.log_temperature)))

    @property
    def learned(self) -> list[nn.Parameter]:
        """The parameters that this kind learns by itself, without those of the gate."""
        if self.kind == "expert":
            return [self.log_temperatures]
        whole = [self.log_temperature]
        return whole if self.kind == "mean" else [*whole, self.log_temperatures, self.log_weights]


def _temperature(log_temperature: Tensor) -> Tensor:
    """Within bounds: a line search may try steps so long that the objective would not be a number."""
    return log_temperature.clamp(-2 * LARGEST_LOG, 2 * LARGEST_LOG).exp()


def candidates(experts: int, gate: bool) -> Iterator[tuple[str, int]]:
    """Kinds of routers with the expert that answers alone, the simplest first."""
    for expert in range(experts):
        yield "expert", expert
    if experts > 1:
        yield from ((kind, 0) for kind in KINDS[1 : 4 if gate else 3])


def objective_value(objective: Objective, output: MixtureOutput, lessons: Lessons) -> Tensor:
    """The objective of weighted rows: exact for the mean; for others, rows are repeated by their weight."""
    losses = objective.loss(output, lessons.labels)
    weights = lessons.weights
    if isinstance(objective, ERM):
        return (weights * losses).mean()
    if bool((weights == weights[0]).all()):
        return objective.reduce(losses, output, lessons.labels)
    rows = _in_proportion(weights)
    repeated = MixtureOutput(*(part[rows] for part in output))
    return objective.reduce(losses[rows], repeated, lessons.labels[rows])


def _in_proportion(weights: Tensor) -> Tensor:
    """As many rows as there are, each as often as its weight says, to within one."""
    heights = weights.cumsum(0)
    marks = (torch.arange(len(weights), dtype=weights.dtype) + 0.5) / len(weights) * heights[-1]
    return torch.searchsorted(heights, marks).clamp(max=len(weights) - 1)


def fit_constants(
    kinds: Iterable[tuple[str, int]], lessons: Lessons, objective: Objective
) -> dict[tuple[str, int], Router]:
    """Routers without a gate: experts alone first, so that mixtures begin with calibrated ones."""
    experts, features = lessons.expert_log_probs.shape[1], lessons.features.shape[1]
    routers = {("expert", k): Router("expert", experts, features, k) for k in range(experts)}
    for router in routers.values():
        fit_constant(router, lessons, objective)
    alone = torch.stack([routers["expert", k].log_temperatures.detach()[k] for k in range(experts)])
    for router in routers.values():
        router.log_temperatures.data.copy_(alone)
    for kind, expert in kinds:
        if kind in ("mean", "weights"):
            routers[kind, expert] = Router(kind, experts, features)
            routers[kind, expert].log_temperatures.data.copy_(alone)
            fit_constant(routers[kind, expert], lessons, objective)
    return routers


def fit_constant(router: Router, lessons: Lessons, objective: Objective) -> None:
    """Learn temperatures and constant weights, all rows at once; a lone temperature by the exact solver."""
    if router.kind in ("expert", "mean") and objective == ERM():
        fit_temperature(router, lessons)
        return
    optimizer = torch.optim.LBFGS(
        router.learned,
        max_iter=60,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
    )
    start = [parameter.detach().clone() for parameter in router.learned]
    prior = FAINT if router.kind == "expert" else PRIOR

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = objective_value(objective, router(lessons.features, lessons.expert_log_probs), lessons)
        for parameter, before in zip(router.learned, start, strict=True):
            value = value + prior * (parameter - before).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    if not all(bool(parameter.isfinite().all()) for parameter in router.learned):
        with torch.no_grad():
            for parameter, before in zip(router.learned, start, strict=True):
                parameter.copy_(before)


@torch.no_grad()
def fit_temperature(router: Router, lessons: Lessons) -> None:
    """The one temperature that an expert alone, or the mean, has to learn."""
    log_probs = router(lessons.features, lessons.expert_log_probs).log_probs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # separable rows leave it at 1
        fitted = Temperature().fit(log_probs, lessons.labels, lessons.weights).temperature_
    place = router.log_temperatures[router.expert] if router.kind == "expert" else router.log_temperature
    place.add_(min(max(math.log(fitted), -LARGEST_LOG), LARGEST_LOG))


def fit_gate(
    lessons: Lessons, objective: Objective, begin: Router, seed: int, epochs: int, held_out: Lessons | None
) -> tuple[Router, int]:
    """A gate that begins as constant weights; the number of epochs is the best on `held_out`, or given."""
    features = lessons.features
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        router = Router("gate", begin.log_weights.shape[0], features.shape[1])
    with torch.no_grad():
        for name, parameter in begin.named_parameters():
            router.get_parameter(name).copy_(parameter)
        spread = features.std(dim=0, correction=0)
        router.centre.copy_(features.mean(dim=0))
        router.scale.copy_(torch.where(spread > 1e-6, 1 / spread.clamp(min=1e-6), 0.0))
    optimizer = torch.optim.AdamW(router.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    source = torch.Generator().manual_seed(seed)
    size = max(BATCH, len(features) // MOST_STEPS)
    best, best_epoch, kept = np.inf, 0, None
    if held_out is not None:
        best, kept = held_out_loss(router, held_out), _copied(router)
    for epoch in range(1, epochs + 1):
        for batch in torch.randperm(len(features), generator=source).split(size):
            part = lessons.take(batch)
            optimizer.zero_grad()
            objective_value(objective, router(part.features, part.expert_log_probs), part).backward()
            optimizer.step()
        if held_out is None:
            continue
        loss = held_out_loss(router, held_out)
        if loss < best:
            best, best_epoch, kept = loss, epoch, _copied(router)
        elif epoch - best_epoch >= PATIENCE:
            break
    if kept is not None:
        router.load_state_dict(kept)
    return router, best_epoch


@torch.no_grad()
def row_losses(router: Router, lessons: Lessons) -> np.ndarray:
    """The log loss of each row. [N]"""
    return cross_entropy(router(lessons.features, lessons.expert_log_probs), lessons.labels).numpy()


def held_out_loss(router: Router, lessons: Lessons) -> float:
    """The weighted mean log loss."""
    return float(np.average(row_losses(router, lessons), weights=lessons.weights.numpy()))


def _copied(router: Router) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in router.state_dict().items()}


def check_kind(kind: str) -> str:
    if kind not in KINDS:
        raise InputError(f"a router is one of {', '.join(KINDS)}, not {kind!r}")
    return kind
