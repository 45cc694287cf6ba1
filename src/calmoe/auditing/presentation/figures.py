"""A figure of the audit before it is drawn, and the style that all of them share.

Only `draw` needs matplotlib, and imports it: auditing without figures never does.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.render.drawing import Drawn

COLUMN, FULL = 4.29, 6.9  # inches: 1.3 columns of the paper, and its full width
BLACK, BLUE, ORANGE = "#000000", "#0072b2", "#e69f00"  # Okabe and Ito's colours
VERMILION, GREEN, PURPLE = "#d55e00", "#009e73", "#cc79a7"
GREY = "#555555"


class Figure(NamedTuple):
    """One figure: the name of its file, how to read it, its size in inches, and who draws it.

    draw: puts the figure on the canvas and returns in words what it shows, for those who cannot see it.
    """

    name: str
    caption: str
    width: float
    height: float
    draw: Callable[["Canvas"], str]


def draw(figures: Iterable[Figure]) -> "dict[str, Drawn]":
    """The figures by name."""
    from matplotlib import rc_context

    from calmoe.render.drawing import STYLE, Drawn, new_figure

    drawn = {}
    with rc_context(STYLE):
        for figure in figures:
            canvas = new_figure(figure.width, figure.height)
            alt = figure.draw(canvas)
            drawn[figure.name] = Drawn(canvas, alt)
    return drawn
