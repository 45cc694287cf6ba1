"""Worlds in which one kind of repair is right: it is found, its gain is what was promised, and no worse."""

import numpy as np
import pytest
import torch

from calmoe import worlds
from calmoe.auditing.repairs.repair import repair
from calmoe.mixture import MixtureOutput, combine
from calmoe.predictions import Predictions
from calmoe.worlds import multiclass
from sizes import at_size, least, most
from strategies import generator

CLASSES, EXPERTS = 4, 3


def mixtures(rows, seed):
    source = generator(seed)
    routing = torch.randn(rows, EXPERTS, generator=source, dtype=torch.float64).log_softmax(1)
    shared = 2 * torch.randn(rows, 1, CLASSES, generator=source, dtype=torch.float64)
    own = torch.randn(rows, EXPERTS, CLASSES, generator=source, dtype=torch.float64)
    return combine(routing, (shared + own).log_softmax(2))


def as_it_is(output):
    return output.log_probs


def overconfident(output):
    return (output.log_probs / 2).log_softmax(1)


def uneven(output):
    """Each class has its own slope and prior."""
    slopes, priors = torch.tensor([0.5, 0.8, 1.2, 0.6]), torch.tensor([0.6, -0.6, 0.3, -0.3])
    return (output.log_probs * slopes + priors).log_softmax(1)


def mistaken(output):
    """What looks like class 0 is often class 1, and the other way round."""
    swap = torch.eye(CLASSES, dtype=torch.float64)
    swap[:2, :2] = torch.tensor([[0.65, 0.35], [0.35, 0.65]])
    return (output.probs @ swap).log()


def bent(output):
    """The confidence is right half of the time below 0.6, and rises in a step."""
    probs, (top, predicted) = output.probs, output.probs.max(1)
    right = torch.where(top < 0.6, 0.35, torch.where(top < 0.85, 0.62, 0.9)).double()
    others = probs * ((1 - right) / (1 - top))[:, None]
    return others.scatter(1, predicted[:, None], right[:, None]).log()


def by_routing(output):
    """Where the first expert leads the mixture is overconfident, elsewhere underconfident."""
    slope = torch.where(output.log_routing.argmax(1) == 0, 0.3, 1.4)
    return (output.log_probs * slope[:, None]).log_softmax(1)


TRUTHS = {
    None: as_it_is,
    "temperature": overconfident,
    "isotonic": bent,
    "vector": uneven,
    "matrix": mistaken,
    "routing": by_routing,
}


def sample(truth, rows, seed):
    output = mixtures(rows, seed)
    labels = torch.multinomial(truth(output).exp(), 1, generator=generator(seed + 1)).squeeze(1)
    return Predictions(output=output, labels=labels)


def cross_entropy(truth, output, log_probs):
    """The NLL of the population of these configurations: no labels, no noise."""
    return float(-(truth(output).exp() * log_probs).sum(1).mean())


@pytest.mark.parametrize("name", TRUTHS)
def test_the_right_kind_is_found(name):
    truth, chosen = TRUTHS[name], []
    fresh = mixtures(20_000, 999)
    for seed in range(at_size(1, 30)):
        found = repair(sample(truth, 4000, seed), seed=seed)
        chosen.append(found.recommended)
        after = cross_entropy(truth, fresh, found.fitted.transform(fresh).log_probs)
        best = cross_entropy(truth, fresh, truth(fresh))
        before = cross_entropy(truth, fresh, fresh.log_probs)
        assert after - best <= 0.5 * (before - best) + 0.005
    assert sum(each == name for each in chosen) >= least(len(chosen), 0.9), chosen


MADE = {
    **{f"truth {name}": truth for name, truth in TRUTHS.items()},
    **worlds.WORLDS,
    **multiclass.WORLDS,
}


def in_world(name, rows, seed):
    """A sample, and the NLL of the world after a calibrator; on fresh rows where there is no exact sum."""
    if name.startswith("truth "):
        truth, fresh = MADE[name], mixtures(20_000, 5000 + seed)
        return sample(truth, rows, seed), lambda c: cross_entropy(truth, fresh, c.transform(fresh).log_probs)
    world = MADE[name](seed)
    if isinstance(world, multiclass.Multiclass):
        output = MixtureOutput(
            *(torch.as_tensor(part).log() for part in (world.mixture, world.routing, world.experts))
        )
        mass = torch.as_tensor(world.probability[:, None] * world.truth)
        return world.sample(rows, seed), lambda c: float(-(mass * c.transform(output).log_probs).sum())
    return world.sample(rows, seed), lambda c: world.recalibrated(c.transform).nll


@pytest.mark.usefixtures("brief")
def test_what_is_recommended_is_never_worse_than_a_temperature_or_than_nothing():
    """In all kinds of worlds; and the interval of the promised gain holds what the chosen repair does."""
    rows, times = 1500, at_size(1, 25)
    worse, broken, tried = [], [], 0
    for name in list(MADE)[:: at_size(4, 1)]:
        for seed in range(times):
            predictions, cost = in_world(name, rows, 100 + seed)
            found = repair(predictions, seed=seed)
            nothing, temperature, after = (
                cost(found.fits[each]) for each in ("nothing", "temperature", found.recommended or "nothing")
            )
            tried += 1
            allowed = min(nothing, temperature) if found.recommended else nothing
            if after > allowed + 1e-3:  # nats
                worse.append((name, seed, found.recommended, after - allowed))
            promised = found.choosing.nll.against_nothing
            true = cost(found.fits[found.chosen]) - nothing
            if not promised.low - 2e-3 <= true <= promised.high + 2e-3:
                broken.append((name, seed, found.chosen, promised, true))
    assert len(worse) <= most(tried, 0.025), worse
    assert len(broken) <= most(tried, 0.1), broken


@pytest.mark.usefixtures("brief")
def test_nothing_to_repair_is_rarely_repaired():
    repaired = 0
    times = at_size(3, 100)
    for seed in range(times):
        repaired += repair(sample(as_it_is, 1000, 2000 + seed), seed=seed).recommended is not None
    assert repaired <= most(times, 0.05)


@pytest.mark.usefixtures("brief")
def test_the_promise_is_not_too_high_on_average():
    """In worlds where nothing is to be gained beyond a temperature."""
    gains = []
    for seed in range(at_size(3, 60)):
        found = repair(sample(overconfident, 1500, 3000 + seed), seed=seed)
        change = found.choosing.nll.against_temperature
        gains.append((change.value, change.standard_error))
    value, error = np.array(gains).T
    assert value.mean() >= -3 * max(error.mean(), 1e-4) / len(gains) ** 0.5
