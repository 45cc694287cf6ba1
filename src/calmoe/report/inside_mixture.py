"""Figures of what happens inside a mixture: the tilted weights in training, the router and its experts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from calmoe.errors import InputError
from calmoe.methods import card
from calmoe.render.drawing import FULL, GREY, STYLE, Drawn, draw_band, draw_legend, new_figure
from calmoe.report.curves import QUANTILES, Curves
from calmoe.report.curves_over_seeds import by_method, mean_text, over_seeds, seed_counts, seeds_text
from calmoe.report.figure_cards import RunNumbers, curves_card
from calmoe.report.looks import fewer_seeds, legend_entries, looks
from calmoe.report.sections import INSIDE


@rc_context(STYLE)
def tilt(curves: Sequence[Curves]) -> Drawn:
    """Share of examples with a negative gradient weight, and Γ_eff, epoch by epoch; bands over seeds."""
    runs = {method: seeds for method, seeds in by_method(curves).items() if seeds[0]["history"]}
    if not runs:
        raise InputError("no method of this run has a tilted objective's history")
    figure = new_figure(FULL, 2.5)
    panels = figure.subplots(1, 2)
    titles = {"negative_share": "share of negative weights", "gamma_eff": "Γ_eff"}
    ends_text = []
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        for look, seeds in zip(looks(runs).values(), runs.values(), strict=True):
            epochs = seeds[0]["history"]["epoch"]
            mean, error = over_seeds([c["history"][column] for c in seeds])
            if np.isnan(mean).all():
                continue
            every = max(1, len(epochs) // 6)
            draw_band(axes, epochs, mean, error, look.colour, marker=look.marker, markevery=every)
            ends = (f"{mean[i]:.3f} in epoch {epochs[i]}" for i in (0, -1))
            ends_text.append(f"{look.title} {title} {', '.join(ends)}")
        axes.set(xlabel="epoch", ylabel=title.replace("Γ_eff", r"$\Gamma_{\mathrm{eff}}$"))
        axes.margins(x=0.02)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    panels[0].set_ylim(0, max(0.1, panels[0].get_ylim()[1]))
    panels[1].set_yscale("log", base=2)
    panels[1].yaxis.set_major_formatter("{x:g}")
    panels[1].set_ylim(0.97, max(2.1, panels[1].get_ylim()[1]))
    draw_legend(figure, legend_entries(runs, fewer_seeds(seed_counts(runs))))
    return Drawn(
        figure,
        f"The tilted weights over training, {seeds_text(runs)}. Means over seeds: {'; '.join(ends_text)}.",
    )


@rc_context(STYLE)
def routing(curves: Sequence[Curves]) -> Drawn:
    """Entropy of the routing and disagreement of the experts, on easy and on hard rows.

    Points are means, with standard errors over seeds; broad bars join the lower and upper quartiles of rows.
    """
    runs = {method: seeds for method, seeds in by_method(curves).items() if _routes(method, seeds[0])}
    if not runs:
        raise InputError("no method of this run has more than one expert")
    known = next(iter(runs.values()))[0]["routing"]["entropy"]
    parts = [part for part in ("easy", "hard") if part in known] or ["all"]
    figure = new_figure(FULL, 2.6)
    panels = figure.subplots(1, 2)
    titles = {"entropy": "routing entropy / log K", "disagreement": "expert disagreement"}
    suffixes = fewer_seeds(seed_counts(runs))
    names = [look.title + suffixes[method] for method, look in looks(runs).items()]
    quartiles = [QUANTILES.index(0.25), QUANTILES.index(0.75)]
    means_text = []
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        for i, (look, seeds) in enumerate(zip(looks(runs).values(), runs.values(), strict=True)):
            words = []
            for part, face in zip(parts, (look.colour, "white"), strict=False):
                summaries = [c["routing"][column][part] for c in seeds]
                x = i + (-0.18 if part == "easy" else 0.18 if part == "hard" else 0)
                low, high = np.mean([[h["quantiles"][q] for q in quartiles] for h in summaries], axis=0)
                axes.plot([x, x], [low, high], color=look.colour, alpha=0.3, lw=4, solid_capstyle="butt")
                mean, error = over_seeds([h["mean"] for h in summaries])
                marks: dict[str, Any] = {
                    "marker": look.marker,
                    "mfc": face,
                    "markersize": 4,
                    "elinewidth": 0.8,
                }
                axes.errorbar(x, mean, np.nan_to_num(error), color=look.colour, **marks)
                words.append(f"{part} {mean_text([h['mean'] for h in summaries])}")
            means_text.append(f"{look.title} {title} {', '.join(words)}")
        axes.set_xticks(range(len(runs)), names, rotation=40, ha="right", rotation_mode="anchor")
        axes.set(ylabel=title)
        axes.set_ylim(bottom=-0.02 * axes.get_ylim()[1])
        axes.tick_params(axis="x", length=0)
    faces = zip(parts, (GREY, "white"), strict=False)
    means = [Line2D([], [], color=GREY, marker="o", ls="", mfc=f, label=f"mean, {p} rows") for p, f in faces]
    draw_legend(figure, [*means, Patch(color=GREY, alpha=0.3, label="middle half of the rows")])
    return Drawn(figure, f"Inside the mixture, {seeds_text(runs)}. {'; '.join(means_text)}.")


def _routes(method: str, curves: Curves) -> bool:
    """Whether a router chose: a single expert's views, pooled, look like experts and are none."""
    return bool(curves["routing"]) and card(method).head == "mixture"


def _routing_caption(numbers: RunNumbers) -> str:
    rows = ", on easy and on hard rows" if numbers.hard else ""
    return (
        "How evenly the router spreads its weight, and how much the experts disagree"
        f"{rows}. Thin bars are one standard error over seeds."
    )


CARDS = (
    curves_card(
        "tilt",
        INSIDE,
        tilt,
        "The tilted objectives during training: how many examples are pushed away, and how far the "
        "adversary's weights are from even (Γ_eff = 1 is even). Bands are one standard error over seeds. "
        "Robust Filtered is not here: it tilts a part of each batch only, and training keeps no record of "
        "its weights.",
    ),
    curves_card("routing", INSIDE, routing, _routing_caption),
)
