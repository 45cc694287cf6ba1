"""The figures of a sweep: of one setting (the paper's two panels, and what chose), and of two settings."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from calmoe.errors import InputError
from calmoe.experiments.sweep import Point, Value, value_text
from calmoe.methods import method_title
from calmoe.render.drawing import FULL, GREY, STYLE, Drawn, draw_legend, new_figure, panel_grid
from calmoe.report.looks import Look, legend_entries, looks
from calmoe.report.rows_over_seeds import Rows
from calmoe.report.sweep_points import (
    CHOICE,
    CHOOSES,
    Cells,
    Swept,
    by_point,
    cell_at,
    cell_text,
    chosen,
    error_column,
    point_text,
    seeds_at_points,
    setting_title,
    settings_of,
    sweep_title,
)

Defaults: TypeAlias = Mapping[str, Value]  # by setting, its value in the run
WIDE = 20  # values that span more than this factor get a logarithmic axis
MOST_DRAWN = 2  # settings: a figure has no more axes
NOTHING_CHOOSES = f"these rows have no {CHOICE}"


@rc_context(STYLE)
def sweep_figure(rows: Rows, protocol: str, defaults: Defaults | None = None) -> Drawn:
    """The sweep's figure: value by value for one setting, a map of validation NLL+TS for two."""
    settings = settings_of(rows)
    if len(settings) > MOST_DRAWN:
        raise InputError(f"{len(settings)} settings are swept: the table shows them")
    draw = _values_figure if len(settings) == 1 else _map_figure
    return draw(settings, by_point(rows, protocol), protocol, defaults or {})


def sweep_caption(rows: Rows, protocol: str) -> str:
    """The caption of the figure, which names the rows that each panel is of."""
    settings, swept = settings_of(rows), by_point(rows, protocol)
    title = sweep_title(settings)
    if len(settings) > 1:
        return f"Validation NLL+TS by {title}: the darker, the lower. The ring is the point that it chooses."
    error, _ = error_column(swept)
    whose = " of the hard subset" if error == "hard_ece" else ""
    panels = f"ECE{whose}, raw and after a temperature, and accuracy, by {title}."
    chooses = f" Right: {CHOICE}; rings are the values that it chooses."
    return panels + (chooses if _knows_choice(settings, swept) else "")


def _values_figure(settings: Sequence[str], swept: Swept, protocol: str, defaults: Defaults) -> Drawn:
    """Hard ECE (ECE where nothing is hard), raw and after its temperature, accuracy, and what chooses.

    Points are means over seeds, bars their standard errors; a line marks the default value.
    """
    (setting,), (error, title) = settings, error_column(swept)
    chooses = _knows_choice(settings, swept)
    figure = new_figure(FULL, 2.5)
    panels = figure.subplots(1, 3 if chooses else 2)
    left, middle = panels[:2]
    for (method, points), look in zip(swept.items(), looks(swept).values(), strict=True):
        draw_values(left, points, error, look)
        draw_values(left, points, f"{error}_ts", look, mfc="white", ls="--")
        draw_values(middle, points, "accuracy", look)
        if chooses:
            draw_values(panels[2], points, CHOOSES, look)
            _ring(panels[2], chosen(method, settings, points), points, look)
    left.set(ylabel=title)
    left.set_ylim(bottom=0)
    middle.set(ylabel="accuracy")
    if chooses:
        panels[2].set(ylabel=CHOICE)
    place = places([value for points in swept.values() for (value,) in points]).get(defaults.get(setting, ""))
    for axes in panels:
        label_values(axes, setting, swept)
        if place is not None:
            axes.axvline(place, color=GREY, ls=":", lw=0.9, zorder=0)
    entries = [*legend_entries(swept), *_raw_and_scaled()]
    if place is not None:
        text = value_text(defaults[setting])
        entries.append(Line2D([], [], color=GREY, ls=":", lw=0.9, label=f"default, {text}"))
    draw_legend(figure, entries, columns=6)
    columns = {error: title, f"{error}_ts": "after temperature", "accuracy": "accuracy"}
    columns |= {CHOOSES: CHOICE} if chooses else {}
    return Drawn(figure, _alt(settings, swept, protocol, columns))


def _map_figure(settings: Sequence[str], swept: Swept, protocol: str, defaults: Defaults) -> Drawn:
    """A panel a method: points where their values put them, coloured by their mean validation NLL+TS."""
    if not _knows_choice(settings, swept):
        raise InputError(NOTHING_CHOOSES)
    rows, columns = panel_grid(len(swept), widest=3)
    figure = new_figure(FULL if columns > 1 else FULL / 1.5, 2.6 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    across, along = (
        places([point[i] for points in swept.values() for point in points]) for i in range(len(settings))
    )
    default = tuple(
        places.get(defaults.get(s, "")) for s, places in zip(settings, (across, along), strict=True)
    )
    for axes, (method, points) in zip(panels, swept.items(), strict=False):
        known = {point: cell_at(cells, CHOOSES) for point, cells in points.items()}
        at = np.array([(across[point[0]], along[point[1]]) for point in known])
        marks = axes.scatter(*at.T, c=[cell.mean for cell in known.values()], s=45, cmap="viridis", zorder=2)
        figure.colorbar(marks, ax=axes, label=CHOICE)
        if (best := chosen(method, settings, points)) is not None:
            axes.plot(across[best[0]], along[best[1]], "o", ms=11, mfc="none", color="black", zorder=3)
        if None not in default:
            axes.plot(*default, "x", color=GREY, ms=9, zorder=1)
        _scale(axes.xaxis, axes.set_xscale, across)
        _scale(axes.yaxis, axes.set_yscale, along)
        axes.set(
            xlabel=setting_title(settings[0]), ylabel=setting_title(settings[1]), title=method_title(method)
        )
    for axes in panels[len(swept) :]:
        axes.remove()
    entries = [
        Line2D([], [], color="black", marker="o", ms=8, mfc="none", ls="", label="chosen by validation")
    ]
    if None not in default:
        entries.append(Line2D([], [], color=GREY, marker="x", ls="", label="default"))
    draw_legend(figure, entries)
    return Drawn(figure, _alt(settings, swept, protocol, {CHOOSES: CHOICE}))


def places(values: Sequence[Value]) -> dict[Value, float]:
    """Where values stand on an axis: numbers at themselves, others one after the other.

    >>> places([2, 0.5]), places(["soft", "hard"])
    ({2: 2.0, 0.5: 0.5}, {'soft': 0.0, 'hard': 1.0})
    """
    unique = [*dict.fromkeys(values)]
    numbers = [float(v) for v in unique if isinstance(v, int | float) and not isinstance(v, bool)]
    at = numbers if len(numbers) == len(unique) else map(float, range(len(unique)))
    return dict(zip(unique, at, strict=True))


def draw_values(axes: Axes, points: Mapping[Point, Cells], column: str, look: Look, **options: Any) -> None:
    """A method's mean at each value of the one setting, with standard errors; one seed has none."""
    at = places([value for (value,) in points])
    mean, error, _ = np.array([cell_at(cells, column) for cells in points.values()]).T
    style: dict[str, Any] = {"marker": look.marker, "markersize": 3.5, "elinewidth": 0.8, **options}
    axes.errorbar(list(at.values()), mean, np.nan_to_num(error), color=look.colour, **style)


def label_values(axes: Axes, setting: str, swept: Swept) -> None:
    """The axis of the values: its title, its scale, and their names where they are no numbers."""
    axes.set(xlabel=setting_title(setting))
    _scale(axes.xaxis, axes.set_xscale, places([value for points in swept.values() for (value,) in points]))


def values_text(settings: Sequence[str], swept: Swept, columns: Mapping[str, str], decimals: int = 3) -> str:
    """The numbers at every point, a sentence for each method. columns: their titles."""

    def at(point: Point, cells: Cells) -> str:
        known = {title: cell_at(cells, column) for column, title in columns.items()}
        numbers = [f"{title} {cell_text(cell, decimals)}" for title, cell in known.items() if cell.n]
        place = value_text(point[0]) if len(settings) == 1 else point_text(settings, point)
        return f"at {place}: {', '.join(numbers)}"

    return ". ".join(
        f"{method_title(method)} {'; '.join(at(point, cells) for point, cells in points.items())}"
        for method, points in swept.items()
    )


def _alt(settings: Sequence[str], swept: Swept, protocol: str, columns: Mapping[str, str]) -> str:
    heading = f"Sweep of {sweep_title(settings)}, {protocol} protocol, {seeds_at_points(swept)}"
    return f"{heading}. {values_text(settings, swept, columns)}."


def _knows_choice(settings: Sequence[str], swept: Swept) -> bool:
    return any(chosen(method, settings, points) is not None for method, points in swept.items())


def _ring(axes: Axes, best: Point | None, points: Mapping[Point, Cells], look: Look) -> None:
    """A ring around the point that is chosen."""
    if best is not None:
        at = places([value for (value,) in points])[best[0]]
        axes.plot(at, cell_at(points[best], CHOOSES).mean, "o", ms=9, mfc="none", color=look.colour)


def _scale(axis: Any, set_scale: Any, at: Mapping[Value, float]) -> None:
    """Numbers far apart on a logarithmic axis; what is no number by its name."""
    if any(isinstance(value, str | tuple | bool) for value in at):
        axis.set_ticks(list(at.values()), [value_text(value) for value in at])
        return
    if 0 < min(at.values()) * WIDE < max(at.values()):
        set_scale("log")
    axis.set_major_formatter("{x:g}")


def _raw_and_scaled() -> list[Line2D]:
    return [
        Line2D([], [], color=GREY, marker="o", label="raw"),
        Line2D([], [], color=GREY, marker="o", mfc="white", ls="--", label="after temperature"),
    ]
