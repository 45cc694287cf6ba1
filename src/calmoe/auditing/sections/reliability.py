"""The audit's section on reliability: how often rows of a confidence come true."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.figures import BLUE, COLUMN, Figure
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section
from calmoe.defaults import BINS, LEVEL
from calmoe.render.page import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.auditing.audit_report import AuditReport


@dataclass(frozen=True, kw_only=True)
class Diagram:
    """Bin by bin: rows, mean confidence, and how often they come true; NaN where a bin is empty. [B]"""

    count: np.ndarray
    confidence: np.ndarray
    right: np.ndarray
    right_low: np.ndarray
    right_high: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What shows without looking inside: the diagram of all rows."""

    diagram: Diagram


def surface(configurations: Configurations, *, bins: int = BINS, level: float = LEVEL) -> Surface:
    """The diagram at equal-width bins."""
    return Surface(diagram=_diagram(configurations, bins, level))


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


def _compute(material: Material, inside: Inside) -> Findings:
    shown = surface(material.configurations, bins=material.bins, level=material.level)
    return Findings({"surface": shown})


def _figures(report: "AuditReport") -> list[Figure]:
    return [Figure("reliability", CAPTION, COLUMN, 3.3, partial(draw_diagram, report.surface.diagram))]


def _page(report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    return PageSection(
        heading="Reliability",
        how="Is it right as often as it says? Bin by bin of confidence.",
        figures=pictures,
    )


SECTION = Section(name="reliability", cost=0.5, compute=_compute, figures=_figures, page=_page)
