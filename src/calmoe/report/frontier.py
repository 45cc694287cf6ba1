"""The frontier of a temperature: what one temperature alone can reach, method by method."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from matplotlib.ticker import NullLocator

from calmoe.errors import InputError
from calmoe.render.drawing import FULL, GREY, STYLE, Drawn, draw_band, draw_legend, new_figure
from calmoe.render.plots import draw_mark
from calmoe.report.curves import Curves
from calmoe.report.curves_over_seeds import by_method, mean_text, over_seeds, seed_counts, seeds_text
from calmoe.report.figure_cards import RunNumbers, curves_card
from calmoe.report.looks import fewer_seeds, legend_entries, looks
from calmoe.report.sections import FRONTIER

LEAST = 0.004  # of the ECE's logarithmic axis
SHOWN = (2 * LEAST, 0.01)  # ECE and hard ECE that the axes always reach
BUDGETS = np.geomspace(LEAST, 0.12, 120)
BUDGETS_IN_WORDS = (0.02, 0.05)
MOST_BANDS = 4  # methods: more bands in one panel hide the curves
HARD_UNIT = 0.1  # of hard ECE: as long on paper as a factor of e in ECE


@rc_context(STYLE)
def frontier(curves: Sequence[Curves]) -> Drawn:
    """ECE against hard ECE as the temperature sweeps, and the lowest hard ECE within a budget of ECE.

    A curve is the mean over seeds at equal temperature. Its band is the standard error across the curve, for
    a few methods only; bars are standard errors. Full markers are the temperatures that validation chose,
    hollow ones T = 1. On the right, a method dominates another where its line is lower at every budget.
    Without a hard subset the two are the ECE of validation, from the domains of training, and of test.
    """
    runs = {m: seeds for m, seeds in by_method(curves).items() if "hard_ece" in seeds[0]["frontier"]}
    if not runs:
        raise InputError("no hard subset in these curves: there is no frontier to draw")
    easier, harder = next(iter(runs.values()))[0]["frontier"].get("of", ("ECE", "hard ECE"))
    figure = new_figure(FULL, 3.45)
    left, right = figure.subplots(1, 2)
    methods_text, tops = [], []
    for look, seeds in zip(looks(runs).values(), runs.values(), strict=True):
        sweeps = [c["frontier"] for c in seeds]
        points = _at_common_temperatures(sweeps)
        mean = points.mean(axis=0)
        left.plot(*mean.T, color=look.colour, lw=1)
        if len(runs) <= MOST_BANDS:
            _draw_band_across(left, points, look.colour)
        chosen, untouched = (
            np.array([[s[name][at(s)] for name in ("ece", "hard_ece")] for s in sweeps])
            for at in (lambda s: s["chosen"], lambda s: s["temperature"].index(1.0))
        )
        for point, face in ((untouched, "white"), (chosen, look.colour)):
            draw_mark(left, *over_seeds(point), look.colour, look.marker, face)
        tops.append(np.array([untouched.mean(0), chosen.mean(0)]))
        lowest = np.array([reachable(s, BUDGETS) for s in sweeps])
        low, error = over_seeds(np.where(np.isnan(lowest).any(axis=0), np.nan, lowest))
        draw_band(right, BUDGETS, low, error, look.colour, lw=1, marker=look.marker, markevery=0.15)
        methods_text.append(f"{look.title} {_method_text(seeds, chosen)}")
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
    draw_legend(figure, legend_entries(runs, fewer_seeds(seed_counts(runs))))
    return Drawn(
        figure,
        f"Temperature frontier, {len(runs)} methods, {seeds_text(runs)}. At the temperature that validation "
        f"chose, {easier} and {harder}; then the lowest {harder} of any temperature with {easier} at most "
        f"{' and '.join(map(str, BUDGETS_IN_WORDS))}: {'; '.join(methods_text)}.",
    )


def reachable(swept: Mapping[str, Any], budgets: Sequence[float] | np.ndarray) -> np.ndarray:
    """The lowest hard ECE of any temperature whose ECE is within each budget; NaN where none is.

    `swept` is `curves(...)["frontier"]`; between its temperatures both errors are taken as linear.

    >>> reachable({"ece": [0.1, 0.0, 0.2], "hard_ece": [0.3, 0.2, 0.1]}, [0.1, 0.2]).round(3)
    array([0.15, 0.1 ])
    """
    known = np.arange(len(swept["ece"]))
    fine = np.linspace(0, known[-1], 50 * known[-1] + 1)
    total, hard = (np.interp(fine, known, swept[name]) for name in ("ece", "hard_ece"))
    within = np.where(total <= np.asarray(budgets)[:, None] + 1e-12, hard, np.inf).min(axis=1)
    return np.where(np.isfinite(within), within, np.nan)


def _method_text(seeds: list[Curves], chosen: np.ndarray) -> str:
    within = np.array([reachable(c["frontier"], BUDGETS_IN_WORDS) for c in seeds])
    at_chosen, below = (" and ".join(map(mean_text, values.T)) for values in (chosen, within))
    return f"(T = {np.mean([c['temperature'] for c in seeds]):.2f}) {at_chosen}, then {below}"


def _at_common_temperatures(sweeps: Sequence[dict[str, Any]]) -> np.ndarray:
    """ECE and hard ECE at the temperatures that all seeds have, [seeds, temperatures, 2].

    The sweep of each seed also holds the temperature that its own validation rows chose.
    """
    common = sorted(set.intersection(*({round(t, 9) for t in s["temperature"]} for s in sweeps)))
    rows = [[[round(t, 9) for t in s["temperature"]].index(t) for t in common] for s in sweeps]
    return np.array(
        [[[s["ece"][i], s["hard_ece"][i]] for i in at] for s, at in zip(sweeps, rows, strict=True)]
    )


def _draw_band_across(axes: Axes, points: np.ndarray, colour: str) -> None:
    """The standard error of the mean curve, measured across it: ± sqrt(nᵀ Σ n / seeds) along its normal n.

    The normal is the one that the eye sees: the axis of the ECE is logarithmic and has no place for 0.
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
    axes.add_patch(Polygon(np.concatenate([one, other[::-1]]), color=colour, alpha=0.15, linewidth=0))


def _caption(numbers: RunNumbers) -> str:
    if numbers.hard:
        errors = "ECE against hard ECE"
    elif numbers.target:
        errors = "Validation ECE, on the domains trained on, against test ECE, on the target domain,"
    else:
        errors = "Validation ECE against test ECE"
    return (
        f"{errors} as one temperature sweeps, and the lowest that any temperature reaches within a budget. "
        "Curves that coincide differ by their temperature alone. A method has no line on the right where "
        f"some seed needs a budget above {BUDGETS[-1]:g}. Bars and bands are one standard error over seeds."
    )


CARDS = (curves_card("frontier", FRONTIER, frontier, _caption),)
