"""Figures by group: agreement levels, and every group with its size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.lines import Line2D

from calmoe.errors import InputError
from calmoe.metrics.intervals import wilson
from calmoe.render.drawing import (
    ECES,
    FULL,
    GREY,
    LIGHT,
    STYLE,
    VIEWS,
    Drawn,
    band,
    by_method,
    grid_of,
    handles,
    hang,
    key,
    looks,
    new_figure,
    over_seeds,
    seeds_told,
    told,
)
from calmoe.report.curves import Curves

LEVEL = "agreement_level"
MOST_GROUPS = 12


@rc_context(STYLE)
def levels(of_runs: Sequence[Curves], column: str = LEVEL) -> Drawn:
    """Accuracy and mean confidence, raw and scaled, by agreement level (or another column), a panel a method.

    Bars are Wilson's 95 % intervals of the accuracy; bands are standard errors over seeds.
    """
    runs = {m: seeds for m, seeds in by_method(of_runs).items() if column in seeds[0]["raw"]["groups"]}
    if not runs:
        raise InputError(f'no column "{column}" in the test predictions of this run')
    names = list(next(iter(runs.values()))[0]["raw"]["groups"][column])
    x = np.arange(len(names))
    rows, columns = grid_of(len(runs))
    figure = new_figure(FULL, 1.45 * rows + 0.95)
    grid = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    reference = _of_groups(runs["vanilla"], "raw", column, names, "accuracy") if "vanilla" in runs else None
    told_of = []
    for axes, look, (method, seeds) in zip(grid, looks(runs).values(), runs.items(), strict=False):
        if reference is not None and method != "vanilla":
            axes.plot(x, over_seeds(reference)[0], color=LIGHT, ls="-", lw=2.5, zorder=0)
        right = over_seeds(_of_groups(seeds, "raw", column, names, "accuracy"))[0]
        count = over_seeds(_of_groups(seeds, "raw", column, names, "count"))[0]
        axes.errorbar(
            x, right, _wilson(right, count), color=look.colour, marker=look.marker, elinewidth=0.6, lw=1.1
        )
        for view, dashes in (("raw", "--"), ("scaled", ":")):
            band(axes, x, *over_seeds(_of_groups(seeds, view, column, names, "confidence")), look, ls=dashes)
        axes.set_title(look.title)
        axes.set_xticks(x, names, rotation=90)
        axes.set_xlim(-0.3, len(names) - 0.7)
        told_of.append(f"{look.title} {_at(seeds, column, names[0])}")
    for axes in grid[len(runs) :]:
        axes.remove()
    for axes in grid[len(runs) - columns : (rows - 1) * columns]:
        for at, name in zip(x, names, strict=True):
            hang(axes, name, axes.transLimits.transform((at, 0))[0], 5, rotation=90)
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
    key(figure, shown)
    of_levels = next(iter(runs.values()))[0]["raw"]["groups"][column]
    sizes = ", ".join(f"{name}: {level['count']} rows" for name, level in of_levels.items())
    return Drawn(
        figure,
        f"Accuracy and mean confidence by {column.replace('_', ' ')} ({sizes}), {seeds_told(runs)}. In "
        f"level {names[0]}: {'; '.join(told_of)}.",
    )


def _at(seeds: list[Curves], column: str, name: str) -> str:
    def of(view: str, metric: str) -> str:
        return told(_of_groups(seeds, view, column, [name], metric)[:, 0])

    return (
        f"accuracy {of('raw', 'accuracy')}, confidence {of('raw', 'confidence')} raw, "
        f"{of('scaled', 'confidence')} scaled"
    )


def _of_groups(seeds: list[Curves], view: str, column: str, names: Sequence[str], metric: str) -> np.ndarray:
    """A metric by seed and group, NaN where there is none."""
    found = [[c[view]["groups"].get(column, {}).get(name, {}).get(metric) for name in names] for c in seeds]
    return np.array(found, dtype=float)


def _wilson(share: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Distances down and up to the ends of the 95 % interval, [2, groups]."""
    return np.abs(np.stack(wilson(share, np.where(count > 0, count, np.nan))) - share)


@rc_context(STYLE)
def groups(of_runs: Sequence[Curves], view: str = "raw") -> Drawn:
    """Accuracy and ECE of every group with its size; bars are standard errors over seeds.

    The ECE of a small group is biased upwards by its empty and thin bins: compare methods, not groups.
    """
    runs = by_method(of_runs)
    columns = next(iter(runs.values()))[0][view]["groups"]
    found = [(column, name, value["count"]) for column, of in columns.items() for name, value in of.items()]
    if not found:
        raise InputError("the test predictions of this run have no group columns")
    found.sort(key=lambda group: (group[0] == LEVEL, group[0] not in ("hard", "easy")))
    shown = sorted(found, key=lambda group: -group[2])[:MOST_GROUPS]
    found = [group for group in found if group in shown]
    figure = new_figure(FULL, 3.6)
    panels = figure.subplots(2, 1, sharex=True)
    width = 0.8 / len(runs)
    told_of = []
    titles = {"accuracy": "accuracy", "ece": ECES[view]}
    for axes, (metric, title) in zip(panels, titles.items(), strict=True):
        for i, (look, seeds) in enumerate(zip(looks(runs).values(), runs.values(), strict=True)):
            x = np.arange(len(found)) + (i - (len(runs) - 1) / 2) * width
            of = [_of_groups(seeds, view, column, [name], metric)[:, 0] for column, name, _ in found]
            mean, error = over_seeds(np.array(of).T)
            line: dict[str, Any] = {"color": look.colour, "marker": look.marker, "ls": "", "elinewidth": 0.8}
            axes.errorbar(x, mean, np.nan_to_num(error), **line)
            worst = max if metric == "ece" else min
            known = [(value, name) for value, (_, name, _) in zip(mean, found, strict=True) if value == value]
            if known:
                value, name = worst(known)
                told_of.append(f"{look.title} {title} {value:.3f} on {name}")
        for edge in np.arange(len(found) - 1) + 0.5:
            axes.axvline(edge, color=LIGHT, lw=0.5)
        axes.set(ylabel=title, xlim=(-0.5, len(found) - 0.5))
        axes.margins(y=0.08)
    panels[1].set_ylim(bottom=0)
    sized = [f"{name.replace('_', ' ')}\nn = {count:,}" for _, name, count in found]
    panels[1].set_xticks(range(len(found)), sized, rotation=0 if len(found) < 10 else 45)
    panels[1].tick_params(axis="x", length=0)
    panels[0].tick_params(axis="x", length=0)
    key(figure, handles(runs, ls=""))
    for column in columns:
        at = [i for i, group in enumerate(found) if group[0] == column and group[1] != column]
        if at:
            where = panels[0].get_xaxis_transform()
            panels[0].text(np.mean(at), 1.01, column.replace("_", " "), transform=where, ha="center")
    left_out = len([1 for of in columns.values() for _ in of]) - len(found)
    sizes = ", ".join(f"{name}: {count} rows" for _, name, count in found)
    more = f" {left_out} smaller groups are left out." if left_out else ""
    return Drawn(
        figure,
        f"Accuracy and ECE, {VIEWS[view]}, in {len(found)} groups ({sizes}), {seeds_told(runs)}. Worst "
        f"groups: {'; '.join(told_of)}.{more}",
    )
