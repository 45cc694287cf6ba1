"""What a sweep of one setting found: the paper's two panels, their table, and the map from η to Γ_eff.

A sweep's rows are a run's rows with the swept `setting`, its `value` and the `batch` size, all rows where the
data have fewer; where the objective tilts they also have the mean `perplexity` of its weights over batches.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from calmoe.errors import InputError, check_known
from calmoe.report.drawing import FULL, GREY, STYLE, Drawn, Look, key, looks, new_figure, range_told
from calmoe.report.grid import Entry, Grid, Heading, count, label, shortest, signed
from calmoe.report.page import Point
from calmoe.report.published import published
from calmoe.report.tables import (
    COLUMNS,
    METHOD,
    METHODS,
    MISSING,
    PAPER_COLUMNS,
    SEEDS,
    Cell,
    Rows,
    main_table,
    summarise,
)

Found: TypeAlias = dict[str, dict[float, dict[str, Cell]]]

SETTINGS = {"eta": "η", "warmup": "warm-up epochs"}
WIDE = 20  # values that span more than this factor are drawn on a logarithmic axis
DATASET, TILTED = "cifar10h", "robust"  # where the paper measured Γ_eff
MEASURED = "in the last epoch"  # when a row's perplexity and Γ_eff are those of


@rc_context(STYLE)
def sweep_figure(rows: Rows, protocol: str, default: float | None = None) -> Drawn:
    """Hard ECE (ECE where nothing is hard), raw and after its temperature, and accuracy, value by value.

    Points are means over seeds, bars their standard errors; `default` is the value to mark.
    """
    setting, found = _setting(rows), _found(rows, protocol)
    cells = [cells for of in found.values() for cells in of.values()]
    error, title = _error(found)
    figure = new_figure(FULL, 2.5)
    left, right = figure.subplots(1, 2)
    for look, of in zip(looks(found).values(), found.values(), strict=True):
        _line(left, of, error, look)
        _line(left, of, f"{error}_ts", look, mfc="white", ls="--")
        _line(right, of, "accuracy", look)
    left.set(ylabel=title)
    left.set_ylim(bottom=0)
    right.set(ylabel="accuracy")
    for axes in (left, right):
        _setting_axis(axes, setting, found)
        if default is not None:
            axes.axvline(default, color=GREY, ls=":", lw=0.9, zorder=0)
    entries = [*_entries(found), *_raw_and_scaled()]
    if default is not None:
        entries.append(Line2D([], [], color=GREY, ls=":", lw=0.9, label=f"default, {shortest(default)}"))
    key(figure, entries, columns=6)
    columns = {error: title, f"{error}_ts": "after temperature", "accuracy": "accuracy"}
    return Drawn(
        figure,
        f"Sweep of {SETTINGS[setting]}, {protocol} protocol, {_seeds_told(cells)}. {_told(found, columns)}.",
    )


def sweep_caption(rows: Rows, protocol: str) -> str:
    """What stands under the figure: whose ECE it shows."""
    error, _ = _error(_found(rows, protocol))
    whose = " of the hard subset" if error == "hard_ece" else ""
    return f"ECE{whose}, raw and after a temperature, and accuracy, by {SETTINGS[_setting(rows)]}."


def sweep_table(rows: Rows, protocol: str, caption: str | None = None) -> Grid:
    """One row a method and value, one column a metric; the best of each column in bold."""
    setting, found = _setting(rows), _found(rows, protocol)
    title = SETTINGS[setting]
    heading = title if setting == "eta" else title.capitalize()
    grid = main_table(
        {f"{method} {value}": cells for method, of in found.items() for value, cells in of.items()},
        (*PAPER_COLUMNS, "nll_ts", "brier_ts"),
        caption or f"Sweep of {title}, {protocol} protocol; mean ± standard error over seeds, best in bold",
    )
    entries = iter(grid.rows)
    with_values = Grid(
        grid.caption,
        (METHOD, Heading(heading, (setting,)), *grid.headings[1:]),
        tuple(
            tuple((_method(method), _value(value), *next(entries)[1:]) for value in of)
            for method, of in found.items()
        ),
    )
    return _narrowed(with_values, list(found))


def sweep_in_words(
    rows: Rows, protocol: str, default: float | None = None, missing: Sequence[str] = ()
) -> Point:
    """Where the means are best, method by method, where the default stands, and what is missing, by name."""
    setting, found = _setting(rows), _found(rows, protocol)
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
                at = f"{word} mean at {shortest(best)}, {_estimate(known[best], 3).text}"
                if default in known and best != default:
                    at += f"; at the default, {shortest(default)}, {_estimate(known[default], 3).text}"
                bullets.append(f"{METHODS.get(method, method)}, {title}: {at}.")
    if missing:
        bullets.append(f"Not finished: {', '.join(missing)}. Run the same command again to continue.")
    return Point(
        f"Sweep of {SETTINGS[setting]}",
        f"{len(values)} value{'s' * (len(values) > 1)} from {shortest(values[0])} to {shortest(values[-1])}, "
        f"{_seeds_told(cells)}, {protocol} "
        "protocol. A best mean picked from so many flatters itself; where standard errors overlap, nothing "
        "is told apart.",
        bullets,
    )


class Concentration(NamedTuple):
    """How far the weights of batches of n examples are from equal; `top` is n / Γ_eff, rounded up."""

    perplexity: Cell
    effective_fraction: Cell
    gamma_eff: Cell
    top: int


def eta_gamma(rows: Rows) -> tuple[dict[str, dict[float, Concentration]], int]:
    """By method and η, what the tilted objectives' weights were; and the batch size n."""
    if _setting(rows) != "eta":
        raise InputError(f"η and Γ_eff need a sweep of eta, not of {_setting(rows)}")
    tilted = [row for row in rows if row.get("perplexity") is not None]
    if not tilted:
        raise InputError("no row of this sweep has a tilt (perplexity): sweep a method such as robust")
    sizes = {int(row["batch"]) for row in tilted}
    if len(sizes) > 1:
        raise InputError(
            f"rows of several batch sizes ({', '.join(map(str, sorted(sizes)))}): show one at a time"
        )
    n = sizes.pop()
    # as in the paper, n over the mean perplexity; the mean of n over each batch's perplexity would be larger
    tilted = [{**row, "gamma_eff": n / row["perplexity"]} for row in tilted]
    found = _found(tilted, tilted[0]["protocol"])  # the weights are training's: every protocol has the same

    def tilt(cells: dict[str, Cell]) -> Concentration:
        perplexity, gamma = cells["perplexity"], cells["gamma_eff"]
        share = Cell(perplexity.mean / n, perplexity.standard_error / n, perplexity.n)
        return Concentration(perplexity, share, gamma, math.ceil(n / gamma.mean - 1e-9))

    return {m: {value: tilt(cells) for value, cells in of.items()} for m, of in found.items()}, n


def eta_gamma_table(rows: Rows, dataset: str = DATASET, measured: str = MEASURED) -> Grid:
    """η, the weights' perplexity, its share of the batch, Γ_eff, and the top-k of an equal hard adversary.

    The paper's stand beside Robust MoE on CIFAR-10H, with the differences of what is measured: the share and
    the top-k follow from it. The paper measured its trained models; `measured` says when the rows' were.
    """
    found, n = eta_gamma(rows)

    def row(method: str, eta: float, tilt: Concentration) -> tuple[Entry, ...]:
        paper = _paper(method, dataset, n).get(eta, {})
        perplexity, fraction, gamma, top = (
            paper.get(name, math.nan)
            for name in ("perplexity", "effective_fraction", "density_ratio_bound", "top")
        )
        return (
            _method(method),
            _value(eta),
            count(tilt.perplexity.n),
            _estimate(tilt.perplexity, 1),
            _number(perplexity, 1),
            signed(tilt.perplexity.mean - perplexity, decimals=1),
            _estimate(tilt.effective_fraction, 3),
            _number(fraction, 3),
            _estimate(tilt.gamma_eff, 2),
            _number(gamma, 1),
            signed(tilt.gamma_eff.mean - gamma, decimals=2),
            count(tilt.top),
            _number(top, 0),
        )

    beside = any(_paper(method, dataset, n) for method in found)
    grid = Grid(
        f"η and the effective density-ratio bound Γ_eff = n / perplexity, n = {n}; mean ± standard error "
        f"over seeds, measured {measured}"
        + ("; the paper measured its trained Robust MoE on CIFAR-10H" if beside else ""),
        (
            METHOD,
            Heading("η", ("eta",)),
            SEEDS,
            Heading("Perplexity", ("perplexity", "perplexity_se")),
            Heading("Paper", ("published_perplexity",)),
            Heading("Difference", ("perplexity_difference",)),
            Heading("Effective fraction", ("effective_fraction", "effective_fraction_se")),
            Heading("Paper", ("published_effective_fraction",)),
            Heading("Γ_eff", ("gamma_eff", "gamma_eff_se")),
            Heading("Paper", ("published_gamma_eff",)),
            Heading("Difference", ("gamma_eff_difference",)),
            Heading("Hard top-⌈n/Γ_eff⌉", ("top",)),
            Heading("Paper", ("published_top",)),
        ),
        tuple(tuple(row(method, eta, tilt) for eta, tilt in of.items()) for method, of in found.items()),
    )
    return _narrowed(grid, list(found), () if beside else ("Paper", "Difference"))


def _narrowed(grid: Grid, methods: Sequence[str], empty: Sequence[str] = ()) -> Grid:
    """Without the columns of these titles; one method goes into the caption and needs no column."""
    alone = METHODS.get(methods[0], methods[0]) if len(methods) == 1 else ""
    drop = (*empty, *([METHOD.title] if alone else []))
    kept = [i for i, heading in enumerate(grid.headings) if heading.title not in drop]
    return Grid(
        f"{alone}: {grid.caption}" if alone else grid.caption,
        tuple(grid.headings[i] for i in kept),
        tuple(tuple(tuple(row[i] for i in kept) for row in section) for section in grid.sections),
    )


@rc_context(STYLE)
def eta_gamma_figure(rows: Rows, dataset: str = DATASET, measured: str = MEASURED) -> Drawn:
    """Perplexity and Γ_eff against η, bars over seeds, with the paper's points where it has them."""
    tilts, n = eta_gamma(rows)
    found: Found = {
        method: {
            eta: {"perplexity": tilt.perplexity, "gamma_eff": tilt.gamma_eff} for eta, tilt in of.items()
        }
        for method, of in tilts.items()
    }
    paper = {eta: point for method in found for eta, point in _paper(method, dataset, n).items()}
    figure = new_figure(FULL, 2.5)
    left, right = figure.subplots(1, 2)
    for axes, column, name in (
        (left, "perplexity", "perplexity"),
        (right, "gamma_eff", "density_ratio_bound"),
    ):
        for look, of in zip(looks(found).values(), found.values(), strict=True):
            _line(axes, of, column, look)
        points: dict[str, Any] = {"marker": "o", "mfc": "none", "ls": "", "markersize": 5, "color": GREY}
        axes.plot(list(paper), [point[name] for point in paper.values()], zorder=3, **points)
        _setting_axis(axes, "eta", found)
    left.set(ylabel=f"perplexity, of n = {n}")
    right.set(ylabel=r"$\Gamma_{\mathrm{eff}}$")
    entries = _entries(found)
    if paper:
        title = "the paper's Robust MoE, after training"
        entries.append(Line2D([], [], marker="o", mfc="none", ls="", markersize=5, color=GREY, label=title))
    key(figure, entries, columns=4)
    printed = "; ".join(f"{eta:g}: {p['perplexity']}, {p['density_ratio_bound']}" for eta, p in paper.items())
    cells = [cells for of in found.values() for cells in of.values()]
    return Drawn(
        figure,
        f"η against the perplexity of the tilted weights in batches of {n} and Γ_eff, {_seeds_told(cells)}, "
        f"measured {measured}. {_told(found, {'perplexity': 'perplexity', 'gamma_eff': 'Γ_eff'}, 2)}."
        + (f" The paper, perplexity and Γ_eff by η: {printed}." if paper else ""),
    )


def _setting(rows: Rows) -> str:
    """The one setting that the rows sweep."""
    if not rows:
        raise InputError("the sweep has no rows: there is nothing to show")
    settings = sorted({str(row.get("setting")) for row in rows})
    if len(settings) > 1:
        raise InputError(f"rows of several sweeps ({', '.join(settings)}): show one at a time")
    check_known("setting of a sweep", settings[0], SETTINGS)
    return settings[0]


def _found(rows: Rows, protocol: str) -> Found:
    """[method][value][column], methods in the paper's order, values rising."""
    values = sorted({row["value"] for row in rows})
    at = {v: summarise([row for row in rows if row["value"] == v], protocol) for v in values}
    methods = {method for summary in at.values() for method in summary}
    if not methods:
        raise InputError(f"the sweep has no rows under protocol {protocol!r}")
    order = [*METHODS, *sorted(methods - set(METHODS))]
    return {m: {v: at[v][m] for v in values if m in at[v]} for m in order if m in methods}


def _error(found: Found) -> tuple[str, str]:
    """The column and title of the error to show: hard ECE, or ECE where nothing is hard."""
    hard = any(_cell(cells, "hard_ece").n for of in found.values() for cells in of.values())
    return ("hard_ece", "hard ECE") if hard else ("ece", "ECE")


def _paper(method: str, dataset: str, n: int) -> dict[float, dict[str, float]]:
    """The paper's rows by η, where method, dataset and batch size are the paper's."""
    table = published("eta_gamma")
    if (method, dataset, n) != (TILTED, DATASET, table["batch_size"]):
        return {}
    return {row["eta"]: row for row in table["rows"]}


def _cell(cells: dict[str, Cell], column: str) -> Cell:
    return cells.get(column, MISSING)


def _line(axes: Axes, of: dict[float, dict[str, Cell]], column: str, look: Look, **options: Any) -> None:
    """A method's means over the values, with standard errors; one seed has none."""
    mean, error, _ = np.array([_cell(cells, column) for cells in of.values()]).T
    style: dict[str, Any] = {"marker": look.marker, "markersize": 3.5, "elinewidth": 0.8, **options}
    axes.errorbar(list(of), mean, np.nan_to_num(error), color=look.colour, **style)


def _setting_axis(axes: Axes, setting: str, found: Found) -> None:
    values = [value for of in found.values() for value in of]
    axes.set(xlabel=SETTINGS[setting])
    if 0 < min(values) * WIDE < max(values):
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")


def _entries(found: Found) -> list[Line2D]:
    return [Line2D([], [], color=x.colour, marker=x.marker, label=x.title) for x in looks(found).values()]


def _raw_and_scaled() -> list[Line2D]:
    return [
        Line2D([], [], color=GREY, marker="o", label="raw"),
        Line2D([], [], color=GREY, marker="o", mfc="white", ls="--", label="after temperature"),
    ]


def _seeds_told(cells: Sequence[dict[str, Cell]]) -> str:
    return range_told(max(cell.n for cell in of.values()) for of in cells)


def _told(found: Found, columns: dict[str, str], decimals: int = 3) -> str:
    """Every value's numbers, a sentence a method."""

    def at(value: float, cells: dict[str, Cell]) -> str:
        known = {title: _cell(cells, column) for column, title in columns.items()}
        numbers = [f"{title} {_estimate(cell, decimals).text}" for title, cell in known.items() if cell.n]
        return f"at {shortest(value)}: {', '.join(numbers)}"

    return ". ".join(
        f"{METHODS.get(method, method)} {'; '.join(at(value, cells) for value, cells in of.items())}"
        for method, of in found.items()
    )


def _method(method: str) -> Entry:
    return label(METHODS.get(method, method), method)


def _value(value: float) -> Entry:
    return Entry(shortest(value), (value,))


def _number(value: float, decimals: int) -> Entry:
    return Entry("–" if math.isnan(value) else f"{value:.{decimals}f}", (value,))


def _estimate(cell: Cell, decimals: int) -> Entry:
    """As `estimate`, with other decimals."""
    spread = "" if math.isnan(cell.standard_error) else f" ± {cell.standard_error:.{decimals}f}"
    return Entry(_number(cell.mean, decimals).text + spread, (cell.mean, cell.standard_error))
