"""Figures over several target domains: dots by target, reliability by target, accuracy against calibration.

From rows (with "target") and, for reliability, from the curves of each target's run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.lines import Line2D

from calmoe.errors import InputError
from calmoe.methods import families, method_title
from calmoe.render.drawing import (
    ECES,
    FULL,
    GREY,
    LIGHT,
    STYLE,
    VIEWS,
    Drawn,
    by_method,
    entries,
    grid_of,
    key,
    looks,
    new_figure,
    range_told,
    told,
)
from calmoe.report.curves import Curves
from calmoe.report.figures import reliability_axes, reliability_handles, reliability_panel
from calmoe.report.tables import MISSING, Cell, Rows, Summary, column_title, summarise
from calmoe.report.targets import MEAN, by_target

SHOWN = ("accuracy", "ece", "ece_ts")
MAIN = ("vanilla", "robust", "robust_filtered", "entropic", "robust_brier")
WIDEST = 5  # panels a row


@rc_context(STYLE)
def targets_dots(rows: Rows, protocol: str, titles: Mapping[str, str]) -> Drawn:
    """Accuracy, ECE and ECE+TS of every method on every target and in the mean; bars: standard errors."""
    summaries, blocks = _summaries(rows, protocol, titles)
    methods = _methods(summaries)
    figure = new_figure(FULL, 1.35 * len(SHOWN) + 0.7)
    panels = figure.subplots(len(SHOWN), 1, sharex=True)
    width = 0.8 / len(methods)
    for axes, column in zip(panels, SHOWN, strict=True):
        for i, look in enumerate(looks(methods).values()):
            cells = [_cell(summaries[t], methods[i], column) for t in blocks]
            x = np.arange(len(blocks)) + (i - (len(methods) - 1) / 2) * width
            error = np.nan_to_num([cell.standard_error for cell in cells])
            line: dict[str, Any] = {"color": look.colour, "marker": look.marker, "ls": "", "elinewidth": 0.8}
            axes.errorbar(x, [cell.mean for cell in cells], error, **line)
        for edge in np.arange(len(blocks) - 1) + 0.5:
            last = edge == len(blocks) - 1.5
            axes.axvline(edge, color=GREY if last else LIGHT, lw=0.8 if last else 0.5)
        axes.set(ylabel=column_title(column), xlim=(-0.5, len(blocks) - 0.5))
        axes.margins(y=0.08)
        axes.tick_params(axis="x", length=0)
    for axes in panels[1:]:
        axes.set_ylim(bottom=0)
    panels[-1].set_xticks(range(len(blocks)), list(blocks.values()))
    key(figure, _handles(summaries, methods))
    return Drawn(
        figure,
        f"{_titles(SHOWN)} of {len(methods)} methods on {len(titles)} target domains and in the mean over "
        f"them, {_seeds(summaries)}. ECE+TS and accuracy: "
        f"{_by_block(summaries, blocks, methods, ('ece_ts', 'accuracy'))}.",
    )


@rc_context(STYLE)
def targets_scatter(rows: Rows, protocol: str, titles: Mapping[str, str]) -> Drawn:
    """Accuracy against ECE+TS, a panel a target and one for the mean; right and down is better."""
    summaries, blocks = _summaries(rows, protocol, titles)
    methods = _methods(summaries)
    lines, columns = grid_of(len(blocks), widest=3)
    figure = new_figure(FULL, 1.9 * lines + 0.6)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes, (target, title) in zip(grid.flat, blocks.items(), strict=False):
        for method, look in looks(methods).items():
            x, y = (_cell(summaries[target], method, column) for column in ("accuracy", "ece_ts"))
            error = np.nan_to_num([[y.standard_error], [x.standard_error]])
            marks: dict[str, Any] = {"marker": look.marker, "ls": "", "elinewidth": 0.7, "markersize": 4.5}
            drawn = axes.errorbar([x.mean], [y.mean], *error, color=look.colour, **marks)
            drawn[0].set_clip_on(False)  # whole at the end of the axis, too
        baseline = (
            _cell(summaries[target], "vanilla", "accuracy"),
            _cell(summaries[target], "vanilla", "ece_ts"),
        )
        for value, line in ((baseline[0].mean, axes.axvline), (baseline[1].mean, axes.axhline)):
            if not np.isnan(value):
                line(value, color=LIGHT, lw=0.6, zorder=0)
        axes.set_title(title)
        axes.margins(0.12)
        least, most = axes.get_xlim()
        axes.set_xlim(right=min(most, 1 + 0.005 * (1 - least)))  # ends at 1, and leaves a bar there its width
        axes.set_ylim(bottom=0)
    for axes in grid.flat[len(blocks) :]:
        axes.remove()
    for axes in grid.flat[max(0, len(blocks) - columns) : len(blocks)]:
        axes.set_xlabel("accuracy")
    for row in grid:
        row[0].set_ylabel("ECE+TS")
    key(figure, _handles(summaries, methods))
    return Drawn(
        figure,
        f"Accuracy against ECE after the temperature that validation chose, {len(titles)} target domains and "
        f"their mean, {len(methods)} methods, {_seeds(summaries)}; lower and further right is better. "
        "Accuracy and ECE+TS: "
        f"{_by_block(summaries, blocks, methods, ('accuracy', 'ece_ts'))}.",
    )


@rc_context(STYLE)
def targets_reliability(
    of_targets: Mapping[str, Sequence[Curves]], titles: Mapping[str, str], view: str = "raw"
) -> Drawn:
    """Reliability diagrams, a row of panels a target, of the main methods; read as the run's own figure."""
    runs = {target: by_method(of_targets[target]) for target in titles}
    there = [method for family in families({m for of in runs.values() for m in of}) for method in family]
    ranked = [*(m for m in MAIN if m in there), *(m for m in there if m not in MAIN)]
    chosen = [method for method in there if method in ranked[:WIDEST]]
    figure = new_figure(FULL, 1.72 * len(titles) + 0.35)
    grid = figure.add_gridspec(2 * len(titles), len(chosen), height_ratios=[3, 1] * len(titles))
    told_of = []
    for row, (target, title) in enumerate(titles.items()):
        for column, (method, look) in enumerate(looks(chosen).items()):
            axes, strip = reliability_axes(figure, grid, row, column, f"{title}\naccuracy")
            if row == len(titles) - 1:
                strip.set_xlabel("confidence")
            if method not in runs[target]:
                axes.set_title(f"{look.title}\nnot finished" if row == 0 else "not finished")
                continue
            errors = reliability_panel(axes, strip, look, runs[target][method], view)
            number = f"{ECES[view]} {np.mean(errors[ECES[view]]):.3f}".replace("0.", ".")
            axes.set_title(f"{look.title}\n{number}" if row == 0 else number)
            told_of.append(f"{title}, {look.title} {told(errors[ECES[view]])}")
    shared = any("hard" in c["rows"] for of in of_targets.values() for c in of)
    key(figure, reliability_handles(shared))
    return Drawn(
        figure,
        f"Reliability diagrams, {VIEWS[view]}, {len(titles)} target domains, {len(chosen)} methods. Expected "
        f"calibration error: {'; '.join(told_of)}.",
    )


def _summaries(
    rows: Rows, protocol: str, titles: Mapping[str, str]
) -> tuple[dict[str, Summary], dict[str, str]]:
    """By target, then the mean where some method has it; and what each is called."""
    found = {target: summarise(of, protocol) for target, of in by_target(rows, titles).items()}
    if not any(found.values()):
        raise InputError(f"there are no rows under protocol {protocol!r}: nothing to draw by target")
    blocks = {**titles, **({MEAN: "mean"} if found[MEAN] else {})}
    return found, blocks


def _methods(summaries: Mapping[str, Summary]) -> list[str]:
    names = dict.fromkeys(method for summary in summaries.values() for method in summary)
    return [method for family in families(names) for method in family]


def _cell(summary: Summary, method: str, column: str) -> Cell:
    return summary.get(method, {}).get(column, MISSING)


def _handles(summaries: Mapping[str, Summary], methods: Sequence[str]) -> list[Line2D]:
    """The methods' entries in a legend; one with fewer seeds than another, in any block, says so."""
    return entries({m: [_cell(of, m, "accuracy").n for of in summaries.values()] for m in methods}, ls="")


def _seeds(summaries: Mapping[str, Summary]) -> str:
    """Of a method on a target."""
    of_targets = (of for target, of in summaries.items() if target != MEAN)
    return range_told(cells.get("accuracy", MISSING).n for of in of_targets for cells in of.values())


def _titles(columns: Sequence[str]) -> str:
    *most, last = map(column_title, columns)
    return f"{', '.join(most)} and {last}"


def _by_block(
    summaries: Mapping[str, Summary],
    blocks: Mapping[str, str],
    methods: Sequence[str],
    columns: Sequence[str],
) -> str:
    def of(target: str, method: str) -> str:
        numbers = (f"{_cell(summaries[target], method, column).mean:.3f}" for column in columns)
        return f"{method_title(method)} {' and '.join(numbers)}"

    return "; ".join(
        f"{title}: {', '.join(of(target, m) for m in methods if m in summaries[target])}"
        for target, title in blocks.items()
    )
