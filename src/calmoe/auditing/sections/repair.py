"""What a repair would gain: `RoutingRecalibration` against the plain temperature, on rows new to both.

Rows come in the blocks of `learning`: each later block is answered by a temperature and by a repair of the
rows before it. The witness of what is left is learned in the same order, from blocks that were answered
before: nothing is judged by what saw it, or saw what came after it.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import Estimate, at_least, binned_gap, mean, spread, within
from calmoe.auditing.statistics.sequential import blocks, learn
from calmoe.calibration import CalibrationWarning
from calmoe.calibration.routing_recalibration import RoutingRecalibration
from calmoe.defaults import BINS, LEVEL
from calmoe.metrics.checks import Of
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions

MOST = 50_000  # rows that a repair is fitted on


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A number under the temperature, under the repair, and the change, paired row by row unless said."""

    temperature: Estimate
    repaired: Estimate
    change: Estimate


@dataclass(frozen=True, kw_only=True)
class Repair:
    """The temperature and the repair, compared on later rows.

    nll, accuracy: means. ece: of the population at equal-width bins, with `total_gap`'s intervals. The change
    of the ECE is not paired, as an ECE near zero has no normal law: its ends are those of two intervals that
    hold together, and so it is wide; exactly zero where no repair was kept.
    witness: a learned lower bound of E|m(S) − f|, on the last two of three blocks; the repaired one is
    learned anew. impossible: rows whose label has probability zero; they cost infinitely much either way and
    are left out of the NLL. kept: in how many of the later blocks a repair was kept at all.
    fitted: the repair of all rows (50,000 at most), for use on other data.
    """

    rows: int
    impossible: int
    kept: int
    blocks: int
    nll: Compared
    ece: Compared
    accuracy: Compared
    witness: Compared
    status: str
    message: str
    fitted: RoutingRecalibration


def repair(
    predictions: Predictions,
    fits: list[tuple[np.ndarray, RoutingRecalibration]] | None = None,
    *,
    of: Of = "top",
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
) -> Repair:
    """Fit on earlier rows (`later_fits`, where not given), compare on later ones, then fit on all.

    >>> from calmoe.worlds.binary import cancelling
    >>> found = repair(cancelling(seed=0, delta=0.15).sample(4000, seed=0))
    >>> found.status, found.nll.change.high < 0, found.witness.change.high < 0
    ('repaired', True, True)
    """
    fits = fits or later_fits(predictions, seed)
    before, after, known = [], [], []
    for rows, fitted in fits:
        taken = predictions.take(rows)
        tempered = fitted.temperature_.transform(taken.output.log_probs)
        before.append(taken.output._replace(log_probs=tempered))
        after.append(fitted.transform(taken.output))
        known.append(taken.known_labels)
    labels = torch.cat(known)
    answered = [Predictions(output=MixtureOutput.cat(outputs), labels=labels) for outputs in (before, after)]
    seen = [Configurations.of(answer, of) for answer in answered]
    losses = [-a.output.log_probs.double().gather(1, labels[:, None]).squeeze(1).numpy() for a in answered]
    right = [(answer.output.predicted == labels).double().numpy() for answer in answered]
    possible = np.isfinite(losses[0])
    ends = np.cumsum([len(rows) for rows, _ in fits])[:-1]
    order = np.split(np.arange(len(labels)), ends)
    everyone = np.random.default_rng(seed).permutation(len(predictions))[:MOST]
    final = _fit(predictions, np.sort(everyone), seed)
    return Repair(
        rows=len(labels),
        impossible=int((~possible).sum()),
        kept=sum(fitted.repaired for _, fitted in fits),
        blocks=len(fits),
        nll=_means([loss[possible] for loss in losses], level, np.inf),
        ece=_eces(seen, bins, level),
        accuracy=_means(right, level, 1.0),
        witness=_witnesses(seen, order, level, seed),
        status=final.status_,
        message=final.message_,
        fitted=final,
    )


def later_fits(predictions: Predictions, seed: int = 0) -> list[tuple[np.ndarray, RoutingRecalibration]]:
    """The rows of each later block, and the repair that earlier rows give."""
    parts = blocks(len(predictions), seed)
    return [
        (parts[i], _fit(predictions, np.concatenate(parts[:i][::-1])[:MOST], seed))
        for i in range(1, len(parts))
    ]


def _fit(predictions: Predictions, rows: np.ndarray, seed: int) -> RoutingRecalibration:
    taught = predictions.take(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return RoutingRecalibration(seed=seed).fit(taught.output, taught.known_labels)


def _means(values: list[np.ndarray], level: float, highest: float) -> Compared:
    """Of values from 0 to `highest`."""
    before, after = values
    return Compared(
        temperature=within(mean(before, level), 0.0, highest),
        repaired=within(mean(after, level), 0.0, highest),
        change=within(mean(after - before, level), -highest, highest),
    )


def _witnesses(seen: list[Configurations], parts: list[np.ndarray], level: float, seed: int) -> Compared:
    found, errors = [], []
    for answer in seen:
        learned = learn(answer, seed, parts)
        found.append(answer.residual[learned.rows] * np.where(learned.expected >= 0, 1.0, -1.0))
        errors.append(spread(found[-1], answer.noise[learned.rows]))
    before, after = (at_least(float(v.mean()), e, level) for v, e in zip(found, errors, strict=True))
    return Compared(temperature=before, repaired=after, change=mean(found[1] - found[0], level))


def _eces(seen: list[Configurations], bins: int, level: float) -> Compared:
    def told(level: float) -> list[Estimate]:
        return [
            binned_gap(answer.residual, answer.bins(bins), bins, level=level, noise=answer.noise)
            for answer in seen
        ]

    (before, after), (outer, after_outer) = told(level), told((1 + level) / 2)
    change = Estimate(
        after.value - before.value,
        after_outer.low - outer.high,
        after_outer.high - outer.low,
        float(np.hypot(before.standard_error, after.standard_error)),
    )
    same = np.array_equal(seen[0].confidence, seen[1].confidence)
    return Compared(
        temperature=before, repaired=after, change=Estimate(0.0, 0.0, 0.0, 0.0) if same else change
    )
