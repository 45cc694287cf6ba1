"""What all figures share: sizes, style, legends, and files that come out the same bytes."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from calmoe.errors import InputError
from calmoe.files import write_whole

GREY, LIGHT = "#555555", "#cccccc"
COLUMN, FULL = 3.3, 6.9  # inches: a column of the paper, and its full width
DPI = 180


class Drawn(NamedTuple):
    """A figure, and what it shows in words and numbers."""

    figure: Figure
    alt: str


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


def new_figure(width: float, height: float) -> Figure:
    """A figure that belongs to nobody: no pyplot, nothing to close."""
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.03)
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def draw_all(figures: Mapping[str, Callable[[], Drawn]]) -> tuple[dict[str, Drawn], dict[str, str]]:
    """The figures by name, and the reason by name where one is missing: a failure costs no other figure."""
    drawn, missing = {}, {}
    for name, figure in figures.items():
        try:
            drawn[name] = figure()
        except InputError as error:
            missing[name] = str(error)
        except Exception as error:  # odd numbers can make matplotlib, or us, raise anything
            missing[name] = failure(error)
    return drawn, missing


def failure(error: Exception) -> str:
    """The reason why a figure is missing, from an error that nobody expected."""
    return " ".join(f"it could not be drawn ({type(error).__name__}: {error})".split())


def panel_grid(n: int, widest: int = 5) -> tuple[int, int]:
    """Rows and columns for n panels, as even as possible.

    >>> panel_grid(9), panel_grid(7), panel_grid(3)
    ((2, 5), (2, 4), (1, 3))
    """
    rows = -(-n // widest)
    return rows, -(-n // rows)


def draw_band(axes: Axes, x: Any, mean: np.ndarray, error: np.ndarray, colour: str, **line: Any) -> None:
    """A line and the standard error around it; nothing where all is NaN, which matplotlib cannot mark."""
    if np.isnan(mean).all():
        return
    axes.plot(x, mean, color=colour, **line)
    if not np.isnan(error).all():
        axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.18, linewidth=0)


def draw_legend(figure: Figure | SubFigure, handles: Sequence[Any], columns: int = 5) -> None:
    """A legend under the panels, no wider than the figure, with its entries in reading order."""
    # matplotlib fills a legend column by column; this order makes it read row by row
    by_column = [handles[i] for column in range(columns) for i in range(column, len(handles), columns)]
    legend = figure.legend(handles=by_column, loc="outside lower center", ncols=columns, columnspacing=1.2)
    if columns > 1 and legend.get_window_extent().width > figure.bbox.width:
        legend.remove()
        draw_legend(figure, handles, columns - 1)


def hang_label(axes: Axes, text: str, x: float, points: float, **options: Any) -> None:
    """A label under the axes, at a share x of their width; the layout ignores it, as the place is empty."""
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


def save(drawn: Drawn, path: Path, formats: Sequence[str] = ("png", "pdf"), dpi: int = DPI) -> list[Path]:
    """Write `path` with the suffix of each format; the same figure gives the same bytes."""
    written = []
    for name in formats:
        data = rendered(drawn, name, dpi)
        written.append(path.with_suffix(f".{name}"))
        write_whole(written[-1], data)
    return written


def rendered(drawn: Drawn, name: str, dpi: int = DPI) -> bytes:
    """The figure as a file of the format `name`, png or pdf. PNG carries the alt text.

    matplotlib draws only now: where it fails, an InputError says why.
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
        raise InputError(failure(error)) from error
    return stream.getvalue()
