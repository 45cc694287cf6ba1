"""Figures of confidence against accuracy: reliability diagrams and histograms of the confidence."""

import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from calmoe.metrics import Reliability
from calmoe.render.drawing import (
    FULL,
    GREY,
    STYLE,
    Drawn,
    draw_legend,
    hang_label,
    new_figure,
    panel_grid,
)
from calmoe.render.plots import draw_bins, draw_diagonal, draw_histogram
from calmoe.report.curves import ECES, HISTOGRAM_BINS, VIEWS, Curves
from calmoe.report.curves_over_seeds import by_method, mean_text, over_seeds, seeds_text
from calmoe.report.figure_cards import curves_card
from calmoe.report.looks import Look, looks
from calmoe.report.sections import CONFIDENCE

THIN = 10  # rows, in the mean over seeds: a bin with fewer is faint and not joined to its neighbours
BINS_CAPTION = (
    f"Bars are 95 % intervals. Faint points are bins of fewer than {THIN} rows, in the mean over seeds: "
    "their accuracy says little."
)


@rc_context(STYLE)
def reliability(curves: Sequence[Curves], view: str = "raw") -> Drawn:
    """Accuracy against confidence in bins, for all data and the hard subset, a panel for each method.

    Bars are Wilson's 95 % intervals for one test set: seeds share its rows, so more seeds do not narrow them.
    The strip below shows each bin's share of the data. A bin that is empty for every seed has no point.
    """
    runs = by_method(curves)
    rows, columns = panel_grid(len(runs))
    figure = new_figure(FULL, 1.75 * rows + 0.35)
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3, 1] * rows)
    errors_text = []
    hard = any("hard" in seeds[0]["rows"] for seeds in runs.values())
    for i, (look, seeds) in enumerate(zip(looks(runs).values(), runs.values(), strict=True)):
        row, column = divmod(i, columns)
        axes, strip = reliability_axes(figure, grid, row, column)
        errors = reliability_panel(axes, strip, look, seeds, view)
        errors_text.append(f"{look.title} {' and '.join(map(mean_text, errors.values()))}")
        numbers = [f"{name} {np.mean(values):.3f}".replace("0.", ".") for name, values in errors.items()]
        between = ", " if view == "raw" else "\n"  # both after a temperature are as wide as the panel
        axes.set_title("\n".join([look.title, between.join(numbers)]))
        if row == rows - 1:
            strip.set_xlabel("confidence")
        elif i + columns >= len(runs):
            hang_label(strip, "confidence", 0.5, 15)
    draw_legend(figure, reliability_entries(hard))
    return Drawn(
        figure,
        f"Reliability diagrams, {VIEWS[view]}, {len(runs)} methods, {seeds_text(runs)}. Expected calibration "
        f"error on all data{' and on the hard subset' if hard else ''}: {'; '.join(errors_text)}.",
    )


def reliability_axes(
    figure: Figure, grid: GridSpec, row: int, column: int, ylabel: str = "accuracy"
) -> tuple[Axes, Axes]:
    """An empty panel and the strip below it; only the first panel of a row has labels on its axes."""
    axes = figure.add_subplot(grid[2 * row, column])
    strip = figure.add_subplot(grid[2 * row + 1, column], sharex=axes)
    axes.set(xlim=(0, 1.02), ylim=(-0.02, 1.04), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axes.tick_params(labelbottom=False, labelleft=column == 0)
    strip.set(ylim=(0, 1), yticks=[0, 1])
    strip.tick_params(labelleft=column == 0)
    strip.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    if column == 0:
        axes.set_ylabel(ylabel)
        strip.set_ylabel("share")
    return axes, strip


def reliability_panel(
    axes: Axes, strip: Axes, look: Look, seeds: list[Curves], view: str
) -> dict[str, list[float]]:
    """Draw one method; return its ECE by seed, on all data and on the hard subset."""
    draw_diagonal(axes)
    errors = {}
    for part, name, face, dashes in (("all", ECES[view], look.colour, "-"), ("hard", "hard", "white", "--")):
        tables = [c[view]["reliability"][part] for c in seeds if part in c[view]["reliability"]]
        if not tables:
            continue
        errors[name] = [t["ece"] for t in tables]
        table = _pooled(tables)
        points: dict[str, Any] = {"marker": look.marker, "mfc": face, "mew": 0.7, "elinewidth": 0.6}
        for faint in (True, False):
            shown = np.where((table.effective < THIN) == faint, table.confidence, np.nan)
            drawn = {"alpha": 0.35, "ls": ""} if faint else {"ls": dashes, "lw": 0.9}
            line: dict[str, Any] = {"color": look.colour, "zorder": 2 + (part == "all"), **points, **drawn}
            draw_bins(axes, shown, table.accuracy, table.interval(), **line)
        centres, width = (table.edges[1:] + table.edges[:-1]) / 2, 1 / len(table.count)
        filled: dict[str, Any] = {"color": look.colour, "alpha": 0.55, "lw": 0}
        outlined: dict[str, Any] = {"fill": False, "ec": look.colour, "lw": 0.6}
        strip.bar(centres, table.share, width, **(filled if part == "all" else outlined))
    return errors


def _pooled(tables: Sequence[dict[str, Any]]) -> Reliability:
    """One table from the rows of all seeds; its intervals count the rows of one seed, in the mean."""
    count = np.array([t["count"] for t in tables], dtype=float)
    total = count.sum(axis=0)

    def mean(name: str) -> np.ndarray:
        values = np.array([t[name] for t in tables], dtype=float)
        with np.errstate(invalid="ignore"):
            return np.where(count > 0, count * np.nan_to_num(values), 0).sum(axis=0) / total

    bins = count.shape[1]
    return Reliability(
        edges=np.arange(bins + 1) / bins,
        count=total.astype(np.int64),
        share=total / total.sum(),
        effective=np.where(total > 0, total / len(tables), np.nan),
        confidence=mean("confidence"),
        accuracy=mean("accuracy"),
    )


def reliability_entries(hard: bool) -> list[Line2D]:
    """The entries of the legend. hard: whether there is a hard subset."""
    shown = [Line2D([], [], color=GREY, marker="o", label="all data")]
    if hard:
        shown.append(Line2D([], [], color=GREY, marker="o", mfc="white", ls="--", label="hard subset"))
    return [*shown, Line2D([], [], color=GREY, ls=":", label="perfectly calibrated")]


@rc_context(STYLE)
def histograms(curves: Sequence[Curves], view: str = "raw") -> Drawn:
    """How confident each method is overall, on easy and on hard rows; mean confidence and accuracy marked."""
    runs = by_method(curves)
    parts = [p for p in ("all", "easy", "hard") if any(p in seeds[0]["rows"] for seeds in runs.values())]
    figure = new_figure(FULL if len(parts) > 1 else FULL / 2, 0.72 * len(runs) + 0.7)
    grid = figure.subplots(len(runs), len(parts), squeeze=False, sharex=True, sharey="col")
    edges = np.arange(HISTOGRAM_BINS + 1) / HISTOGRAM_BINS
    means_text = []
    for row, look, seeds in zip(grid, looks(runs).values(), runs.values(), strict=True):
        row[0].set_ylabel(textwrap.fill(look.title, 9), rotation=0, ha="right", va="center", labelpad=8)
        pairs = []
        for axes, part in zip(row, parts, strict=True):
            shown = [c[view]["histogram"][part] for c in seeds if part in c[view]["histogram"]]
            if not shown:
                axes.set_axis_off()
                continue
            share, _ = over_seeds([np.array(h["count"]) / sum(h["count"]) for h in shown])
            confidence, accuracy = (np.mean([h[name] for h in shown]) for name in ("confidence", "accuracy"))
            draw_histogram(axes, edges, share, confidence, accuracy, look.colour)
            pairs.append(f"{'overall' if part == 'all' else part} {confidence:.3f} and {accuracy:.3f}")
        means_text.append(f"{look.title}: {', '.join(pairs)}")
    for axes, part in zip(grid[0], parts, strict=True):
        n = next(seeds[0]["rows"][part] for seeds in runs.values() if part in seeds[0]["rows"])
        axes.set_title(f"{'overall' if part == 'all' else part} (n = {n:,})")
    for axes in grid[-1]:
        axes.set_xlabel("confidence")
    marks = [("--", "mean confidence"), (":", "accuracy")]
    lines = [Line2D([], [], color="black", ls=dashes, lw=0.9, label=name) for dashes, name in marks]
    draw_legend(figure, [Patch(color=GREY, alpha=0.55, label="share of rows"), *lines])
    return Drawn(
        figure,
        f"Histograms of confidence, {VIEWS[view]}, {len(runs)} methods, {seeds_text(runs)}. Mean confidence "
        f"and accuracy: {'; '.join(means_text)}.",
    )


CARDS = (
    curves_card(
        "reliability",
        CONFIDENCE,
        reliability,
        "Reliability, as trained. Points above the dotted line: less sure than right; below: more sure than "
        f"right. {BINS_CAPTION} The strip shows how many rows have that confidence.",
    ),
    curves_card(
        "reliability_scaled",
        CONFIDENCE,
        partial(reliability, view="scaled"),
        f"Reliability, after the temperature that validation chose. {BINS_CAPTION}",
    ),
    curves_card(
        "histograms",
        CONFIDENCE,
        histograms,
        "How confident each method is, as trained. The gap is mean confidence minus accuracy: above zero is "
        "overconfident.",
    ),
    curves_card(
        "histograms_scaled",
        CONFIDENCE,
        partial(histograms, view="scaled"),
        "How confident each method is, after the temperature that validation chose.",
    ),
)
