"""The sweep of one setting on a page: its figure (the paper's two panels), its table, its sentences.

The rows of a sweep are those of a run with the swept `setting`, its `value` and the `batch` size, which is
the number of rows where the data have fewer. Where the objective tilts, they also have the mean `perplexity`
of its weights over batches.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from calmoe.errors import InputError
from calmoe.methods import in_order, method_title
from calmoe.render.drawing import FULL, GREY, STYLE, Drawn, draw_legend, new_figure
from calmoe.render.grid import Entry, Grid, Heading, estimate
from calmoe.render.page import Point
from calmoe.render.wording import count_range, many, shortest
from calmoe.report.columns import COLUMNS, columns_in
from calmoe.report.figure_cards import FigureCard, RunNumbers
from calmoe.report.looks import Look, legend_entries, looks
from calmoe.report.rows_over_seeds import MISSING, Cell, Rows, known_columns, summarise
from calmoe.report.sections import SectionCard
from calmoe.report.tables import METHOD, main_table, method_entry

Cells: TypeAlias = Mapping[str, Cell]  # by column
Swept: TypeAlias = dict[str, dict[float, Cells]]  # by method and value

TITLES = {"eta": "η", "warmup": "warm-up epochs"}  # of settings that have a better title than their name
HOW = {
    "eta": "η sets how hard training leans on its largest losses; all else stays. Bars are standard errors "
    "over seeds. Choose η by validation, not from these test rows.",
    "warmup": "How many epochs of plain training come before the robust objective; all else stays. Bars are "
    "standard errors over seeds. Choose it by validation, not from these test rows.",
}
OTHER_HOW = (
    "One setting takes several values; all else stays. Bars are standard errors over seeds. Choose the value "
    "by validation, not from these test rows."
)
WIDE = 20  # values that span more than this factor get a logarithmic axis


def setting_title(setting: str) -> str:
    """What tables and figures call the setting.

    >>> setting_title("warmup"), setting_title("learning_rate")
    ('warm-up epochs', 'learning_rate')
    """
    return TITLES.get(setting, setting)


@rc_context(STYLE)
def sweep_figure(rows: Rows, protocol: str, default: float | None = None) -> Drawn:
    """Hard ECE (ECE where nothing is hard), raw and after its temperature, and accuracy, value by value.

    Points are means over seeds, bars their standard errors; a line marks the `default` value.
    """
    setting, swept = setting_of(rows), by_value(rows, protocol)
    error, title = _error(swept)
    figure = new_figure(FULL, 2.5)
    left, right = figure.subplots(1, 2)
    for look, values in zip(looks(swept).values(), swept.values(), strict=True):
        draw_values(left, values, error, look)
        draw_values(left, values, f"{error}_ts", look, mfc="white", ls="--")
        draw_values(right, values, "accuracy", look)
    left.set(ylabel=title)
    left.set_ylim(bottom=0)
    right.set(ylabel="accuracy")
    for axes in (left, right):
        label_values(axes, setting, swept)
        if default is not None:
            axes.axvline(default, color=GREY, ls=":", lw=0.9, zorder=0)
    entries = [*legend_entries(swept), *_raw_and_scaled()]
    if default is not None:
        entries.append(Line2D([], [], color=GREY, ls=":", lw=0.9, label=f"default, {shortest(default)}"))
    draw_legend(figure, entries, columns=6)
    columns = {error: title, f"{error}_ts": "after temperature", "accuracy": "accuracy"}
    return Drawn(
        figure,
        f"Sweep of {setting_title(setting)}, {protocol} protocol, {seeds_at_values(swept)}. "
        f"{values_text(swept, columns)}.",
    )


def sweep_caption(rows: Rows, protocol: str) -> str:
    """The caption of the figure, which names the rows that the ECE is of."""
    error, _ = _error(by_value(rows, protocol))
    whose = " of the hard subset" if error == "hard_ece" else ""
    return f"ECE{whose}, raw and after a temperature, and accuracy, by {setting_title(setting_of(rows))}."


def sweep_table(rows: Rows, protocol: str, caption: str | None = None) -> Grid:
    """A row for each method and value, a column for each metric; the best of each column is in bold."""
    setting, swept = setting_of(rows), by_value(rows, protocol)
    title = setting_title(setting)
    heading = title if setting == "eta" else title.capitalize()
    summary = {f"{method} {v}": dict(cells) for method, by in swept.items() for v, cells in by.items()}
    grid = main_table(
        summary,
        known_columns(summary, columns_in("main")),
        caption or f"Sweep of {title}, {protocol} protocol; mean ± standard error over seeds, best in bold",
    )
    entries = iter(grid.rows)
    with_values = Grid(
        grid.caption,
        (METHOD, Heading(heading, (setting,)), *grid.headings[1:]),
        tuple(
            tuple((method_entry(method), value_entry(value), *next(entries)[1:]) for value in values)
            for method, values in swept.items()
        ),
    )
    return trimmed(with_values, list(swept))


def sweep_in_words(
    rows: Rows, protocol: str, default: float | None = None, missing: Sequence[str] = ()
) -> Point:
    """Where the means are best, method by method, where the default stands, and which models are missing."""
    setting, swept = setting_of(rows), by_value(rows, protocol)
    values = sorted({value for by in swept.values() for value in by})
    error, name = _error(swept)
    columns = {error: name, f"{error}_ts": f"{name} after temperature", "accuracy": "accuracy"}
    bullets = []
    for method, by in swept.items():
        for column, title in columns.items():
            known = {value: _cell(cells, column) for value, cells in by.items() if _cell(cells, column).n}
            if known:
                mean = COLUMNS[column].best(cell.mean for cell in known.values())
                best = next(value for value, cell in known.items() if cell.mean == mean)
                word = "highest" if COLUMNS[column].best is max else "lowest"
                at = f"{word} mean at {shortest(best)}, {_cell_text(known[best])}"
                if default in known and best != default:
                    at += f"; at the default, {shortest(default)}, {_cell_text(known[default])}"
                bullets.append(f"{method_title(method)}, {title}: {at}.")
    if missing:
        bullets.append(f"Not finished: {', '.join(missing)}. Run the same command again to continue.")
    return Point(
        f"Sweep of {setting_title(setting)}",
        f"{many(len(values), 'value')} from {shortest(values[0])} to {shortest(values[-1])}, "
        f"{seeds_at_values(swept)}, {protocol} "
        "protocol. A best mean picked from so many flatters itself; where standard errors overlap, nothing "
        "is told apart.",
        bullets,
    )


def trimmed(grid: Grid, methods: Sequence[str], empty: Sequence[str] = ()) -> Grid:
    """The grid without the columns titled `empty`; a single method moves from its column to the caption."""
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
    if any("setting" not in row for row in rows):
        raise InputError("these rows are not of a sweep: they name no setting")
    settings = sorted({str(row["setting"]) for row in rows})
    if len(settings) > 1:
        raise InputError(f"rows of several sweeps ({', '.join(settings)}): show one at a time")
    return settings[0]


def by_value(rows: Rows, protocol: str) -> Swept:
    """[method][value][column], methods in the paper's order, values rising."""
    values = sorted({row["value"] for row in rows})
    at = {v: summarise([row for row in rows if row["value"] == v], protocol) for v in values}
    methods = in_order(sorted({method for summary in at.values() for method in summary}))
    if not methods:
        raise InputError(f"the sweep has no rows under protocol {protocol!r}")
    return {m: {v: at[v][m] for v in values if m in at[v]} for m in methods}


def _error(swept: Swept) -> tuple[str, str]:
    """The column and title of the error to show: hard ECE, or ECE where nothing is hard."""
    hard = any(_cell(cells, "hard_ece").n for by in swept.values() for cells in by.values())
    return ("hard_ece", "hard ECE") if hard else ("ece", "ECE")


def _cell(cells: Cells, column: str) -> Cell:
    return cells.get(column, MISSING)


def _cell_text(cell: Cell, decimals: int = 3) -> str:
    return estimate(cell.mean, cell.standard_error, decimals=decimals).text


def draw_values(axes: Axes, values: Mapping[float, Cells], column: str, look: Look, **options: Any) -> None:
    """A method's mean at each value, with standard errors; one seed has none."""
    mean, error, _ = np.array([_cell(cells, column) for cells in values.values()]).T
    style: dict[str, Any] = {"marker": look.marker, "markersize": 3.5, "elinewidth": 0.8, **options}
    axes.errorbar(list(values), mean, np.nan_to_num(error), color=look.colour, **style)


def label_values(axes: Axes, setting: str, swept: Swept) -> None:
    """The axis of the values: its title and its scale."""
    values = [value for by in swept.values() for value in by]
    axes.set(xlabel=setting_title(setting))
    if 0 < min(values) * WIDE < max(values):
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")


def _raw_and_scaled() -> list[Line2D]:
    return [
        Line2D([], [], color=GREY, marker="o", label="raw"),
        Line2D([], [], color=GREY, marker="o", mfc="white", ls="--", label="after temperature"),
    ]


def seeds_at_values(swept: Swept) -> str:
    """How many seeds there are at a value."""
    cells = (cells for by in swept.values() for cells in by.values())
    return count_range((max(cell.n for cell in columns.values()) for columns in cells), "seed")


def values_text(swept: Swept, columns: Mapping[str, str], decimals: int = 3) -> str:
    """The numbers at every value, a sentence for each method. columns: their titles."""

    def at(value: float, cells: Cells) -> str:
        known = {title: _cell(cells, column) for column, title in columns.items()}
        numbers = [f"{title} {_cell_text(cell, decimals)}" for title, cell in known.items() if cell.n]
        return f"at {shortest(value)}: {', '.join(numbers)}"

    return ". ".join(
        f"{method_title(method)} {'; '.join(at(value, cells) for value, cells in by.items())}"
        for method, by in swept.items()
    )


def value_entry(value: float) -> Entry:
    return Entry(shortest(value), (value,))


def sweep_section(setting: str) -> SectionCard:
    """The section of a page that shows the sweep of a setting; that of η shows Γ_eff as well."""
    also = "|eta_gamma" if setting == "eta" else ""
    return SectionCard(
        heading=f"Sweep of {setting_title(setting)}",
        how=HOW.get(setting, OTHER_HOW),
        tables=f"sweep_{setting}-.*{also}",
    )


def sweep_card(setting: str) -> FigureCard[RunNumbers]:
    """The card of the figure of a sweep."""
    return FigureCard(
        name=f"sweep_{setting}",
        section=sweep_section(setting),
        caption=lambda numbers: sweep_caption(numbers.sweeps[setting], numbers.protocol),
        draw=lambda numbers: sweep_figure(
            numbers.sweeps[setting], numbers.protocol, numbers.defaults.get(setting)
        ),
    )
