"""The report on all rows: what is learned from the sample, and every number that sums give put in its place.

The audit of the sample fills the report; the numbers below replace the sample's. A section or a number that
is not named here is the sample's, and the report says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from calmoe.auditing.audit_report import SECTIONS, AuditReport
from calmoe.auditing.configurations import CHUNK, Configurations
from calmoe.auditing.sampled import Sampled
from calmoe.auditing.sections.calibration import FEWEST_EFFECTIVE, Aggregate, Expert
from calmoe.auditing.sections.groups import MOST_GROUPS, Group, Groups, judged, levels
from calmoe.auditing.sections.reliability import Diagram, Surface
from calmoe.auditing.sections.skill import Skill, missed
from calmoe.auditing.statistics.after_answer import ANSWERS
from calmoe.auditing.statistics.estimates import NONE, RARE, Estimate, normal, proportion, within
from calmoe.auditing.statistics.gaps import ROWS, Cells
from calmoe.auditing.statistics.group_columns import MISSING
from calmoe.auditing.streaming.counting import classwise_cells, expert_cells
from calmoe.auditing.streaming.from_sums import (
    WeightedGaps,
    binned_gap_from,
    celled_gap_from,
    mean_from,
    spread_from,
)
from calmoe.auditing.streaming.sample import Sample
from calmoe.auditing.streaming.sums import MOST, GroupColumn, Sums, Tally
from calmoe.metrics.binned import Reliability
from calmoe.predictions import Predictions

EVERYTHING = "all of this part"
OF_SAMPLE = {
    "reliability": "",
    "groups": "the rows of each predicted class",
    "skill": "AUROC and average precision",
    "calibration": "the ECE at bins of equal mass, the smooth ECE, the mixture's ECE less that of each view, "
    "and the correlations behind the class-wise and the experts' ECE",
}
"""Of the sections that sums fill, what still rests on the sample."""


def on_all_rows(report: AuditReport, sums: Sums, sample: Sample) -> AuditReport:
    """The sample's report with the numbers of all rows in place of the sample's."""
    level, rows = report.level, sums.rows
    largest, least = sums.peaks["routing"].T
    fragility = report.fragility
    return replace(
        report,
        rows=rows,
        unlike=float(sums.peaks["unlike"][0]),
        routed=bool((largest + least > 1e-6).any()),
        surface=Surface(diagram=_diagram(Tally(*sums.totals["bins"]), level)),
        skill=_skill(report.skill, sums.totals["labels"], report.of == "top", level),
        groups=_groups(sums, level, report.groups),
        aggregate=_aggregate(report, sums, sample.predictions),
        # the numbers of the judged rows in the whole table
        fragility=None if fragility is None else replace(fragility, rows=sample.numbers[fragility.rows]),
        sampled=Sampled(rows=len(sample.numbers), numbers=_of_sample(report)),
    )


def _of_sample(report: AuditReport) -> dict[str, str]:
    sections = [section.name for section in SECTIONS if section.name != "target" or report.target is not None]
    return {name: text for name in sections if (text := OF_SAMPLE.get(name, EVERYTHING))}


def _diagram(tally: Tally, level: float) -> Diagram:
    with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN of an empty bin
        table = Reliability(
            edges=np.linspace(0, 1, len(tally.rows) + 1),
            count=tally.rows.astype(np.int64),
            share=tally.rows / tally.rows.sum(),
            effective=np.where(tally.rows > 0, tally.rows, np.nan),
            confidence=(tally.right - tally.gap) / tally.rows,
            accuracy=tally.right / tally.rows,
        )
    low, high = table.interval(level).T
    return Diagram(
        count=table.count, confidence=table.confidence, right=table.accuracy, right_low=low, right_high=high
    )


def _skill(sampled: Skill, labels: np.ndarray, top: bool, level: float) -> Skill:
    """labels: as `counting` has them. Only AUROC and average precision stay the sample's."""
    counts, hits, losses, _, infinite = labels
    rows, impossible = int(counts.sum()), int(infinite.sum())
    usual, used = int(counts.argmax()), counts > 0
    base = np.zeros(len(counts))
    base[used] = -np.log(counts[used] / rows)
    # hits − 1[the label is the usual one] is 1 for hits elsewhere, −1 for misses of the usual label
    better, worse = float(hits.sum() - hits[usual]), float(counts[usual] - hits[usual])
    nll = float("inf") if impossible else float(losses.sum()) / rows
    expected = float(counts @ base) / rows
    return replace(
        sampled,
        accuracy=proportion(float(hits.sum()) / rows, rows, level),
        majority=proportion(float(counts[usual]) / rows, rows, level),
        gain=within(mean_from(better - worse, better + worse, rows, level), -1.0, 1.0),
        nll=nll,
        base_nll=expected,
        log_skill=_log_skill(labels, base, nll, expected, level),
        impossible=impossible,
        base_rate=None if sampled.positive is None else float(counts[-1]) / rows,
        missed=missed(counts, hits, level) if top else (),
    )


def _log_skill(labels: np.ndarray, base: np.ndarray, nll: float, expected: float, level: float) -> Estimate:
    """1 − E[loss]/E[base]; a row's influence on it is (ratio base − loss) / E[base], of mean 0."""
    counts, _, losses, squares, _ = labels
    if expected <= 0:  # one label only: the base rates cannot be beaten
        nothing = -np.inf if nll > 0 else 0.0
        return Estimate(nothing, nothing, 0.0, float("nan"))
    if not np.isfinite(nll):
        return Estimate(-np.inf, -np.inf, -np.inf, float("nan"))
    ratio = nll / expected
    influence = (counts @ (ratio * base) ** 2 - 2 * ratio * losses @ base + squares.sum()) / expected**2
    error = mean_from(0.0, float(influence), int(counts.sum()), level).standard_error
    estimate = normal(1 - ratio, error, level)
    return estimate._replace(high=min(estimate.high, 1.0))


def _aggregate(report: AuditReport, sums: Sums, sample: Predictions) -> Aggregate:
    bins, level, rows = report.bins, report.level, sums.rows
    tally = Tally(*sums.totals["bins"])
    ece = _ece(tally, level)
    each = 1 - (1 - level) / report.num_experts
    sampled = report.aggregate
    return replace(
        sampled,
        ece=ece,
        plain_ece=ece._replace(value=float(np.abs(tally.gap).sum()) / rows),
        accuracy=proportion(float(tally.right.sum()) / rows, rows, level),
        balance=_balance(tally, level),
        classwise_ece=celled_gap_from(
            sums.totals["classwise"],
            _some(sample, lambda part: classwise_cells(part, bins)),
            rows,
            level,
            unit=1 / report.classes,
        ),
        experts_ece=celled_gap_from(
            sums.totals["experts"],
            _some(sample, lambda part: expert_cells(Configurations.of(part, report.of), bins)),
            rows,
            level,
        ),
        experts=tuple(_expert(expert, sums, k, each) for k, expert in enumerate(sampled.experts)),
    )


def _some(sample: Predictions, cells: Callable[[Predictions], Cells]) -> Iterator[Cells]:
    """Cells of at most ROWS rows of the sample, some at a time."""
    chosen = np.arange(0, len(sample), -(-len(sample) // ROWS))
    for start in range(0, len(chosen), CHUNK):
        yield cells(sample.take(chosen[start : start + CHUNK]))


def _ece(tally: Tally, level: float, rare: float = RARE) -> Estimate:
    return binned_gap_from(WeightedGaps.even(tally), (tally.rows > 0).astype(np.float64), level, rare)


def _balance(tally: Tally, level: float, rare: float = RARE) -> Estimate:
    gap, square, noise, rows = tally.gap.sum(), tally.square.sum(), tally.noise.sum(), int(tally.rows.sum())
    error = spread_from(float(gap), float(square), float(noise), rows, rare)
    return within(normal(float(gap) / rows, error, level), -1.0, 1.0)


def _expert(sampled: Expert, sums: Sums, k: int, level: float) -> Expert:
    rows, view, region = sums.rows, *(WeightedGaps(*sums.totals[name][k]) for name in ("views", "regions"))
    share, squares = map(float, sums.totals["shares"][k])
    pull, pull_squares, noise = map(float, sums.totals["balances"][k])
    error = spread_from(pull, pull_squares, noise, rows)
    return replace(
        sampled,
        share=within(mean_from(share, squares, rows, level), 0.0, 1.0),
        leads=proportion(float(region.weight.sum()) / rows, rows, level),
        view=_ece_under(view, sums.peaks["heaviest"][k], level),
        region=_ece_under(region, (region.weight > 0).astype(np.float64), level),
        balance=within(normal(pull / rows, error, level), -1.0, 1.0),
    )


def _ece_under(sums: WeightedGaps, heaviest: np.ndarray, level: float) -> Estimate:
    return NONE if sums.effective < FEWEST_EFFECTIVE else binned_gap_from(sums, heaviest, level)


# --- groups -------------------------------------------------------------------------------------------------


def _groups(sums: Sums, level: float, sampled: Groups) -> Groups:
    """Every group, as `sections.groups` orders and names them; the sample tells which go with the answer."""
    answers = {column: why for column, why in sampled.unlisted.items() if why in ANSWERS}
    tallies = {
        (column, name): tally
        for column, own in sums.groups.items()
        if column not in answers
        for name, tally in _named(column, own).items()
    }
    each, _ = levels(level, len(tallies), len(sampled.by_prediction))
    largest = sorted(tallies, key=lambda key: -int(tallies[key].rows.sum()))[:MOST_GROUPS]
    groups = [_group(*key, tallies[key], each) for key in largest]
    groups.sort(key=lambda group: (group.state == "too few rows", -np.nan_to_num(group.ece.value, nan=-1.0)))
    unlisted = {column: _why(own) for column, own in sums.groups.items() if own.values is None} | answers
    if len(tallies) > MOST_GROUPS:
        unlisted["smaller groups"] = f"only the {MOST_GROUPS} largest of {len(tallies)} are listed"
    column = next((own.values for own in sums.groups.values() if own.values), None)  # any has all rows
    ece = sampled.ece if column is None else _ece(Tally(*np.sum(list(column.values()), axis=0)), level)
    return replace(sampled, groups=tuple(groups), unlisted=unlisted, ece=ece)


def _named(column: str, own: GroupColumn) -> dict[str, Tally]:
    """The tallies of a column by the names of its groups, in the order of its values."""
    if own.values is None:
        return {}
    if own.kind == "truth":
        return {column: Tally(*own.values["True"]), f"not {column}": Tally(*own.values["False"])}
    values = sorted(own.values, key=int if own.kind == "whole numbers" else str)
    return {f"{column} {value.strip() or MISSING}": Tally(*own.values[value]) for value in values}


def _group(column: str, name: str, tally: Tally, level: float) -> Group:
    rows = int(tally.rows.sum())
    rare = float(rows)  # as `sections.groups` takes it
    ece, balance = (measure(tally, level, rare) if rows else NONE for measure in (_ece, _balance))
    return Group(
        name=name,
        column=column,
        rows=rows,
        accuracy=proportion(float(tally.right.sum()) / rows, rows, level) if rows else NONE,
        confidence=float((tally.right - tally.gap).sum()) / rows if rows else float("nan"),
        ece=ece,
        balance=balance,
        state=judged(ece, balance) if rows else "too few rows",
    )


def _why(own: GroupColumn) -> str:
    if own.kind == "measurements":
        return "measurements"
    return f"more than {MOST[own.kind]} values"
