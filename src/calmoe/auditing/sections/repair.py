"""The audit's section on repair: what one by routing gains over a temperature, on rows new to both.

The repair is `RoutingRecalibration`. Rows come in the blocks of `statistics.sequential`: a temperature and a
repair, both fitted on earlier rows, answer each later block. The witness of the miscalibration that remains
learns in the same order, from blocks already answered: no model judges a row that it saw, or that came before
a row it saw.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from calmoe.arrays import UNSAVED
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.numbers import headings
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section, if_found
from calmoe.auditing.statistics.estimates import Estimate, at_least, binned_gap, mean, spread, within
from calmoe.auditing.statistics.sequential import FEWEST_TO_LEARN, blocks, learn
from calmoe.calibration import CalibrationWarning
from calmoe.calibration.routing_recalibration import RoutingRecalibration
from calmoe.defaults import BINS, LEVEL
from calmoe.files import json_bytes
from calmoe.metrics.checks import Of
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions
from calmoe.render.grid import Entry, Grid, interval, label, number, signed
from calmoe.render.page import Picture, Point
from calmoe.render.wording import decimal

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

MOST_TO_FIT = 50_000  # rows that a repair learns from


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A number under the temperature, under the repair, and the change, paired row by row unless noted."""

    temperature: Estimate
    repaired: Estimate
    change: Estimate


@dataclass(frozen=True, kw_only=True)
class Repair:
    """The temperature and the repair, compared on later rows.

    nll, accuracy: means. ece: of the population at equal-width bins, with `total_gap`'s intervals. The change
    of the ECE is not paired, as an ECE near zero has no normal law: its ends are those of two intervals that
    hold together, and so it is wide; exactly zero where no block kept a repair.
    witness: a learned lower bound of E|m(S) − f|, on the last two of three blocks, learned anew after the
    repair. impossible: rows whose label has probability zero; they cost infinitely much either way, and the
    NLL leaves them out. kept: how many of the later blocks kept a repair at all.
    fitted: the repair fitted on all rows (50,000 at most), for use on other data.
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
    fitted: RoutingRecalibration = field(metadata=UNSAVED)  # has a file of its own


def repair(
    predictions: Predictions,
    fits: list[tuple[np.ndarray, RoutingRecalibration]] | None = None,
    *,
    of: Of = "top",
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
) -> Repair:
    """Fit on earlier rows (`later_fits`, unless given), compare on later ones, then fit on all.

    >>> from calmoe.worlds.binary import cancelling
    >>> gain = repair(cancelling(seed=0, delta=0.15).sample(4000, seed=0))
    >>> gain.status, gain.nll.change.high < 0, gain.witness.change.high < 0
    ('repaired', True, True)
    """
    fits = fits or later_fits(predictions, seed)
    answered = _answered(predictions, fits)
    labels = answered[0].known_labels
    seen = [Configurations.of(answer, of) for answer in answered]
    losses = [-a.output.log_probs.double().gather(1, labels[:, None]).squeeze(1).numpy() for a in answered]
    right = [(answer.output.predicted == labels).double().numpy() for answer in answered]
    possible = np.isfinite(losses[0])
    ends = np.cumsum([len(rows) for rows, _ in fits])[:-1]
    order = np.split(np.arange(len(labels)), ends)
    everyone = np.random.default_rng(seed).permutation(len(predictions))[:MOST_TO_FIT]
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


def _answered(
    predictions: Predictions, fits: list[tuple[np.ndarray, RoutingRecalibration]]
) -> list[Predictions]:
    """The later rows as the temperatures answer them, and as the repairs do."""
    tempered, repaired, known = [], [], []
    for rows, fitted in fits:
        block = predictions.take(rows)
        log_probs = fitted.temperature_.transform(block.output.log_probs)
        tempered.append(block.output._replace(log_probs=log_probs))
        repaired.append(fitted.transform(block.output))
        known.append(block.known_labels)
    labels = torch.cat(known)
    return [Predictions(output=MixtureOutput.cat(outputs), labels=labels) for outputs in (tempered, repaired)]


def later_fits(predictions: Predictions, seed: int = 0) -> list[tuple[np.ndarray, RoutingRecalibration]]:
    """The rows of each later block, and the repair fitted on earlier rows."""
    parts = blocks(len(predictions), seed)
    return [
        (parts[i], _fit(predictions, np.concatenate(parts[:i][::-1])[:MOST_TO_FIT], seed))
        for i in range(1, len(parts))
    ]


def _fit(predictions: Predictions, rows: np.ndarray, seed: int) -> RoutingRecalibration:
    taught = predictions.take(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return RoutingRecalibration(seed=seed).fit(taught.output, taught.known_labels)


def _means(values: list[np.ndarray], level: float, highest: float) -> Compared:
    """Compare the means of values between 0 and `highest`."""
    before, after = values
    return Compared(
        temperature=within(mean(before, level), 0.0, highest),
        repaired=within(mean(after, level), 0.0, highest),
        change=within(mean(after - before, level), -highest, highest),
    )


def _witnesses(seen: list[Configurations], parts: list[np.ndarray], level: float, seed: int) -> Compared:
    gaps, errors = [], []
    for answer in seen:
        learned = learn(answer, seed, parts)
        gaps.append(answer.residual[learned.rows] * np.where(learned.expected >= 0, 1.0, -1.0))
        errors.append(spread(gaps[-1], answer.noise[learned.rows]))
    before, after = (at_least(float(g.mean()), e, level) for g, e in zip(gaps, errors, strict=True))
    return Compared(temperature=before, repaired=after, change=mean(gaps[1] - gaps[0], level))


def _eces(seen: list[Configurations], bins: int, level: float) -> Compared:
    def at_level(level: float) -> list[Estimate]:
        return [
            binned_gap(answer.residual, answer.bins(bins), bins, level=level, noise=answer.noise)
            for answer in seen
        ]

    (before, after), (outer, after_outer) = at_level(level), at_level((1 + level) / 2)
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


# --- how the report shows it --------------------------------------------------------------------------------


def sentences(repair: Repair) -> str:
    """What the repair would gain, or that it would not."""
    if not repair.kept and repair.status != "repaired":
        return f"none is offered beyond a temperature: {repair.message}."
    nll, witness, ece = repair.nll, repair.witness, repair.ece
    text = (
        f"on {repair.rows:,} rows that it was not fitted on, moving logits by routing changes the NLL by "
        f"{_change(nll)} beyond what a temperature does, what a witness finds by {_change(witness)} (from "
        f"{witness.temperature.value:.3f}) and the ECE by {_change(ece)} (from {ece.temperature.value:.3f})"
    )
    if repair.kept < repair.blocks:
        text += f"; {repair.blocks - repair.kept} of {repair.blocks} parts of the rows kept the temperature"
    return f"{text}. {_fitted(repair)}"


def _fitted(repair: Repair) -> str:
    """What was fitted on all rows; what cross-validation promised counts only where later rows keep it."""
    if repair.status == "repaired" and repair.nll.change.high >= 0:
        return "On these rows a gain over the temperature is not shown: take the temperature."
    return f"Fitted on all rows: {repair.message}."


def _change(compared: Compared) -> str:
    change = compared.change
    value, low, high = (decimal(number, 4, "+") for number in (change.value, change.low, change.high))
    return f"{value} [{low}, {high}]"


def comparison_table(repair: Repair) -> Grid:
    """Under the temperature, under the repair, and the change."""

    def row(title: str, key: str, compared: Compared) -> tuple[Entry, ...]:
        low, high = compared.change.low, compared.change.high
        return (
            label(title, key),
            number(max(compared.temperature.value, 0.0), decimals=4),  # a bound's estimate may be below 0
            number(max(compared.repaired.value, 0.0), decimals=4),
            signed(compared.change.value, decimals=4),
            interval(low, high, bold=low > 0 or high < 0, decimals=4),
        )

    rows = (
        row("NLL", "nll", repair.nll),
        row("ECE", "ece", repair.ece),
        row("E|m(S) − f|, from below", "witness", repair.witness),
        row("accuracy", "accuracy", repair.accuracy),
    )
    columns = headings(
        ("measure", "what"), ("temperature", "temperature"), ("repair", "repair"), ("change", "change*")
    )
    return Grid(f"{repair.rows:,} rows, each answered by fits on earlier rows only", columns, (rows,))


def _compute(material: Material, inside: Inside) -> Findings:
    rows = len(material.predictions)
    if rows < FEWEST_TO_LEARN:
        reason = f"there are {rows} rows; fitting on some and judging others needs {FEWEST_TO_LEARN}"
        return Findings({"repair": None}, {"repair": reason})
    return Findings({"repair": repair(material.predictions, **material.options)})


def _summary(repair: Repair, report: "AuditReport") -> Point:
    return Point("Repair", sentences(repair))


def _page(repair: Repair, report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    notes = [_fitted(repair)]
    if impossible := repair.impossible:
        notes.append(f"{impossible} rows give their label probability zero and are left out of the NLL.")
    return PageSection(
        heading="Repair",
        how="Both columns are on rows that neither was fitted on; an interval of the change that lies below "
        "zero is a gain. A repair that is not surely better by cross-validation is not made: the columns are "
        "then equal.",
        tables=[comparison_table(repair)],
        notes=notes,
    )


def _files(repair: Repair, report: "AuditReport") -> dict[str, bytes]:
    return {"repair.json": json_bytes(repair.fitted.to_dict())}


SECTION = Section(
    name="repair",
    cost=2,
    compute=_compute,
    summary=if_found("repair", _summary, None),
    page=if_found("repair", _page, None),
    files=if_found("repair", _files, {}),
)
