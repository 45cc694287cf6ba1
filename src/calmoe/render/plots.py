"""Plots of one model's numbers: compute them first, then give them here with axes of your own, or none.

`plot_reliability`, `plot_confidence` and `plot_frontier` take `ax=` and return it; without one they make a
figure, which is `ax.figure`. A figure with many panels draws each with the same `draw_…` functions.
"""

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from calmoe.calibration import Frontier
from calmoe.metrics import Reliability
from calmoe.render.drawing import COLUMN, GREY, STYLE, new_figure

BLUE = "#0072b2"  # of Okabe and Ito's colours
HEIGHT = 2.8  # inches, of a plot without axes of its own


@rc_context(STYLE)
def plot_reliability(
    table: Reliability, ax: Axes | None = None, *, colour: str = BLUE, marker: str = "o", label: str = ""
) -> Axes:
    """Accuracy against mean confidence, bin by bin, with Wilson's 95 % intervals; perfect models lie on the
    dotted line.

    >>> from calmoe.metrics import reliability
    >>> ax = plot_reliability(reliability(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0, 1])))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('confidence', 'accuracy')
    """
    ax = _axes(ax)
    draw_diagonal(ax)
    line: dict[str, Any] = {"label": label} if label else {}
    draw_bins(ax, table.confidence, table.accuracy, table.interval(), color=colour, marker=marker, **line)
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(-0.02, 1.04))
    return ax


@rc_context(STYLE)
def plot_confidence(table: Reliability, ax: Axes | None = None, *, colour: str = BLUE) -> Axes:
    """A histogram of the confidence; dashed its mean, dotted the accuracy, and the gap between the two.

    >>> from calmoe.metrics import reliability
    >>> table = reliability(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0, 1]), bins=20)
    >>> plot_confidence(table).texts[0].get_text()
    'gap +0.300'
    """
    ax = _axes(ax)
    confidence, accuracy = (
        float(np.nansum(table.share * values)) for values in (table.confidence, table.accuracy)
    )
    draw_histogram(ax, table.edges, table.share, confidence, accuracy, colour)
    ax.set(xlabel="confidence", ylabel="share of rows")
    return ax


@rc_context(STYLE)
def plot_frontier(swept: Frontier, ax: Axes | None = None, *, colour: str = BLUE, marker: str = "o") -> Axes:
    """ECE against the ECE of the subset as the temperature sweeps; full: the chosen one, hollow: T = 1.

    >>> at = np.array([0.5, 1.0, 2.0])
    >>> ax = plot_frontier(Frontier(temperatures=at, ece=at / 10, subset_ece=at / 5, chosen=0))
    >>> [mark.lines[0].get_markerfacecolor() for mark in ax.containers]
    ['white', '#0072b2']
    """
    ax = _axes(ax)
    points = np.stack([swept.ece, swept.subset_ece], axis=1)
    ax.plot(*points.T, color=colour, lw=1)
    for untouched in np.flatnonzero(swept.temperatures == 1):
        draw_mark(ax, points[untouched], np.zeros(2), colour, marker, "white")
    draw_mark(ax, points[swept.chosen], np.zeros(2), colour, marker, colour)
    ax.set(xlabel="ECE", ylabel="ECE of the subset")
    return ax


def draw_diagonal(ax: Axes, **line: Any) -> None:
    """Where confidence is accuracy."""
    ax.plot([0, 1], [0, 1], **{"color": GREY, "ls": ":", "lw": 0.8, **line})


def draw_bins(
    ax: Axes, confidence: np.ndarray, accuracy: np.ndarray, interval: np.ndarray, **line: Any
) -> None:
    """A point a bin, [B], with its interval [B, 2]; a bin of NaN has none and breaks the line."""
    ax.errorbar(confidence, accuracy, np.abs(interval.T - accuracy), **line)


def draw_histogram(
    ax: Axes, edges: np.ndarray, share: np.ndarray, confidence: float, accuracy: float, colour: str
) -> None:
    """The shares [B] of rows between the edges [B + 1], and the mean confidence beside the accuracy."""
    ax.bar(edges[:-1], share, np.diff(edges), align="edge", color=colour, alpha=0.55)
    for mean, dashes in ((confidence, "--"), (accuracy, ":")):
        ax.axvline(mean, color="black", ls=dashes, lw=0.9)
    gap = f"gap {confidence - accuracy:+.3f}".replace("-", "−")
    ax.text(0.03, 0.95, gap, transform=ax.transAxes, va="top")
    ax.set(xlim=(0, 1), xticks=[0, 0.5, 1])


def draw_mark(ax: Axes, point: np.ndarray, error: np.ndarray, colour: str, marker: str, face: str) -> None:
    """A point (x, y) of a frontier with its standard errors; NaN: it has none."""
    (x, y), (dx, dy) = point, np.nan_to_num(error)
    style: dict[str, Any] = {"marker": marker, "mfc": face, "markersize": 4.5, "elinewidth": 0.7, "zorder": 4}
    ax.errorbar(x, y, dy, dx, color=colour, **style)


def _axes(ax: Axes | None) -> Axes:
    return new_figure(COLUMN, HEIGHT).add_subplot() if ax is None else ax
