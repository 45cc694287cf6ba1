"""A sweep on a page: its table, its sentences, its section, the card of its figure."""

from collections.abc import Mapping, Sequence

from calmoe.experiments.sweep import Point as Place
from calmoe.methods import method_title
from calmoe.render.grid import Entry, Grid, Heading
from calmoe.render.page import Point
from calmoe.render.wording import many
from calmoe.report.columns import columns_in
from calmoe.report.figure_cards import FigureCard, RunNumbers
from calmoe.report.rows_over_seeds import Rows, known_columns
from calmoe.report.sections import SectionCard
from calmoe.report.sweep_figures import MOST_DRAWN, NOTHING_CHOOSES, Defaults, sweep_caption, sweep_figure
from calmoe.report.sweep_points import (
    CHOICE,
    CHOOSES,
    Cells,
    Swept,
    best_first,
    by_point,
    cell_at,
    cell_text,
    chosen,
    distinct,
    error_column,
    point_text,
    read_by,
    seeds_at_points,
    setting_title,
    settings_of,
    sweep_title,
    value_entries,
)
from calmoe.report.tables import METHOD, main_table, method_entry

WHO_CHOOSES = "Validation NLL after a temperature chooses, the mean over seeds; no test row takes part."
HOW: dict[tuple[str, ...], str] = {
    ("eta",): "η sets how hard training leans on its largest losses; all else stays.",
    ("warmup",): "How many epochs of plain training come before the robust objective; all else stays.",
}
ONE, SEVERAL = "One setting takes several values; all else stays.", "Several settings change; all else stays."
CHOSEN = Heading("Choice", ("choice",))
ANY = Entry("any", ("any",))


def sweep_table(rows: Rows, protocol: str, caption: str | None = None) -> Grid:
    """A row for each method and point, a column for each metric; the best of each column is in bold.

    The point that validation NLL+TS chooses is marked. Where several settings are swept, it leads, and the
    others follow by their validation NLL+TS; the values of one setting rise. Points that differ only in what
    a method does not read are one row.
    """
    settings, swept = settings_of(rows), by_point(rows, protocol)
    if len(settings) > 1:
        swept = {method: {p: points[p] for p in best_first(points)} for method, points in swept.items()}
    swept = {method: distinct(method, settings, points) for method, points in swept.items()}
    best = {method: chosen(method, settings, points) for method, points in swept.items()}
    read = {method: read_by(method, settings) for method in swept}
    summary = {
        f"{method} {p}": dict(cells) for method, points in swept.items() for p, cells in points.items()
    }
    title = sweep_title(settings)
    caption = (
        caption or f"Sweep of {title}, {protocol} protocol; mean ± standard error over seeds, best in bold"
    )
    known = any(point is not None for point in best.values())
    columns = known_columns(summary, (*columns_in("sweep"), *columns_in("main")))
    grid = main_table(summary, columns, caption + (f"; {CHOICE} chose, not test" if known else ""))
    names = [
        value_entries([p[i] for m, by in swept.items() if i in read[m] for p in by])
        for i in range(len(settings))
    ]
    entries = iter(grid.rows)

    def row(method: str, point: Place) -> tuple[Entry, ...]:
        mark = "chosen" if point == best[method] else ""
        values = [names[i][value] if i in read[method] else ANY for i, value in enumerate(point)]
        return (method_entry(method), *values, Entry(mark, (mark,), bool(mark)), *next(entries)[1:])

    whole = Grid(
        grid.caption,
        (METHOD, *map(_heading, settings), CHOSEN, *grid.headings[1:]),
        tuple(tuple(row(method, point) for point in points) for method, points in swept.items()),
    )
    return trimmed(whole, list(swept), () if known else (CHOSEN.title,))


def sweep_in_words(
    rows: Rows, protocol: str, defaults: Defaults | None = None, missing: Sequence[str] = ()
) -> Point:
    """Which point validation chooses, method by method; what test says there and at the default."""
    settings, swept = settings_of(rows), by_point(rows, protocol)
    bullets = [
        _choice_in_words(method, settings, points, swept, defaults or {}) for method, points in swept.items()
    ]
    if missing:
        bullets.append(f"Not finished: {', '.join(missing)}. Run the same command again to continue.")
    return Point(
        f"Sweep of {sweep_title(settings)}",
        f"{_extent(settings, swept)}, {seeds_at_points(swept)}, {protocol} protocol. {WHO_CHOOSES} A best "
        "mean picked from so many flatters itself; where standard errors overlap, nothing is told apart.",
        bullets,
    )


def choices_in_words(rows: Rows, protocol: str) -> list[str]:
    """A line a method: the point that validation NLL+TS chooses."""
    settings, swept = settings_of(rows), by_point(rows, protocol)
    best = {method: chosen(method, settings, points) for method, points in swept.items()}
    return [
        f"{CHOICE} chooses {point_text(settings, point, method)} for {method_title(method)} "
        f"({cell_text(cell_at(swept[method][point], CHOOSES))}, {protocol} protocol); no test row took part"
        for method, point in best.items()
        if point is not None
    ]


def _choice_in_words(
    method: str, settings: Sequence[str], points: Mapping[Place, Cells], swept: Swept, defaults: Defaults
) -> str:
    best, read = chosen(method, settings, points), read_by(method, settings)
    if not read:
        return f"{method_title(method)} is the same at every value: it does not read what is swept."
    if best is None:
        return f"{method_title(method)}: {NOTHING_CHOOSES}, so nothing is chosen."
    error, name = error_column(swept)
    columns = {error: name, f"{error}_ts": f"{name} after temperature", "accuracy": "accuracy"}

    def numbers(point: Place) -> str:
        cells = points[point]
        known = {title: cell_at(cells, column) for column, title in columns.items()}
        on_test = ", ".join(f"{title} {cell_text(cell)}" for title, cell in known.items() if cell.n)
        return f"{CHOICE} {cell_text(cell_at(cells, CHOOSES))}; on test, {on_test}"

    sentence = f"{method_title(method)}: {point_text(settings, best, method)} is chosen ({numbers(best)})."
    default = tuple(defaults.get(setting, "") for setting in settings)
    if default in points and any(default[place] != best[place] for place in read):
        sentence += f" The default, {point_text(settings, default, method)}: {numbers(default)}."
    return sentence


def _extent(settings: Sequence[str], swept: Swept) -> str:
    """How many values or points there are and, for numbers, from where to where."""
    points = [*dict.fromkeys(point for by in swept.values() for point in by)]
    if len(settings) > 1:
        return many(len(points), "point")
    entries = value_entries([value for (value,) in points])
    texts = [entry.text for entry in entries.values()]
    return f"{many(len(points), 'value')} from {texts[0]} to {texts[-1]}"


def _heading(setting: str) -> Heading:
    title = setting_title(setting)
    return Heading(title if len(title) == 1 else title.capitalize(), (setting,))


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


def sweep_section(name: str) -> SectionCard:
    """The section of a page that shows a sweep; that of η shows Γ_eff as well. name: such as "eta-rho"."""
    settings = tuple(name.split("-"))
    how = HOW.get(settings, ONE if len(settings) == 1 else SEVERAL)
    return SectionCard(
        heading=f"Sweep of {sweep_title(settings)}",
        how=f"{how} Bars are standard errors over seeds. {WHO_CHOOSES}",
        tables=f"sweep_{name}-[a-z]+" + ("|eta_gamma" if name == "eta" else ""),
    )


def sweep_card(name: str) -> FigureCard[RunNumbers]:
    """The card of the figure of a sweep; of more than two settings there is none. name: such as "eta-rho"."""
    return FigureCard(
        name=f"sweep_{name}",
        section=sweep_section(name),
        caption=lambda numbers: sweep_caption(numbers.sweeps[name], numbers.protocol),
        draw=lambda numbers: sweep_figure(numbers.sweeps[name], numbers.protocol, numbers.defaults),
        applies=lambda _: len(name.split("-")) <= MOST_DRAWN,
    )
