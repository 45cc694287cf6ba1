"""Several models side by side: their audits, paired differences where the rows match, and which to deploy.

Differences of accuracy and log loss are paired row by row. That of the ECE, which has no normal law near
zero, has the ends of two intervals that hold together, and so is wide.

The choice: models whose log loss is not shown to be above the lowest one's are as good; among them the one
with the fewest faults (probabilities off, something hidden, fragile, wrong for a group), then the one with
the lowest worst error under a shift, then the lowest log loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Literal, NamedTuple

import numpy as np

from calmoe.arrays import plain
from calmoe.auditing.audit_report import AuditReport
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.event import judge
from calmoe.auditing.statistics.estimates import NONE, Estimate, binned_gap, mean
from calmoe.auditing.verdict import Verdict
from calmoe.defaults import LEVEL
from calmoe.errors import InputError
from calmoe.predictions import Predictions

Basis = Literal["log loss", "fewer faults", "skill"]


class Difference(NamedTuple):
    """A model less the chosen one, on the same rows; below zero is better for the losses."""

    accuracy: Estimate
    nll: Estimate
    ece: Estimate


@dataclass(frozen=True, kw_only=True)
class Model:
    """One model: its name, its report, and how it differs from the chosen one where rows match."""

    name: str
    report: AuditReport
    nll: Estimate
    difference: Difference | None

    @property
    def verdict(self) -> Verdict:
        return self.report.verdict


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """The models in the order given; `chosen` is the one to deploy, None where none is worth it.

    paired: whether all files hold the same labels in the same order. basis: what decided.
    """

    models: tuple[Model, ...]
    chosen: str | None
    basis: Basis | None
    paired: bool

    def to_dict(self) -> dict[str, object]:
        """All numbers as JSON holds them."""
        models = {
            model.name: {
                "verdict": plain(model.verdict),
                "nll": plain(model.nll),
                "difference": plain(model.difference),
            }
            for model in self.models
        }
        return {"chosen": self.chosen, "basis": self.basis, "paired": self.paired, "models": models}


def compare(
    models: Mapping[str, tuple[Predictions, AuditReport]], level: float = LEVEL, *, same_rows: bool = True
) -> ModelComparison:
    """Compare audited predictions by name; the reports must judge the same event.

    same_rows: whether equal labels mean equal rows. Where they do, differences are paired.

    >>> from calmoe.auditing import audit
    >>> from calmoe.worlds.binary import calibrated, miscalibrated
    >>> worlds = {"true": calibrated(seed=0), "off": miscalibrated(seed=0, temperature=4.0)}
    >>> samples = {name: world.sample(150, seed=0) for name, world in worlds.items()}
    >>> compare({name: (given, audit(given)) for name, given in samples.items()}).models[1].verdict.truth
    'off'
    """
    if len(models) < 2:
        raise InputError("give at least two models to compare")
    if len({report.of for _, report in models.values()}) > 1:
        raise InputError("the reports judge different events: audit all models with the same `of`")
    labels = [given.known_labels.numpy() for given, _ in models.values()]
    paired = same_rows and all(np.array_equal(labels[0], other) for other in labels[1:])
    losses = {name: judge(given, "top").losses for name, (given, _) in models.items()}
    best = min(losses, key=lambda name: float(losses[name].mean()))
    chosen, basis = _choose(models, losses, best, paired, level)
    against = chosen or best
    return ModelComparison(
        models=tuple(
            Model(
                name=name,
                report=report,
                nll=_mean(losses[name], level),
                difference=_difference(given, models[against][0], report, level)
                if paired and name != against
                else None,
            )
            for name, (given, report) in models.items()
        ),
        chosen=chosen,
        basis=basis,
        paired=paired,
    )


def _choose(
    models: Mapping[str, tuple[Predictions, AuditReport]],
    losses: Mapping[str, np.ndarray],
    best: str,
    paired: bool,
    level: float,
) -> tuple[str | None, Basis | None]:
    worthy = [
        name
        for name, (_, report) in models.items()
        if report.verdict.worth not in ("reversed", "little", "none")
    ]
    if not worthy:
        return None, None
    if best not in worthy:
        best = min(worthy, key=lambda name: float(losses[name].mean()))
    as_good = [name for name in worthy if not _worse(losses[name], losses[best], paired, level)]

    def rank(name: str) -> tuple[float, float, float]:
        verdict = models[name][1].verdict
        worst = verdict.worst.value if verdict.worst is not None else verdict.ece.high
        return faults(verdict), worst, float(losses[name].mean())

    others = [name for name in models if name != best]
    if all(_worse(losses[name], losses[best], paired, level) for name in others):
        return best, "log loss"
    if len(worthy) == 1:
        return best, "skill"
    return min(as_good, key=rank), "fewer faults"


def faults(verdict: Verdict) -> int:
    """How many of these hold: off by more than a little, hidden errors, fragile, wrong for a group.

    Errors that hide and differ by predicted class count once.
    """
    off = verdict.truth == "off" and not verdict.small
    groups = verdict.groups_worse if verdict.truth == "off" else verdict.groups_off
    alone = any(group.column is not None or verdict.hidden != "hidden" for group in groups)
    return sum((off, verdict.hidden == "hidden", verdict.fragility == "fragile", alone))


def _worse(loss: np.ndarray, best: np.ndarray, paired: bool, level: float) -> bool:
    """Whether the log loss is shown to be above the best one's."""
    if loss is best:
        return False
    if paired and np.isfinite(loss).all() and np.isfinite(best).all():
        return mean(loss - best, level).low > 0
    return _mean(loss, level).low > _mean(best, level).high


def _mean(losses: np.ndarray, level: float) -> Estimate:
    if not np.isfinite(losses).all():
        return Estimate(np.inf, np.inf, np.inf, float("nan"))
    return mean(losses, level)


def _difference(given: Predictions, other: Predictions, report: AuditReport, level: float) -> Difference:
    """Less the other, row by row."""
    rows = [Configurations.of(each, report.of) for each in (given, other)]
    losses = [judge(each, "top").losses for each in (given, other)]
    both = np.isfinite(losses[0]) & np.isfinite(losses[1])
    outer = [
        binned_gap(
            each.residual, each.bins(report.bins), report.bins, level=(1 + level) / 2, noise=each.noise
        )
        for each in rows
    ]
    ece = Estimate(
        outer[0].value - outer[1].value,
        outer[0].low - outer[1].high,
        outer[0].high - outer[1].low,
        float(np.hypot(outer[0].standard_error, outer[1].standard_error)),
    )
    hits = [(each.output.predicted == each.known_labels).double().numpy() for each in (given, other)]
    return Difference(
        accuracy=mean(hits[0] - hits[1], level),
        nll=mean(losses[0] - losses[1], level) if both.all() else NONE,
        ece=ece,
    )


def told_apart(names: Sequence[str]) -> list[str]:
    """The names, no two alike: a number behind those that stand there already.

    >>> told_apart(["test", "test", "other"])
    ['test', 'test-2', 'other']
    """
    apart: list[str] = []
    for name in names:
        apart.append(next(n for n in chain([name], (f"{name}-{i}" for i in count(2))) if n not in apart))
    return apart
