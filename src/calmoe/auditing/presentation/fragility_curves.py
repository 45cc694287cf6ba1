"""How the report shows fragility: its sentences, its figure and its table."""

from typing import TYPE_CHECKING

import numpy as np

from calmoe.auditing.presentation.figures import BLUE, GREEN, GREY, PURPLE, VERMILION
from calmoe.auditing.presentation.numbers import cells, headings, in_words
from calmoe.auditing.statistics.demonstration import SMALLEST, quoted
from calmoe.render.grid import Grid, count, label, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.auditing.sections.fragility import Fragility

CAPTION = (
    "A line says how large the calibration error becomes, on labels it was not chosen on, when "
    "the configurations are reweighted by as much as the KL below; bands are intervals. "
    "A line that climbs at once belongs to probabilities that a small shift breaks, a flat one to "
    "calibration that does not hang on the mix."
)
LOOKS = {
    "configurations": ("any configurations", VERMILION, "o"),
    "regions": ("the experts' regions", BLUE, "s"),
    "disagreement": ("more or less disagreement", GREEN, "^"),
    "entropy": ("more or less routing entropy", PURPLE, "v"),
}


def sentences(fragility: "Fragility") -> str:
    """What a reweighting with KL 0.1 forces, and how far it takes to double the ECE."""
    curve, at = fragility.configurations, quoted(fragility.configurations.radii)
    force = "forces" if curve.error[at].low > 0 else "is not shown to force"
    text = (
        f"a reweighting of the configurations with KL {curve.radii[at]:g} {force} a calibration error: "
        f"{in_words(curve.error[at])} on labels it was not chosen on"
    )
    if fragility.regions in fragility.moving:
        alone = in_words(fragility.regions.error[at])
        text += f"; reweighting the experts' regions alone gives {alone}"
    text += "." if fragility.decided else ", and another seed might say otherwise."
    doubled, doubling = fragility.doubled, fragility.doubling
    twice = "the ECE" if doubled > 2 * SMALLEST else f"{SMALLEST:g} (the ECE is smaller)"
    if np.isinf(doubling.high):
        return text + f" No KL up to {curve.radii[-1]:g} is shown to force {doubled:.3f}, twice {twice}."
    text += f" {doubled:.3f}, twice {twice}, is reached at KL {doubling.value:.3f}"
    return text + f", and by the lower ends of the intervals at {doubling.high:.3f}."


def draw_curves(fragility: "Fragility", canvas: "Canvas") -> str:
    """The demonstrated calibration error against the KL radius with intervals, a line an adversary."""
    axes = canvas.add_subplot()
    for curve in fragility.moving:
        title, colour, marker = LOOKS[curve.name]
        value, low, high = (
            np.array([getattr(p, end) for p in curve.error]) for end in ("value", "low", "high")
        )
        axes.plot(curve.radii, value, color=colour, marker=marker, label=title)
        axes.fill_between(curve.radii, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(fragility.doubled, color=GREY, linewidth=0.6, linestyle=":")
    axes.annotate(
        "twice the ECE",
        (1, fragility.doubled),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="bottom",
        color=GREY,
    )
    axes.set(
        xlabel="KL radius ε",
        ylabel="calibration error on held-out labels",
        ylim=(min(0, *axes.get_ylim()), None),
    )
    axes.legend(title="reweighting", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    ends = ", ".join(f"{LOOKS[c.name][0]} {in_words(c.error[-1])}" for c in fragility.moving)
    furthest = fragility.configurations.radii[-1]
    return f"Calibration error under the worst reweighting; at KL {furthest:g}: {ends}."


def curves_table(fragility: "Fragility") -> Grid:
    """A row a curve and radius."""
    rows = tuple(
        tuple(
            (
                label(curve.name, curve.name),
                number(float(radius)),
                *cells(curve.error[i], sign=True),
                *cells(curve.ece[i]),
                count(round(curve.effective[i])),
            )
            for i, radius in enumerate(curve.radii)
        )
        for curve in fragility.moving
    )
    columns = headings(
        ("reweighting of", "curve"),
        ("KL", "kl"),
        ("error forced", "error*"),
        ("ECE", "ece*"),
        ("effective rows", "effective"),
    )
    return Grid("Every point of the curves", columns, rows)
