"""The reliability diagram as SVG that follows the page's colours: how sure, against how often right."""

import numpy as np

from calmoe.auditing.sections.reliability import Diagram
from calmoe.metrics.checks import Of
from calmoe.render.page import Html

LEFT, TOP, SIDE = 46, 10, 270  # of the square plot, in the picture's own units
WIDTH, HEIGHT = LEFT + SIDE + 20, TOP + SIDE + 44
SMALLEST, LARGEST = 2.5, 9.0  # radii of marks


def radius(share: float) -> float:
    """A mark's area grows with its share of rows."""
    return max(SMALLEST, LARGEST * min(share * 2, 1.0) ** 0.5)


def reliability_svg(diagram: Diagram, of: Of | str) -> Html:
    """A mark a bin, as large as it has rows, with its interval; true probabilities lie on the line."""
    rows = diagram.count.sum()
    marks = []
    for i in np.flatnonzero(diagram.count > 0):
        x, y = _x(diagram.confidence[i]), _y(diagram.right[i])
        low, high = _y(diagram.right_low[i]), _y(diagram.right_high[i])
        said = (
            f"{diagram.confidence[i]:.0%} sure, {diagram.right[i]:.0%} right, {int(diagram.count[i]):,} rows"
        )
        marks.append(
            f'<g><line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
            f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="{radius(diagram.count[i] / rows):.1f}">'
            f"<title>{said}</title></circle></g>"
        )
    return frame("".join(marks), of, "Reliability diagram: " + _alt(diagram))


def frame(marks: str, of: Of | str, alt: str) -> Html:
    """The axes, the line of true probabilities and what lies on either side of it; around the marks.

    alt is ours, made of numbers: no text of a file is in it.
    """
    right, bottom = LEFT + SIDE, TOP + SIDE
    across = "how sure it says it is" if of == "top" else "the probability that it gives"
    up = "how often it is right" if of == "top" else "how often it comes true"
    ticks = "".join(
        f'<text x="{_x(t):.0f}" y="{bottom + 15}" text-anchor="middle">{t:.0%}</text>'
        f'<text x="{LEFT - 6}" y="{_y(t) + 4:.0f}" text-anchor="end">{t:.0%}</text>'
        f'<line class="grid" x1="{_x(t):.0f}" x2="{_x(t):.0f}" y1="{TOP}" y2="{bottom}"/>'
        f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{_y(t):.0f}" y2="{_y(t):.0f}"/>'
        for t in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    return Html(
        f'<svg class="diagram" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{alt}">{ticks}'
        f'<line class="true" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{TOP}"/>'
        f'<text class="side" x="{LEFT + 8}" y="{TOP + 16}">above the line: too low</text>'
        f'<text class="side" x="{right - 8}" y="{bottom - 8}" text-anchor="end">'
        "below the line: too high</text>"
        f'<text x="{LEFT + SIDE / 2}" y="{bottom + 34}" text-anchor="middle">{across}</text>'
        f'<text transform="translate(11 {TOP + SIDE / 2}) rotate(-90)" text-anchor="middle">{up}</text>'
        f"{marks}</svg>"
    )


def _x(share: float) -> float:
    return LEFT + SIDE * float(share)


def _y(share: float) -> float:
    return TOP + SIDE * (1 - float(share))


def _alt(diagram: Diagram) -> str:
    used = diagram.count > 0
    pairs = zip(diagram.confidence[used], diagram.right[used], strict=True)
    return "; ".join(f"{c:.0%} sure, {r:.0%} right" for c, r in pairs) + "."
