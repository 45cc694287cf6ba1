"""Figures by group: agreement levels, and every group with its size."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.lines import Line2D

from calmoe.errors import InputError
from calmoe.metrics.intervals import wilson
from calmoe.render.drawing import (
    FULL,
    GREY,
    LIGHT,
    STYLE,
    Drawn,
    draw_band,
    draw_legend,
    hang_label,
    new_figure,
    panel_grid,
)
from calmoe.report.curves import ECES, VIEWS, Curves
from calmoe.report.curves_over_seeds import by_method, mean_text, over_seeds, seed_counts, seeds_text
from calmoe.report.figure_cards import RunNumbers, curves_card
from calmoe.report.looks import fewer_seeds, legend_entries, looks
from calmoe.report.sections import BARS, GROUPS

LEVEL = "agreement_level"
MOST_GROUPS = 12


@rc_context(STYLE)
def levels(curves: Sequence[Curves], column: str = LEVEL) -> Drawn:
    """Accuracy and mean confidence, raw and scaled, by agreement level or another column of groups.

    Bars are Wilson's 95 % intervals of the accuracy; bands are standard errors over seeds.
    """
    runs = {m: seeds for m, seeds in by_method(curves).items() if column in seeds[0]["raw"]["groups"]}
    if not runs:
        raise InputError(f'no column "{column}" in the test predictions of this run')
    names = list(next(iter(runs.values()))[0]["raw"]["groups"][column])
    x = np.arange(len(names))
    rows, columns = panel_grid(len(runs))
    figure = new_figure(FULL, 1.45 * rows + 0.95)
    grid = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    reference = _measures(runs["vanilla"], "raw", column, names, "accuracy") if "vanilla" in runs else None
    lowest_text = []
    for axes, look, (method, seeds) in zip(grid, looks(runs).values(), runs.items(), strict=False):
        if reference is not None and method != "vanilla":
            axes.plot(x, over_seeds(reference)[0], color=LIGHT, ls="-", lw=2.5, zorder=0)
        right = over_seeds(_measures(seeds, "raw", column, names, "accuracy"))[0]
        count = over_seeds(_measures(seeds, "raw", column, names, "count"))[0]
        spread = np.abs(np.stack(wilson(right, np.where(count > 0, count, np.nan))) - right)
        axes.errorbar(x, right, spread, color=look.colour, marker=look.marker, elinewidth=0.6, lw=1.1)
        for view, dashes in (("raw", "--"), ("scaled", ":")):
            mean, error = over_seeds(_measures(seeds, view, column, names, "confidence"))
            draw_band(axes, x, mean, error, look.colour, ls=dashes)
        axes.set_title(look.title)
        axes.set_xticks(x, names, rotation=90)
        axes.set_xlim(-0.3, len(names) - 0.7)
        lowest_text.append(f"{look.title} {_level_text(seeds, column, names[0])}")
    for axes in grid[len(runs) :]:
        axes.remove()
    for axes in grid[len(runs) - columns : (rows - 1) * columns]:
        for at, name in zip(x, names, strict=True):
            hang_label(axes, name, axes.transLimits.transform((at, 0))[0], 5, rotation=90)
    grid[0].set_ylim(top=1.02)
    for axes in grid[(rows - 1) * columns : len(runs)]:
        axes.set_xlabel(column.replace("_", " "))
    figure.supylabel("accuracy, mean confidence", fontsize=7)
    shown = [
        Line2D([], [], color=GREY, marker="o", label="accuracy"),
        Line2D([], [], color=GREY, ls="--", label="confidence, raw"),
        Line2D([], [], color=GREY, ls=":", label="confidence, scaled"),
    ]
    if reference is not None:
        shown.append(Line2D([], [], color=LIGHT, lw=2.5, label="accuracy of Vanilla MoE"))
    draw_legend(figure, shown)
    sized = next(iter(runs.values()))[0]["raw"]["groups"][column]
    sizes = ", ".join(f"{name}: {level['count']} rows" for name, level in sized.items())
    return Drawn(
        figure,
        f"Accuracy and mean confidence by {column.replace('_', ' ')} ({sizes}), {seeds_text(runs)}. In "
        f"level {names[0]}: {'; '.join(lowest_text)}.",
    )


def _level_text(seeds: list[Curves], column: str, name: str) -> str:
    def mean(view: str, metric: str) -> str:
        return mean_text(_measures(seeds, view, column, [name], metric)[:, 0])

    return (
        f"accuracy {mean('raw', 'accuracy')}, confidence {mean('raw', 'confidence')} raw, "
        f"{mean('scaled', 'confidence')} scaled"
    )


def _measures(seeds: list[Curves], view: str, column: str, names: Sequence[str], metric: str) -> np.ndarray:
    """A metric by seed and group, [seeds, groups]; NaN where there is none."""
    columns = [c[view]["groups"].get(column, {}) for c in seeds]
    return np.array([[groups.get(name, {}).get(metric) for name in names] for groups in columns], dtype=float)


@rc_context(STYLE)
def groups(curves: Sequence[Curves], view: str = "raw") -> Drawn:
    """Accuracy and ECE of every group with its size; bars are standard errors over seeds.

    The ECE of a small group is biased upwards by its empty and thin bins: compare methods, not groups.
    """
    runs = by_method(curves)
    columns = next(iter(runs.values()))[0][view]["groups"]
    every = [(column, name, group["count"]) for column, by in columns.items() for name, group in by.items()]
    if not every:
        raise InputError("the test predictions of this run have no group columns")
    every.sort(key=lambda group: (group[0] == LEVEL, group[0] not in ("hard", "easy")))
    largest = sorted(every, key=lambda group: -group[2])[:MOST_GROUPS]
    shown = [group for group in every if group in largest]
    figure = new_figure(FULL, 3.6)
    panels = figure.subplots(2, 1, sharex=True)
    width = 0.8 / len(runs)
    worst_text = []
    titles = {"accuracy": "accuracy", "ece": ECES[view]}
    for axes, (metric, title) in zip(panels, titles.items(), strict=True):
        for i, (look, seeds) in enumerate(zip(looks(runs).values(), runs.values(), strict=True)):
            x = np.arange(len(shown)) + (i - (len(runs) - 1) / 2) * width
            values = [_measures(seeds, view, column, [name], metric)[:, 0] for column, name, _ in shown]
            mean, error = over_seeds(np.array(values).T)
            line: dict[str, Any] = {"color": look.colour, "marker": look.marker, "ls": "", "elinewidth": 0.8}
            axes.errorbar(x, mean, np.nan_to_num(error), **line)
            worst = max if metric == "ece" else min
            known = [(value, name) for value, (_, name, _) in zip(mean, shown, strict=True) if value == value]
            if known:
                value, name = worst(known)
                worst_text.append(f"{look.title} {title} {value:.3f} on {name}")
        for edge in np.arange(len(shown) - 1) + 0.5:
            axes.axvline(edge, color=LIGHT, lw=0.5)
        axes.set(ylabel=title, xlim=(-0.5, len(shown) - 0.5))
        axes.margins(y=0.08)
    panels[1].set_ylim(bottom=0)
    labels = [f"{name.replace('_', ' ')}\nn = {count:,}" for _, name, count in shown]
    panels[1].set_xticks(range(len(shown)), labels, rotation=0 if len(shown) < 10 else 45)
    panels[1].tick_params(axis="x", length=0)
    panels[0].tick_params(axis="x", length=0)
    draw_legend(figure, legend_entries(runs, fewer_seeds(seed_counts(runs)), ls=""))
    for column in columns:
        at = [i for i, group in enumerate(shown) if group[0] == column and group[1] != column]
        if at:
            above = panels[0].get_xaxis_transform()
            panels[0].text(np.mean(at), 1.01, column.replace("_", " "), transform=above, ha="center")
    sizes = ", ".join(f"{name}: {count} rows" for _, name, count in shown)
    left_out = len(every) - len(shown)
    more = f" {left_out} smaller groups are left out." if left_out else ""
    return Drawn(
        figure,
        f"Accuracy and ECE, {VIEWS[view]}, in {len(shown)} groups ({sizes}), {seeds_text(runs)}. Worst "
        f"groups: {'; '.join(worst_text)}.{more}",
    )


def _has_levels(numbers: RunNumbers) -> bool:
    return any(LEVEL in c["raw"]["groups"] for c in numbers.curves)


CARDS = (
    curves_card(
        "groups",
        GROUPS,
        groups,
        "Accuracy and ECE of every group, as trained. Compare methods within a group: small groups have an "
        f"inflated ECE. {BARS}",
    ),
    curves_card(
        "groups_scaled",
        GROUPS,
        partial(groups, view="scaled"),
        f"Accuracy and ECE of every group, after the temperature that validation chose. {BARS}",
    ),
    curves_card(
        "levels",
        GROUPS,
        levels,
        "Accuracy and mean confidence by level of agreement. Where confidence lies above accuracy, the "
        "method is overconfident on those rows. Bars are 95 % intervals of the accuracy, bands one standard "
        "error of the confidence over seeds.",
        applies=_has_levels,
    ),
)
