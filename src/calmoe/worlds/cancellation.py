"""Worlds of many classes that are calibrated by cancellation, by what it follows; and clean ones.

In each pair of configurations the mixture is equally sure; it is right with p + δ in one, p − δ in the other:

- `by_class`: the two predict different classes. The mixture's own vector shows it.
- `by_vectors`: routing, the mixture's vector and every expert's probability of the predicted class are the
  same; in one the experts agree on the other classes, in the other they do not.
- `by_routing`: the mixture's vector is the same; another expert leads.

>>> worlds = by_class(0), by_vectors(0), by_routing(0)
>>> [round(world.hidden, 6) for world in worlds], [round(world.level_set_error, 6) for world in worlds]
([0.1, 0.1, 0.1], [0.0, 0.0, 0.0])
>>> [round(world.without_routing, 6) for world in worlds], [round(world.routing_adds, 6) for world in worlds]
([0.1, 0.0, 0.0], [0.0, 0.1, 0.1])
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from calmoe.worlds.multiclass import Multiclass, cancelling, with_correct

SUREST = 0.88  # leaves room for p + δ


def clean(seed: int, experts: int = 3, classes: int = 10, configurations: int = 400) -> Multiclass:
    """Calibrated in every configuration, class by class."""
    random = np.random.default_rng(seed)
    routing, answers = _drawn(random, configurations, experts, classes)
    return Multiclass(
        probability=random.dirichlet(np.full(configurations, 4.0)),
        routing=routing,
        experts=answers,
        truth=(routing[:, :, None] * answers).sum(axis=1),
    )


def by_class(
    seed: int, delta: float = 0.1, experts: int = 3, classes: int = 10, levels: int | None = None
) -> Multiclass:
    """Half of the classes are right more often than said, half less often; nothing else tells them apart."""
    random = np.random.default_rng(seed)
    levels = max(40, 4 * classes) if levels is None else levels
    routing, answers = _drawn(random, levels, experts, classes)
    predicted = _predicted(routing, answers)
    order = random.permutation(classes)
    up, down = order[: (classes + 1) // 2], order[(classes + 1) // 2 :]
    pair = [_renamed(answers, predicted, random.choice(side, levels)) for side in (up, down)]
    return _paired(random, [routing] * 2, pair, delta)


def by_vectors(
    seed: int, delta: float = 0.1, experts: int = 3, classes: int = 10, levels: int = 40
) -> Multiclass:
    """The experts agree, or do not, on the classes that the mixture does not predict."""
    random = np.random.default_rng(seed)
    routing, answers = _drawn(random, levels, experts, classes)
    rows, predicted = np.arange(levels), _predicted(routing, answers)
    mixture = (routing[:, :, None] * answers).sum(axis=1)
    sure = answers[rows, :, predicted]  # [levels, K]
    rest = mixture.copy()
    rest[rows, predicted] = 0
    rest /= rest.sum(axis=1, keepdims=True)
    weights = routing * (1 - sure)
    weights /= weights.sum(axis=1, keepdims=True)
    apart = random.normal(size=answers.shape)
    apart -= (apart * rest[:, None]).sum(axis=2, keepdims=True)
    apart -= (apart * weights[:, :, None]).sum(axis=1, keepdims=True)  # the mixture stays as it is
    apart[rows, :, predicted] = 0
    furthest = 1 / np.maximum(-apart, 1e-9).max(axis=(1, 2))
    pair = []
    for reach in (random.uniform(0.0, 0.2, levels), random.uniform(0.7, 1.0, levels)):
        answer = rest[:, None] * (1 + (furthest * reach)[:, None, None] * apart) * (1 - sure)[:, :, None]
        answer[rows, :, predicted] = sure
        pair.append(answer)
    return _paired(random, [routing] * 2, pair, delta * random.choice([-1.0, 1.0]))


by_routing: Callable[..., Multiclass] = partial(cancelling, classes=10)


def _drawn(
    random: np.random.Generator, rows: int, experts: int, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Routing [rows, K] and expert vectors [rows, K, C] whose mixture predicts a class with 0.2 to 0.88."""
    routing = random.dirichlet(np.full(experts, 1.5), size=rows)
    answers = random.dirichlet(np.full(classes, 1.0), size=(rows, experts))
    favoured = np.eye(classes)[random.integers(classes, size=rows)][:, None]
    answers += random.uniform(0.5, 5.0, size=(rows, 1, 1)) * favoured
    answers /= answers.sum(axis=2, keepdims=True)
    top = (routing[:, :, None] * answers).sum(axis=1).max(axis=1)
    kept = np.minimum(1.0, (SUREST - 1 / classes) / (top - 1 / classes))[:, None, None]
    return routing, kept * answers + (1 - kept) / classes


def _predicted(routing: np.ndarray, answers: np.ndarray) -> np.ndarray:
    return (routing[:, :, None] * answers).sum(axis=1).argmax(axis=1)


def _renamed(answers: np.ndarray, predicted: np.ndarray, to: np.ndarray) -> np.ndarray:
    """The same vectors with the predicted class and another one exchanged."""
    rows, renamed = np.arange(len(answers)), answers.copy()
    renamed[rows, :, to], renamed[rows, :, predicted] = answers[rows, :, predicted], answers[rows, :, to]
    return renamed


def _paired(
    random: np.random.Generator, routings: list[np.ndarray], answers: list[np.ndarray], delta: float
) -> Multiclass:
    """Pairs of equal probability, one right with p + δ and one with p − δ."""
    routing, experts = (
        np.stack(pair, axis=1).reshape(-1, *pair[0].shape[1:]) for pair in (routings, answers)
    )
    levels, classes = len(routings[0]), experts.shape[2]
    world = Multiclass(
        probability=np.repeat(random.dirichlet(np.full(levels, 4.0)), 2) / 2,
        routing=routing,
        experts=experts,
        truth=np.full((2 * levels, classes), 1 / classes),
    )
    return with_correct(world, world.confidence + np.tile([delta, -delta], levels))


WORLDS: dict[str, Callable[[int], Multiclass]] = {
    "clean, 3 classes": partial(clean, classes=3),
    "clean, 10 classes": clean,
    "clean, 100 classes": partial(clean, classes=100),
    "by class": by_class,
    "by class, one expert": partial(by_class, experts=1, classes=3),
    "by class, 100 classes": partial(by_class, classes=100),
    "by expert vector": by_vectors,
    "by routing": by_routing,
}
