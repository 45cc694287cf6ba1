"""Figures beyond the paper: what a temperature alone can reach, and what goes on inside a mixture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon
from matplotlib.ticker import MaxNLocator, NullLocator

from calmoe.errors import InputError
from calmoe.render.drawing import (
    FULL,
    GREY,
    STYLE,
    Drawn,
    Look,
    band,
    by_method,
    fewer_seeds,
    handles,
    key,
    looks,
    new_figure,
    over_seeds,
    seeds_told,
    told,
)
from calmoe.report.curves import QUANTILES, Curves, reachable

LEAST = 0.004  # of the ECE's logarithmic axis
SHOWN = (2 * LEAST, 0.01)  # ECE and hard ECE that the axes always reach
BUDGETS = np.geomspace(LEAST, 0.12, 120)
BUDGETS_TOLD = (0.02, 0.05)
MOST_BANDS = 4  # methods: more bands in one panel hide the curves
HARD_UNIT = 0.1  # of hard ECE: as long on paper as a factor of e in ECE


@rc_context(STYLE)
def frontier(of_runs: Sequence[Curves]) -> Drawn:
    """ECE against hard ECE as the temperature sweeps; and the lowest hard ECE within a budget of ECE.

    A curve is the mean over seeds at equal temperature, its band the standard error across the curve, drawn
    for few methods; bars are standard errors. Full markers are the temperatures that validation chose, hollow
    ones T = 1. On the right, a method dominates another where its line lies below the other's at every
    budget. Where there is no hard subset, these are the ECE of validation and of test: of the domains trained
    on, and of a new one.
    """
    runs = {m: seeds for m, seeds in by_method(of_runs).items() if "hard_ece" in seeds[0]["frontier"]}
    if not runs:
        raise InputError("no hard subset in these curves: there is no frontier to draw")
    easier, harder = next(iter(runs.values()))[0]["frontier"].get("of", ("ECE", "hard ECE"))
    figure = new_figure(FULL, 3.45)
    left, right = figure.subplots(1, 2)
    told_of, tops = [], []
    for look, seeds in zip(looks(runs).values(), runs.values(), strict=True):
        sweeps = [c["frontier"] for c in seeds]
        points = _at_common_temperatures(sweeps)
        mean = points.mean(axis=0)
        left.plot(*mean.T, color=look.colour, lw=1)
        if len(runs) <= MOST_BANDS:
            _normal_band(left, points, look)
        chosen, untouched = (
            np.array([[s[name][at(s)] for name in ("ece", "hard_ece")] for s in sweeps])
            for at in (lambda s: s["chosen"], lambda s: s["temperature"].index(1.0))
        )
        for point, face in ((untouched, "white"), (chosen, look.colour)):
            (x, y), (dx, dy) = over_seeds(point)
            marks: dict[str, Any] = {"marker": look.marker, "mfc": face, "markersize": 4.5, "elinewidth": 0.7}
            left.errorbar(x, y, np.nan_to_num(dy), np.nan_to_num(dx), color=look.colour, zorder=4, **marks)
        tops.append(np.array([untouched.mean(0), chosen.mean(0)]))
        lowest = np.array([reachable(s, BUDGETS) for s in sweeps])
        low, error = over_seeds(np.where(np.isnan(lowest).any(axis=0), np.nan, lowest))
        band(right, BUDGETS, low, error, look, lw=1, marker=look.marker, markevery=0.15)
        told_of.append(f"{look.title} {_told(seeds, chosen)}")
    reach = np.maximum(np.array(tops).reshape(-1, 2).max(axis=0), SHOWN)
    left.set(xlabel=easier, ylabel=harder, ylim=(0, 1.12 * reach[1]), title="as T sweeps")
    right.set(xlabel=f"{easier} at most", ylabel=f"lowest {harder} of any T", title="what some T reaches")
    for axes, high in ((left, 1.3 * reach[0]), (right, BUDGETS[-1])):
        axes.set_xlim(LEAST, high)  # first: a logarithmic scale cannot find limits where all is 0
        axes.set_xscale("log")
        axes.set_xticks([tick for tick in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if LEAST <= tick <= high])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    if not right.lines:
        nothing = f"no T reaches\n{easier} of {BUDGETS[-1]:g} in every seed"
        right.text(0.5, 0.5, nothing, transform=right.transAxes, ha="center", color=GREY)
    chosen_and_raw = [
        Line2D([], [], color=GREY, marker="o", ls="", label="T from validation"),
        Line2D([], [], color=GREY, marker="o", mfc="white", ls="", label="T = 1"),
    ]
    left.legend(handles=chosen_and_raw, loc="best")
    key(figure, handles(runs))
    return Drawn(
        figure,
        f"Temperature frontier, {len(runs)} methods, {seeds_told(runs)}. At the temperature that validation "
        f"chose, {easier} and {harder}; then the lowest {harder} of any temperature with {easier} at most "
        f"{' and '.join(map(str, BUDGETS_TOLD))}: {'; '.join(told_of)}.",
    )


def _told(seeds: list[Curves], chosen: np.ndarray) -> str:
    within = np.array([reachable(c["frontier"], BUDGETS_TOLD) for c in seeds])
    at_chosen, below = (" and ".join(told(column) for column in values.T) for values in (chosen, within))
    return f"(T = {np.mean([c['temperature'] for c in seeds]):.2f}) {at_chosen}, then {below}"


def _at_common_temperatures(sweeps: Sequence[dict[str, Any]]) -> np.ndarray:
    """ECE and hard ECE at the temperatures that all seeds have, [seeds, temperatures, 2].

    Each seed's sweep also holds the one temperature that its own validation rows chose.
    """
    common = sorted(set.intersection(*({round(t, 9) for t in s["temperature"]} for s in sweeps)))
    rows = [[[round(t, 9) for t in s["temperature"]].index(t) for t in common] for s in sweeps]
    return np.array(
        [[[s["ece"][i], s["hard_ece"][i]] for i in at] for s, at in zip(sweeps, rows, strict=True)]
    )


def _normal_band(axes: Axes, points: np.ndarray, look: Look) -> None:
    """The standard error of the mean curve, measured across it: ± sqrt(nᵀ Σ n / seeds) along its normal n.

    What is across is judged as the eye sees it: the ECE's axis is logarithmic, where 0 has no place.
    """
    points = points[:, points[..., 0].mean(axis=0) > 0]
    if len(points) < 2 or points.shape[1] < 2:
        return
    mean = points.mean(axis=0)
    unit = np.stack([mean[:, 0], np.full(len(mean), HARD_UNIT)], axis=1)  # d log x = dx / x
    tangent = np.gradient(mean, axis=0) / unit
    length = np.linalg.norm(tangent, axis=1, keepdims=True)
    normal = tangent[:, ::-1] * [-1, 1] / np.where(length > 0, length, 1)
    across = ((points - mean) / unit * normal).sum(axis=2)
    edge = normal * (across.std(axis=0, ddof=1) / len(points) ** 0.5)[:, None]
    one, other = (mean * [1, 0] * np.exp(e) + (mean + HARD_UNIT * e) * [0, 1] for e in (edge, -edge))
    axes.add_patch(Polygon(np.concatenate([one, other[::-1]]), color=look.colour, alpha=0.15, linewidth=0))


@rc_context(STYLE)
def tilt(of_runs: Sequence[Curves]) -> Drawn:
    """Share of examples with a negative gradient weight, and Γ_eff, epoch by epoch; bands over seeds."""
    runs = {method: seeds for method, seeds in by_method(of_runs).items() if seeds[0]["history"]}
    if not runs:
        raise InputError("no method of this run has a tilted objective's history")
    figure = new_figure(FULL, 2.5)
    panels = figure.subplots(1, 2)
    titles = {"negative_share": "share of negative weights", "gamma_eff": "Γ_eff"}
    told_of = []
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        for look, seeds in zip(looks(runs).values(), runs.values(), strict=True):
            epochs = seeds[0]["history"]["epoch"]
            mean, error = over_seeds([c["history"][column] for c in seeds])
            if np.isnan(mean).all():
                continue
            every = max(1, len(epochs) // 6)
            band(axes, epochs, mean, error, look, marker=look.marker, markevery=every)
            ends = (f"{mean[i]:.3f} in epoch {epochs[i]}" for i in (0, -1))
            told_of.append(f"{look.title} {title} {', '.join(ends)}")
        axes.set(xlabel="epoch", ylabel=title.replace("Γ_eff", r"$\Gamma_{\mathrm{eff}}$"))
        axes.margins(x=0.02)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    panels[0].set_ylim(0, max(0.1, panels[0].get_ylim()[1]))
    panels[1].set_yscale("log", base=2)
    panels[1].yaxis.set_major_formatter("{x:g}")
    panels[1].set_ylim(0.97, max(2.1, panels[1].get_ylim()[1]))
    key(figure, handles(runs))
    return Drawn(
        figure,
        f"The tilted weights over training, {seeds_told(runs)}. Means over seeds: {'; '.join(told_of)}.",
    )


@rc_context(STYLE)
def routing(of_runs: Sequence[Curves]) -> Drawn:
    """Entropy of the routing and disagreement of the experts, easy against hard rows.

    Points are means, with standard errors over seeds; broad bars join the lower and upper quartiles of rows.
    """
    runs = {method: seeds for method, seeds in by_method(of_runs).items() if seeds[0]["routing"]}
    if not runs:
        raise InputError("no method of this run has more than one expert")
    parts = [p for p in ("easy", "hard") if p in next(iter(runs.values()))[0]["routing"]["entropy"]] or [
        "all"
    ]
    figure = new_figure(FULL, 2.6)
    panels = figure.subplots(1, 2)
    titles = {"entropy": "routing entropy / log K", "disagreement": "expert disagreement"}
    short = fewer_seeds({method: [len(seeds)] for method, seeds in runs.items()})
    quartiles = [QUANTILES.index(0.25), QUANTILES.index(0.75)]
    told_of = []
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        for i, (look, seeds) in enumerate(zip(looks(runs).values(), runs.values(), strict=True)):
            words = []
            for part, face in zip(parts, (look.colour, "white"), strict=False):
                found = [c["routing"][column][part] for c in seeds]
                x = i + (-0.18 if part == "easy" else 0.18 if part == "hard" else 0)
                low, high = np.mean([[h["quantiles"][q] for q in quartiles] for h in found], axis=0)
                axes.plot([x, x], [low, high], color=look.colour, alpha=0.3, lw=4, solid_capstyle="butt")
                mean, error = over_seeds([h["mean"] for h in found])
                marks: dict[str, Any] = {
                    "marker": look.marker,
                    "mfc": face,
                    "markersize": 4,
                    "elinewidth": 0.8,
                }
                axes.errorbar(x, mean, np.nan_to_num(error), color=look.colour, **marks)
                words.append(f"{part} {told([h['mean'] for h in found])}")
            told_of.append(f"{look.title} {title} {', '.join(words)}")
        names = [look.title + fewer for look, fewer in zip(looks(runs).values(), short.values(), strict=True)]
        axes.set_xticks(range(len(runs)), names, rotation=40, ha="right", rotation_mode="anchor")
        axes.set(ylabel=title)
        axes.set_ylim(bottom=-0.02 * axes.get_ylim()[1])
        axes.tick_params(axis="x", length=0)
    faces = zip(parts, (GREY, "white"), strict=False)
    means = [Line2D([], [], color=GREY, marker="o", ls="", mfc=f, label=f"mean, {p} rows") for p, f in faces]
    key(figure, [*means, Patch(color=GREY, alpha=0.3, label="middle half of the rows")])
    return Drawn(figure, f"Inside the mixture, {seeds_told(runs)}. {'; '.join(told_of)}.")
