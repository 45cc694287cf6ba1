"""What all figures share: one colour and marker a method, sizes, seeds, and files that come out the same."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from calmoe.errors import InputError
from calmoe.files import write_whole
from calmoe.methods import METHODS, SPARE, in_order, method_title

Curves = dict[str, Any]  # the numbers behind a figure, one method and seed
GREY, LIGHT = "#555555", "#cccccc"
COLUMN, FULL = 3.3, 6.9  # inches: a column of the paper, and its full width
DPI = 180
ECES = {"raw": "ECE", "scaled": "ECE+TS"}
VIEWS = {"raw": "no temperature", "scaled": "after the temperature that validation chose"}


class Drawn(NamedTuple):
    """A figure, and what it shows in words and numbers."""

    figure: Figure
    alt: str


class Look(NamedTuple):
    """How a method looks, wherever it appears."""

    title: str
    colour: str
    marker: str


STYLE: Any = {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.titlepad": 3,
    "axes.labelpad": 2,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure on every machine
}


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """One look a method; a user's own methods take the spare colours, in the order given.

    >>> looks(["vanilla", "mine"])["vanilla"]
    Look(title='Vanilla MoE', colour='#000000', marker='s')
    """
    methods = list(methods)
    known = {method: METHODS[method] for method in methods if method in METHODS}
    drawn = {method: (card.colour, card.marker) for method, card in known.items() if card.colour}
    own = [method for method in methods if method not in drawn]
    drawn |= {method: SPARE[i % len(SPARE)] for i, method in enumerate(own)}
    return {method: Look(method_title(method), *drawn[method]) for method in methods}


def by_method(of_runs: Sequence[Curves]) -> dict[str, list[Curves]]:
    """The seeds of each method, methods in the paper's order; one protocol, and no seed twice."""
    if not of_runs:
        raise InputError("there are no curves to draw: no method of this run is finished")
    protocols = sorted({str(c.get("protocol")) for c in of_runs})
    if len(protocols) > 1:
        raise InputError(f"curves of several protocols ({', '.join(protocols)}): draw one at a time")
    runs: dict[str, list[Curves]] = {method: [] for method in in_order(c["method"] for c in of_runs)}
    for c in of_runs:
        if any(c.get("seed") == other.get("seed") for other in runs[c["method"]]):
            raise InputError(f"two curves for method {c['method']!r}, seed {c.get('seed')}: keep one")
        runs[c["method"]].append(c)
    return runs


def over_seeds(values: Sequence[Any] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis; None and NaN are left out, one seed has no error.

    >>> over_seeds([[1.0, None], [3.0, 5.0]])
    (array([2., 5.]), array([ 1., nan]))
    """
    array = np.array(values, dtype=float)
    n = (~np.isnan(array)).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(n > 0, np.nansum(array, axis=0) / n, np.nan)
        variance = np.nansum((array - mean) ** 2, axis=0) / np.where(n > 1, n - 1, np.nan)
        return mean, np.sqrt(variance / n)


def told(values: Sequence[float | None] | np.ndarray) -> str:
    """`0.055 ± 0.001`, as in the tables; the mean alone for one seed."""
    mean, error = over_seeds(values)
    return "none" if np.isnan(mean) else f"{mean:.3f}" + ("" if np.isnan(error) else f" ± {error:.3f}")


def seeds_told(runs: dict[str, list[Curves]]) -> str:
    """How many seeds the methods have."""
    return range_told(len(seeds) for seeds in runs.values())


def range_told(seeds: Iterable[int]) -> str:
    """How many seeds: one number, or the fewest and the most.

    >>> range_told([5, 5]), range_told([5, 3, 4]), range_told([1])
    ('5 seeds', '3 to 5 seeds', '1 seed')
    """
    counts = sorted(set(seeds))
    number = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"{number} seed{'s' * (number != '1')}"


def new_figure(width: float, height: float) -> Figure:
    """A figure that belongs to nobody: no pyplot, nothing to close."""
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.03)
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def draw_all(figures: Mapping[str, Callable[[], Drawn]]) -> tuple[dict[str, Drawn], dict[str, str]]:
    """All figures by name, and by name why one is missing: no figure costs the others."""
    drawn, missing = {}, {}
    for name, figure in figures.items():
        try:
            drawn[name] = figure()
        except InputError as error:
            missing[name] = str(error)
        except Exception as error:  # whatever odd numbers lead matplotlib or us to
            missing[name] = not_drawn(error)
    return drawn, missing


def not_drawn(error: Exception) -> str:
    """Why a figure is missing that nobody foresaw to be."""
    return " ".join(f"it could not be drawn ({type(error).__name__}: {error})".split())


def grid_of(n: int, widest: int = 5) -> tuple[int, int]:
    """Rows and columns for n panels, as even as can be.

    >>> grid_of(9), grid_of(7), grid_of(3)
    ((2, 5), (2, 4), (1, 3))
    """
    rows = -(-n // widest)
    return rows, -(-n // rows)


def band(axes: Axes, x: Any, mean: np.ndarray, error: np.ndarray, look: Look, **line: Any) -> None:
    """A line and the standard error around it; without values there is none: matplotlib cannot mark it."""
    if np.isnan(mean).all():
        return
    axes.plot(x, mean, color=look.colour, **line)
    if not np.isnan(error).all():
        axes.fill_between(x, mean - error, mean + error, color=look.colour, alpha=0.18, linewidth=0)


def key(figure: Figure | SubFigure, handles: Sequence[Any], columns: int = 5) -> None:
    """A legend under the panels; entries run along the rows, as they are read, and fit in their width."""
    # matplotlib fills a legend column by column; this order makes it read row by row
    read = [handles[i] for column in range(columns) for i in range(column, len(handles), columns)]
    legend = figure.legend(handles=read, loc="outside lower center", ncols=columns, columnspacing=1.2)
    if columns > 1 and legend.get_window_extent().width > figure.bbox.width:
        legend.remove()
        key(figure, handles, columns - 1)


def hang(axes: Axes, text: str, x: float, points: float, **options: Any) -> None:
    """A label under the axes, at a share x of their width, that takes no room: below it a place is empty."""
    axes.annotate(
        text,
        (x, 0),
        (0, -points),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="center",
        va="top",
        **options,
    ).set_in_layout(False)


def handles(runs: dict[str, list[Curves]], **options: Any) -> list[Line2D]:
    """The methods' entries in a legend; a method with fewer seeds than another says so."""
    return entries({method: [len(seeds)] for method, seeds in runs.items()}, **options)


def entries(counts: Mapping[str, Sequence[int]], **options: Any) -> list[Line2D]:
    """A legend's entries of methods, with what `fewer_seeds` says of each."""
    return [
        Line2D([], [], color=look.colour, marker=look.marker, label=look.title + fewer, **options)
        for look, fewer in zip(looks(counts).values(), fewer_seeds(counts).values(), strict=True)
    ]


def fewer_seeds(counts: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """By method what follows its title: its number of seeds where another has more, else nothing.

    counts: by method, place by place, such as on each target; a place where it has none is not counted.

    >>> fewer_seeds({"vanilla": [3, 3, 2], "robust": [3, 2, 2], "fgr": [2, 2, 0]})
    {'vanilla': '', 'robust': ' (2–3 seeds)', 'fgr': ' (2 seeds)'}
    """
    most = [max(place) for place in zip(*counts.values(), strict=True)]

    def told(of: Sequence[int]) -> str:
        if all(n in (0, top) for n, top in zip(of, most, strict=True)):
            return ""
        there = sorted({n for n in of if n})
        number = str(there[0]) if len(there) == 1 else f"{there[0]}–{there[-1]}"
        return f" ({number} seed{'s' * (number != '1')})"

    return {method: told(of) for method, of in counts.items()}


def save(drawn: Drawn, path: Path, formats: Sequence[str] = ("png", "pdf"), dpi: int = DPI) -> list[Path]:
    """Write `path` with each format's suffix; the same figure is the same bytes."""
    written = []
    for name in formats:
        data = rendered(drawn, name, dpi)
        written.append(path.with_suffix(f".{name}"))
        write_whole(written[-1], data)
    return written


def rendered(drawn: Drawn, name: str, dpi: int = DPI) -> bytes:
    """The figure as a file of the format `name`, png or pdf. PNG carries the alt text.

    matplotlib draws only now: an InputError says what it could not.
    """
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": None, "Description": drawn.alt},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    if name not in metadata:
        raise InputError(f"unknown format {name!r}: choose among {', '.join(metadata)}")
    stream = io.BytesIO()
    try:
        with rc_context(STYLE):
            drawn.figure.savefig(stream, format=name, dpi=dpi, metadata=metadata[name])
    except Exception as error:
        raise InputError(not_drawn(error)) from error
    return stream.getvalue()
