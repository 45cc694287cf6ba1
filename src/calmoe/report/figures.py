"""A run's figures from its curves: how confidence meets accuracy, in bins and in histograms.

Every figure's function takes the curves of one run, all methods and seeds, and gives a `Drawn`: the figure
and its alt text. `draw` draws all that the run has the numbers for. Groups are in `calmoe.report.groups`,
the frontier and what goes on inside a mixture in `calmoe.report.frontier_routing`.
"""

import textwrap
from collections.abc import Callable, Sequence
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
    ECES,
    FULL,
    GREY,
    STYLE,
    VIEWS,
    Drawn,
    Look,
    by_method,
    draw_all,
    grid_of,
    hang,
    key,
    looks,
    new_figure,
    over_seeds,
    seeds_told,
    told,
)
from calmoe.report.curves import HISTOGRAM_BINS, Curves
from calmoe.report.frontier_routing import frontier, routing, tilt
from calmoe.report.groups import LEVEL, groups, levels

THIN = 10  # rows, in the mean over seeds: a bin with fewer is drawn faint and not joined to its neighbours


@rc_context(STYLE)
def reliability(of_runs: Sequence[Curves], view: str = "raw") -> Drawn:
    """Accuracy against confidence in 15 bins, all data and hard subset, a panel a method.

    Bars are Wilson's 95 % intervals for one test set: seeds share its rows, so they do not narrow it. The
    strip below shows each bin's share of the data. A bin that is empty for every seed has no point.
    """
    runs = by_method(of_runs)
    rows, columns = grid_of(len(runs))
    figure = new_figure(FULL, 1.75 * rows + 0.35)
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3, 1] * rows)
    told_of = []
    hard = any("hard" in seeds[0]["rows"] for seeds in runs.values())
    for i, (look, seeds) in enumerate(zip(looks(runs).values(), runs.values(), strict=True)):
        row, column = divmod(i, columns)
        axes, strip = reliability_axes(figure, grid, row, column)
        errors = reliability_panel(axes, strip, look, seeds, view)
        told_of.append(f"{look.title} {' and '.join(map(told, errors.values()))}")
        numbers = [f"{name} {np.mean(values):.3f}".replace("0.", ".") for name, values in errors.items()]
        between = ", " if view == "raw" else "\n"  # both after a temperature are as wide as the panel
        axes.set_title("\n".join([look.title, between.join(numbers)]))
        if row == rows - 1:
            strip.set_xlabel("confidence")
        elif i + columns >= len(runs):
            hang(strip, "confidence", 0.5, 15)
    key(figure, reliability_handles(hard))
    return Drawn(
        figure,
        f"Reliability diagrams, {VIEWS[view]}, {len(runs)} methods, {seeds_told(runs)}. Expected calibration "
        f"error on all data{' and on the hard subset' if hard else ''}: {'; '.join(told_of)}.",
    )


def reliability_axes(
    figure: Figure, grid: GridSpec, row: int, column: int, named: str = "accuracy"
) -> tuple[Axes, Axes]:
    """An empty panel and the strip below it; the first of a row has its axis `named`."""
    axes = figure.add_subplot(grid[2 * row, column])
    strip = figure.add_subplot(grid[2 * row + 1, column], sharex=axes)
    axes.set(xlim=(0, 1.02), ylim=(-0.02, 1.04), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axes.tick_params(labelbottom=False, labelleft=column == 0)
    strip.set(ylim=(0, 1), yticks=[0, 1])
    strip.tick_params(labelleft=column == 0)
    strip.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    if column == 0:
        axes.set_ylabel(named)
        strip.set_ylabel("share")
    return axes, strip


def reliability_panel(
    axes: Axes, strip: Axes, look: Look, seeds: list[Curves], view: str
) -> dict[str, list[float]]:
    """Draw one method; its ECE by seed, on all data and on the hard subset."""
    axes.plot([0, 1], [0, 1], color=GREY, ls=":", lw=0.8)
    errors = {}
    for part, name, face, dashes in (("all", ECES[view], look.colour, "-"), ("hard", "hard", "white", "--")):
        tables = [c[view]["reliability"][part] for c in seeds if part in c[view]["reliability"]]
        if not tables:
            continue
        errors[name] = [t["ece"] for t in tables]
        table = _pooled(tables)
        spread = np.abs(table.interval().T - table.accuracy)
        points: dict[str, Any] = {"marker": look.marker, "mfc": face, "mew": 0.7, "elinewidth": 0.6}
        for faint in (True, False):
            shown = np.where((table.effective < THIN) == faint, table.confidence, np.nan)
            drawn = {"alpha": 0.35, "ls": ""} if faint else {"ls": dashes, "lw": 0.9}
            line: dict[str, Any] = {"color": look.colour, "zorder": 2 + (part == "all"), **points, **drawn}
            axes.errorbar(shown, table.accuracy, spread, **line)
        centres, width = (table.edges[1:] + table.edges[:-1]) / 2, 1 / len(table.count)
        filled: dict[str, Any] = {"color": look.colour, "alpha": 0.55, "lw": 0}
        outlined: dict[str, Any] = {"fill": False, "ec": look.colour, "lw": 0.6}
        strip.bar(centres, table.share, width, **(filled if part == "all" else outlined))
    return errors


def _pooled(tables: Sequence[dict[str, Any]]) -> Reliability:
    """One table from all seeds' rows; what counts for its intervals is one seed's number of rows."""
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


def reliability_handles(hard: bool) -> list[Line2D]:
    shown = [Line2D([], [], color=GREY, marker="o", label="all data")]
    if hard:
        shown.append(Line2D([], [], color=GREY, marker="o", mfc="white", ls="--", label="hard subset"))
    return [*shown, Line2D([], [], color=GREY, ls=":", label="perfectly calibrated")]


@rc_context(STYLE)
def histograms(of_runs: Sequence[Curves], view: str = "raw") -> Drawn:
    """How confident each method is overall, on easy and on hard rows; mean confidence and accuracy marked."""
    runs = by_method(of_runs)
    parts = [p for p in ("all", "easy", "hard") if any(p in seeds[0]["rows"] for seeds in runs.values())]
    figure = new_figure(FULL if len(parts) > 1 else FULL / 2, 0.72 * len(runs) + 0.7)
    grid = figure.subplots(len(runs), len(parts), squeeze=False, sharex=True, sharey="col")
    edges = np.arange(HISTOGRAM_BINS + 1) / HISTOGRAM_BINS
    told_of = []
    for row, look, seeds in zip(grid, looks(runs).values(), runs.values(), strict=True):
        name = textwrap.fill(look.title, 9)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8)
        gaps = []
        for axes, part in zip(row, parts, strict=True):
            found = [c[view]["histogram"][part] for c in seeds if part in c[view]["histogram"]]
            if not found:
                axes.set_axis_off()
                continue
            share, _ = over_seeds([np.array(h["count"]) / sum(h["count"]) for h in found])
            axes.bar(edges[:-1], share, 1 / HISTOGRAM_BINS, align="edge", color=look.colour, alpha=0.55)
            means = [np.mean([h[name] for h in found]) for name in ("confidence", "accuracy")]
            for mean, dashes in zip(means, ("--", ":"), strict=True):
                axes.axvline(mean, color="black", ls=dashes, lw=0.9)
            gap = f"gap {means[0] - means[1]:+.3f}".replace("-", "−")
            axes.text(0.03, 0.95, gap, transform=axes.transAxes, va="top")
            axes.set(xlim=(0, 1), xticks=[0, 0.5, 1])
            gaps.append(f"{'overall' if part == 'all' else part} {means[0]:.3f} and {means[1]:.3f}")
        told_of.append(f"{look.title}: {', '.join(gaps)}")
    for axes, part in zip(grid[0], parts, strict=True):
        n = next(seeds[0]["rows"][part] for seeds in runs.values() if part in seeds[0]["rows"])
        axes.set_title(f"{'overall' if part == 'all' else part} (n = {n:,})")
    for axes in grid[-1]:
        axes.set_xlabel("confidence")
    marks = [("--", "mean confidence"), (":", "accuracy")]
    bars = Patch(color=GREY, alpha=0.55, label="share of rows")
    key(figure, [bars, *(Line2D([], [], color="black", ls=ls, lw=0.9, label=name) for ls, name in marks)])
    return Drawn(
        figure,
        f"Histograms of confidence, {VIEWS[view]}, {len(runs)} methods, {seeds_told(runs)}. Mean confidence "
        f"and accuracy: {'; '.join(told_of)}.",
    )


FIGURES: dict[str, Callable[[Sequence[Curves]], Drawn]] = {
    "reliability": reliability,
    "reliability_scaled": partial(reliability, view="scaled"),
    "groups": groups,
    "groups_scaled": partial(groups, view="scaled"),
    "levels": levels,
    "histograms": histograms,
    "histograms_scaled": partial(histograms, view="scaled"),
    "frontier": frontier,
    "tilt": tilt,
    "routing": routing,
}


def draw(of_runs: Sequence[Curves]) -> tuple[dict[str, Drawn], dict[str, str]]:
    """All figures by name, and by name why one is missing.

    Data without levels of agreement can have no such figure: that is nothing to be told.
    """
    has_levels = any(LEVEL in c["raw"]["groups"] for c in of_runs)
    names = [name for name in FIGURES if has_levels or name != "levels"]
    return draw_all({name: partial(FIGURES[name], of_runs) for name in names})
