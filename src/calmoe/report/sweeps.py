"""What a sweep of one setting found: the paper's two panels, their table, and words.

A sweep's rows are a run's rows with the swept `setting`, its `value` and the `batch` size, all rows where the
data have fewer; where the objective tilts they also have the mean `perplexity` of its weights over batches.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from calmoe.errors import InputError
from calmoe.methods import in_order, method_title
from calmoe.render.drawing import FULL, GREY, STYLE, Drawn, Look, key, looks, new_figure, range_told
from calmoe.render.grid import Entry, Grid, Heading, number
from calmoe.render.page import Point
from calmoe.render.wording import shortest
from calmoe.report.tables import (
    COLUMNS,
    METHOD,
    MISSING,
    PAPER_COLUMNS,
    Cell,
    Rows,
    known_columns,
    main_table,
    method_entry,
    summarise,
)

Found: TypeAlias = dict[str, dict[float, dict[str, Cell]]]

SETTINGS = {"eta": "η", "warmup": "warm-up epochs"}
WIDE = 20  # values that span more than this factor are drawn on a logarithmic axis


def setting_title(setting: str) -> str:
    """What captions call the setting."""
    return SETTINGS.get(setting, setting)


@rc_context(STYLE)
def sweep_figure(rows: Rows, protocol: str, default: float | None = None) -> Drawn:
    """Hard ECE (ECE where nothing is hard), raw and after its temperature, and accuracy, value by value.

    Points are means over seeds, bars their standard errors; `default` is the value to mark.
    """
    setting, found = setting_of(rows), by_value(rows, protocol)
    cells = [cells for of in found.values() for cells in of.values()]
    error, title = _error(found)
    figure = new_figure(FULL, 2.5)
    left, right = figure.subplots(1, 2)
    for look, of in zip(looks(found).values(), found.values(), strict=True):
        draw_line(left, of, error, look)
        draw_line(left, of, f"{error}_ts", look, mfc="white", ls="--")
        draw_line(right, of, "accuracy", look)
    left.set(ylabel=title)
    left.set_ylim(bottom=0)
    right.set(ylabel="accuracy")
    for axes in (left, right):
        setting_axis(axes, setting, found)
        if default is not None:
            axes.axvline(default, color=GREY, ls=":", lw=0.9, zorder=0)
    entries = [*legend_entries(found), *_raw_and_scaled()]
    if default is not None:
        entries.append(Line2D([], [], color=GREY, ls=":", lw=0.9, label=f"default, {shortest(default)}"))
    key(figure, entries, columns=6)
    columns = {error: title, f"{error}_ts": "after temperature", "accuracy": "accuracy"}
    return Drawn(
        figure,
        f"Sweep of {setting_title(setting)}, {protocol} protocol, {seeds_told(cells)}. "
        f"{values_told(found, columns)}.",
    )


def sweep_caption(rows: Rows, protocol: str) -> str:
    """What stands under the figure: whose ECE it shows."""
    error, _ = _error(by_value(rows, protocol))
    whose = " of the hard subset" if error == "hard_ece" else ""
    return f"ECE{whose}, raw and after a temperature, and accuracy, by {setting_title(setting_of(rows))}."


def sweep_table(rows: Rows, protocol: str, caption: str | None = None) -> Grid:
    """One row a method and value, one column a metric; the best of each column in bold."""
    setting, found = setting_of(rows), by_value(rows, protocol)
    title = setting_title(setting)
    heading = title if setting == "eta" else title.capitalize()
    summary = {f"{method} {value}": cells for method, of in found.items() for value, cells in of.items()}
    grid = main_table(
        summary,
        known_columns(summary, (*PAPER_COLUMNS, "nll_ts", "brier_ts")),
        caption or f"Sweep of {title}, {protocol} protocol; mean ± standard error over seeds, best in bold",
    )
    entries = iter(grid.rows)
    with_values = Grid(
        grid.caption,
        (METHOD, Heading(heading, (setting,)), *grid.headings[1:]),
        tuple(
            tuple((method_entry(method), value_entry(value), *next(entries)[1:]) for value in of)
            for method, of in found.items()
        ),
    )
    return narrowed(with_values, list(found))


def sweep_in_words(
    rows: Rows, protocol: str, default: float | None = None, missing: Sequence[str] = ()
) -> Point:
    """Where the means are best, method by method, where the default stands, and what is missing, by name."""
    setting, found = setting_of(rows), by_value(rows, protocol)
    values = sorted({value for of in found.values() for value in of})
    cells = [cells for of in found.values() for cells in of.values()]
    error, name = _error(found)
    columns = {error: name, f"{error}_ts": f"{name} after temperature", "accuracy": "accuracy"}
    bullets = []
    for method, of in found.items():
        for column, title in columns.items():
            known = {value: _cell(c, column) for value, c in of.items() if _cell(c, column).n}
            if known:
                mean = COLUMNS[column][1](cell.mean for cell in known.values())
                best = next(value for value, cell in known.items() if cell.mean == mean)
                word = "highest" if column == "accuracy" else "lowest"
                at = f"{word} mean at {shortest(best)}, {estimate_entry(known[best], 3).text}"
                if default in known and best != default:
                    at += f"; at the default, {shortest(default)}, {estimate_entry(known[default], 3).text}"
                bullets.append(f"{method_title(method)}, {title}: {at}.")
    if missing:
        bullets.append(f"Not finished: {', '.join(missing)}. Run the same command again to continue.")
    return Point(
        f"Sweep of {setting_title(setting)}",
        f"{len(values)} value{'s' * (len(values) > 1)} from {shortest(values[0])} to {shortest(values[-1])}, "
        f"{seeds_told(cells)}, {protocol} "
        "protocol. A best mean picked from so many flatters itself; where standard errors overlap, nothing "
        "is told apart.",
        bullets,
    )


def narrowed(grid: Grid, methods: Sequence[str], empty: Sequence[str] = ()) -> Grid:
    """Without the columns of these titles; one method goes into the caption and needs no column."""
    alone = method_title(methods[0]) if len(methods) == 1 else ""
    drop = (*empty, *([METHOD.title] if alone else []))
    kept = [i for i, heading in enumerate(grid.headings) if heading.title not in drop]
    return Grid(
        f"{alone}: {grid.caption}" if alone else grid.caption,
        tuple(grid.headings[i] for i in kept),
        tuple(tuple(tuple(row[i] for i in kept) for row in section) for section in grid.sections),
    )


def setting_of(rows: Rows) -> str:
    """The one setting that the rows sweep."""
    if not rows:
        raise InputError("the sweep has no rows: there is nothing to show")
    settings = sorted({str(row.get("setting")) for row in rows})
    if len(settings) > 1:
        raise InputError(f"rows of several sweeps ({', '.join(settings)}): show one at a time")
    return settings[0]


def by_value(rows: Rows, protocol: str) -> Found:
    """[method][value][column], methods in the paper's order, values rising."""
    values = sorted({row["value"] for row in rows})
    at = {v: summarise([row for row in rows if row["value"] == v], protocol) for v in values}
    methods = in_order(sorted({method for summary in at.values() for method in summary}))
    if not methods:
        raise InputError(f"the sweep has no rows under protocol {protocol!r}")
    return {m: {v: at[v][m] for v in values if m in at[v]} for m in methods}


def _error(found: Found) -> tuple[str, str]:
    """The column and title of the error to show: hard ECE, or ECE where nothing is hard."""
    hard = any(_cell(cells, "hard_ece").n for of in found.values() for cells in of.values())
    return ("hard_ece", "hard ECE") if hard else ("ece", "ECE")


def _cell(cells: dict[str, Cell], column: str) -> Cell:
    return cells.get(column, MISSING)


def draw_line(axes: Axes, of: dict[float, dict[str, Cell]], column: str, look: Look, **options: Any) -> None:
    """A method's means over the values, with standard errors; one seed has none."""
    mean, error, _ = np.array([_cell(cells, column) for cells in of.values()]).T
    style: dict[str, Any] = {"marker": look.marker, "markersize": 3.5, "elinewidth": 0.8, **options}
    axes.errorbar(list(of), mean, np.nan_to_num(error), color=look.colour, **style)


def setting_axis(axes: Axes, setting: str, found: Found) -> None:
    values = [value for of in found.values() for value in of]
    axes.set(xlabel=setting_title(setting))
    if 0 < min(values) * WIDE < max(values):
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")


def legend_entries(found: Found) -> list[Line2D]:
    return [Line2D([], [], color=x.colour, marker=x.marker, label=x.title) for x in looks(found).values()]


def _raw_and_scaled() -> list[Line2D]:
    return [
        Line2D([], [], color=GREY, marker="o", label="raw"),
        Line2D([], [], color=GREY, marker="o", mfc="white", ls="--", label="after temperature"),
    ]


def seeds_told(cells: Sequence[dict[str, Cell]]) -> str:
    return range_told(max(cell.n for cell in of.values()) for of in cells)


def values_told(found: Found, columns: dict[str, str], decimals: int = 3) -> str:
    """Every value's numbers, a sentence a method."""

    def at(value: float, cells: dict[str, Cell]) -> str:
        known = {title: _cell(cells, column) for column, title in columns.items()}
        numbers = [
            f"{title} {estimate_entry(cell, decimals).text}" for title, cell in known.items() if cell.n
        ]
        return f"at {shortest(value)}: {', '.join(numbers)}"

    return ". ".join(
        f"{method_title(method)} {'; '.join(at(value, cells) for value, cells in of.items())}"
        for method, of in found.items()
    )


def value_entry(value: float) -> Entry:
    return Entry(shortest(value), (value,))


def estimate_entry(cell: Cell, decimals: int) -> Entry:
    """As `estimate`, with other decimals."""
    spread = "" if math.isnan(cell.standard_error) else f" ± {cell.standard_error:.{decimals}f}"
    return Entry(number(cell.mean, decimals).text + spread, (cell.mean, cell.standard_error))
