"""The audit's section on reliability: how often rows of a confidence come true, overall and by group."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.figures import BLUE, COLUMN, Figure
from calmoe.auditing.presentation.glossary import rate_name
from calmoe.auditing.presentation.numbers import cells, headings
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section
from calmoe.auditing.statistics.estimates import Estimate, binned_gap, normal, proportion, spread, within
from calmoe.defaults import BINS, LEVEL
from calmoe.metrics.groups import group_masks
from calmoe.predictions import Predictions
from calmoe.render.grid import Grid, count, label
from calmoe.render.page import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.auditing.audit_report import AuditReport

FEWEST_IN_GROUP = 100  # rows of a group: with fewer, an ECE's interval says next to nothing
MOST_LISTED = 40  # groups in the table


@dataclass(frozen=True, kw_only=True)
class Diagram:
    """Bin by bin: rows, mean confidence, and how often they come true; NaN where a bin is empty. [B]"""

    count: np.ndarray
    confidence: np.ndarray
    right: np.ndarray
    right_low: np.ndarray
    right_high: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Group:
    """The rows of one group: E[Y], the ECE at equal-width bins, and E[Y − f]; intervals hold one by one."""

    name: str
    rows: int
    accuracy: Estimate
    ece: Estimate
    balance: Estimate


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What shows without looking inside: the diagram of all rows; groups of at least 100, worst ECE first."""

    diagram: Diagram
    groups: tuple[Group, ...]


def surface(
    configurations: Configurations, predictions: Predictions, *, bins: int = BINS, level: float = LEVEL
) -> Surface:
    """The diagram, and each group of the file's columns of words, truth values or few whole numbers."""
    groups = [
        _group(name, configurations, mask, bins, level)
        for name, mask in group_masks(predictions.groups).items()
        if FEWEST_IN_GROUP <= mask.sum() < len(configurations)
    ]
    groups.sort(key=lambda group: -group.ece.value)
    return Surface(diagram=_diagram(configurations, bins, level), groups=tuple(groups[:MOST_LISTED]))


def _diagram(configurations: Configurations, bins: int, level: float) -> Diagram:
    table = configurations.reliability(bins)
    low, high = table.interval(level).T
    return Diagram(
        count=table.count,
        confidence=table.confidence,
        right=table.accuracy,
        right_low=low,
        right_high=high,
    )


def _group(name: str, configurations: Configurations, mask: np.ndarray, bins: int, level: float) -> Group:
    residual, noise, rows = configurations.residual[mask], configurations.noise[mask], int(mask.sum())
    return Group(
        name=name,
        rows=rows,
        accuracy=proportion(float(configurations.known_outcome[mask].mean()), rows, level),
        ece=binned_gap(residual, configurations.bins(bins)[mask], bins, level=level, noise=noise),
        balance=within(normal(float(residual.mean()), spread(residual, noise), level), -1.0, 1.0),
    )


# --- how the report shows it --------------------------------------------------------------------------------

CAPTION = (
    "A mark says how often rows of that confidence are right, with its interval; the bars "
    "below, how many such rows there are. Marks below the dotted line are overconfident, above it "
    "underconfident."
)


def draw_diagram(diagram: Diagram, canvas: "Canvas") -> str:
    """The reliability diagram above the share of rows in each bin."""
    from calmoe.render.plots import draw_bins, draw_diagonal  # with matplotlib

    above, below = canvas.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    used = diagram.count > 0
    x, y = diagram.confidence[used], diagram.right[used]
    interval = np.stack([diagram.right_low[used], diagram.right_high[used]], axis=1)
    draw_diagonal(above, lw=0.6)
    draw_bins(above, x, y, interval, color=BLUE, marker="s", lw=0.8)
    above.set(ylabel="how often right", xlim=(max(float(x.min()) - 0.05, 0), 1.01), ylim=(0, 1.01))
    below.bar(x, diagram.count[used] / diagram.count.sum(), width=0.6 / len(diagram.count), color=BLUE)
    below.set(xlabel="confidence", ylabel="rows")
    bins = ", ".join(f"{c:.2f} → {r:.2f}" for c, r in zip(x, y, strict=True))
    return f"Reliability diagram: mean confidence and how often right, bin by bin: {bins}."


def group_table(groups: Sequence[Group], rate: str) -> Grid:
    """One group a row; rate: what E[Y] is called."""
    rows = tuple(
        (
            label(group.name, group.name),
            count(group.rows),
            *cells(group.accuracy),
            *cells(group.ece),
            *cells(group.balance, sign=True),
        )
        for group in groups
    )
    columns = headings(
        ("group", "group"), ("rows", "rows"), (rate, "accuracy*"), ("ECE", "ece*"), ("balance", "balance*")
    )
    return Grid(f"Groups of at least {FEWEST_IN_GROUP} rows, the worst calibrated first", columns, (rows,))


def _compute(material: Material, inside: Inside) -> Findings:
    shown = surface(material.configurations, material.predictions, bins=material.bins, level=material.level)
    return Findings({"surface": shown})


def _figures(report: "AuditReport") -> list[Figure]:
    return [Figure("reliability", CAPTION, COLUMN, 3.3, partial(draw_diagram, report.surface.diagram))]


def _page(report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    groups = report.surface.groups
    return PageSection(
        heading="Reliability",
        how="Is it right as often as it says? Groups are those that the file names; each interval holds "
        "by itself.",
        tables=[group_table(groups, rate_name(report.judged))] if groups else [],
        figures=pictures,
    )


SECTION = Section(name="reliability", cost=0.5, compute=_compute, figures=_figures, page=_page)
