"""Figures over several target domains: scores, reliability, and accuracy against calibration by target."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.lines import Line2D

from calmoe.errors import InputError
from calmoe.methods import families, method_title
from calmoe.render.drawing import (
    FULL,
    GREY,
    LIGHT,
    STYLE,
    Drawn,
    draw_legend,
    new_figure,
    panel_grid,
)
from calmoe.render.wording import count_range, listed
from calmoe.report.columns import column_title, columns_in
from calmoe.report.confidence_figures import (
    BINS_CAPTION,
    reliability_axes,
    reliability_entries,
    reliability_panel,
)
from calmoe.report.curves import ECES, VIEWS, Curves
from calmoe.report.curves_over_seeds import by_method, mean_text
from calmoe.report.figure_cards import FigureCard, TargetNumbers, has_curves
from calmoe.report.looks import fewer_seeds, legend_entries, looks
from calmoe.report.rows_over_seeds import Rows, Summary, cell_of, summarise
from calmoe.report.rows_over_targets import MEAN, by_target
from calmoe.report.sections import BARS, CONFIDENCE, SCATTER, TARGET_RESULTS

MAIN = ("vanilla", "robust", "robust_filtered", "entropic", "robust_brier")  # shown first
COLUMN_TITLES = listed([column_title(column) for column in columns_in("targets")])
WIDEST = 5  # panels in a row


@rc_context(STYLE)
def targets_dots(rows: Rows, protocol: str, titles: Mapping[str, str]) -> Drawn:
    """The scores of the main table for every method, by target and in the mean; bars: standard errors."""
    summaries, blocks = _summaries(rows, protocol, titles)
    methods = _methods(summaries)
    columns = columns_in("targets")
    figure = new_figure(FULL, 1.35 * len(columns) + 0.7)
    panels = figure.subplots(len(columns), 1, sharex=True)
    width = 0.8 / len(methods)
    for axes, column in zip(panels, columns, strict=True):
        for i, look in enumerate(looks(methods).values()):
            cells = [cell_of(summaries[t], methods[i], column) for t in blocks]
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
    draw_legend(figure, _entries(summaries, methods))
    return Drawn(
        figure,
        f"{COLUMN_TITLES} of {len(methods)} methods on {len(titles)} target "
        f"domains and in the mean over them, {_seeds_text(summaries)}. ECE+TS and accuracy: "
        f"{_means_text(summaries, blocks, methods, ('ece_ts', 'accuracy'))}.",
    )


@rc_context(STYLE)
def targets_scatter(rows: Rows, protocol: str, titles: Mapping[str, str]) -> Drawn:
    """Accuracy against ECE+TS, a panel for each target and one for the mean; right and down is better."""
    summaries, blocks = _summaries(rows, protocol, titles)
    methods = _methods(summaries)
    lines, columns = panel_grid(len(blocks), widest=3)
    figure = new_figure(FULL, 1.9 * lines + 0.6)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes, (target, title) in zip(grid.flat, blocks.items(), strict=False):
        for method, look in looks(methods).items():
            x, y = (cell_of(summaries[target], method, column) for column in ("accuracy", "ece_ts"))
            error = np.nan_to_num([[y.standard_error], [x.standard_error]])
            marks: dict[str, Any] = {"marker": look.marker, "ls": "", "elinewidth": 0.7, "markersize": 4.5}
            drawn = axes.errorbar([x.mean], [y.mean], *error, color=look.colour, **marks)
            drawn[0].set_clip_on(False)  # a marker at the end of the axis stays whole
        for column, line in (("accuracy", axes.axvline), ("ece_ts", axes.axhline)):
            baseline = cell_of(summaries[target], "vanilla", column).mean
            if not np.isnan(baseline):
                line(baseline, color=LIGHT, lw=0.6, zorder=0)
        axes.set_title(title)
        axes.margins(0.12)
        least, most = axes.get_xlim()
        axes.set_xlim(
            right=min(most, 1 + 0.005 * (1 - least))
        )  # the axis ends at 1, with room for a bar there
        axes.set_ylim(bottom=0)
    for axes in grid.flat[len(blocks) :]:
        axes.remove()
    for axes in grid.flat[max(0, len(blocks) - columns) : len(blocks)]:
        axes.set_xlabel("accuracy")
    for row in grid:
        row[0].set_ylabel("ECE+TS")
    draw_legend(figure, _entries(summaries, methods))
    return Drawn(
        figure,
        f"Accuracy against ECE after the temperature that validation chose, {len(titles)} target domains and "
        f"their mean, {len(methods)} methods, {_seeds_text(summaries)}; lower and further right is better. "
        "Accuracy and ECE+TS: "
        f"{_means_text(summaries, blocks, methods, ('accuracy', 'ece_ts'))}.",
    )


@rc_context(STYLE)
def targets_reliability(
    curves: Mapping[str, Sequence[Curves]], titles: Mapping[str, str], view: str = "raw"
) -> Drawn:
    """Reliability diagrams of the main methods, a row of panels for each target."""
    runs = {target: by_method(curves[target]) for target in titles}
    names = {method for methods in runs.values() for method in methods}
    known = [method for family in families(names) for method in family]
    ranked = [*(m for m in MAIN if m in known), *(m for m in known if m not in MAIN)]
    chosen = [method for method in known if method in ranked[:WIDEST]]
    figure = new_figure(FULL, 1.72 * len(titles) + 0.35)
    grid = figure.add_gridspec(2 * len(titles), len(chosen), height_ratios=[3, 1] * len(titles))
    errors_text = []
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
            errors_text.append(f"{title}, {look.title} {mean_text(errors[ECES[view]])}")
    hard = any("hard" in c["rows"] for own in curves.values() for c in own)
    draw_legend(figure, reliability_entries(hard))
    return Drawn(
        figure,
        f"Reliability diagrams, {VIEWS[view]}, {len(titles)} target domains, {len(chosen)} methods. Expected "
        f"calibration error: {'; '.join(errors_text)}.",
    )


def _summaries(
    rows: Rows, protocol: str, titles: Mapping[str, str]
) -> tuple[dict[str, Summary], dict[str, str]]:
    """The summary of each target and of the mean; and their titles, that of the mean if a method has it."""
    summaries = {target: summarise(own, protocol) for target, own in by_target(rows, titles).items()}
    if not any(summaries.values()):
        raise InputError(f"there are no rows under protocol {protocol!r}: nothing to draw by target")
    blocks = {**titles, **({MEAN: "mean"} if summaries[MEAN] else {})}
    return summaries, blocks


def _methods(summaries: Mapping[str, Summary]) -> list[str]:
    names = dict.fromkeys(method for summary in summaries.values() for method in summary)
    return [method for family in families(names) for method in family]


def _entries(summaries: Mapping[str, Summary], methods: Sequence[str]) -> list[Line2D]:
    """The methods' entries in a legend; one with fewer seeds than another, in any block, says so."""
    counts = {m: [cell_of(summary, m, "accuracy").n for summary in summaries.values()] for m in methods}
    return legend_entries(methods, fewer_seeds(counts), ls="")


def _seeds_text(summaries: Mapping[str, Summary]) -> str:
    """How many seeds a method has on a target."""
    apart = [summary for target, summary in summaries.items() if target != MEAN]
    return count_range((cell_of(own, method, "accuracy").n for own in apart for method in own), "seed")


def _means_text(
    summaries: Mapping[str, Summary],
    blocks: Mapping[str, str],
    methods: Sequence[str],
    columns: Sequence[str],
) -> str:
    def means(target: str, method: str) -> str:
        numbers = (f"{cell_of(summaries[target], method, column).mean:.3f}" for column in columns)
        return f"{method_title(method)} {' and '.join(numbers)}"

    return "; ".join(
        f"{title}: {', '.join(means(target, m) for m in methods if m in summaries[target])}"
        for target, title in blocks.items()
    )


CARDS: tuple[FigureCard[TargetNumbers], ...] = (
    FigureCard(
        name="targets",
        section=TARGET_RESULTS,
        caption=f"{COLUMN_TITLES} by target, and in the mean over targets. {BARS}",
        draw=lambda numbers: targets_dots(numbers.rows, numbers.protocol, numbers.titles),
    ),
    FigureCard(
        name="targets_scatter",
        section=SCATTER,
        caption="Accuracy against ECE after a temperature, a panel a target. Lower and further right is "
        f"better; grey lines go through Vanilla MoE. {BARS}",
        draw=lambda numbers: targets_scatter(numbers.rows, numbers.protocol, numbers.titles),
    ),
    FigureCard(
        name="targets_reliability",
        section=CONFIDENCE,
        caption="Reliability by target, as trained, of the main methods. Points below the dotted line are "
        f"more sure than right. {BINS_CAPTION} Each target's own report has all methods.",
        draw=lambda numbers: targets_reliability(numbers.curves, numbers.titles),
        applies=has_curves,
    ),
    FigureCard(
        name="targets_reliability_scaled",
        section=CONFIDENCE,
        caption="Reliability by target, after the temperature that validation chose on the source domains. "
        "What is left of the gap is what that temperature cannot know of the target. "
        f"{BINS_CAPTION}",
        draw=lambda numbers: targets_reliability(numbers.curves, numbers.titles, "scaled"),
        applies=has_curves,
    ),
)
