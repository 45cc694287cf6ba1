"""The map from η to Γ_eff that a sweep of η measures, beside the paper's."""

import math
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.lines import Line2D

from calmoe.errors import InputError
from calmoe.render.drawing import FULL, GREY, STYLE, Drawn, draw_legend, new_figure
from calmoe.render.grid import Entry, Grid, Heading, count, estimate, number, signed
from calmoe.report.figure_cards import FigureCard, RunNumbers
from calmoe.report.looks import legend_entries, looks
from calmoe.report.published import published
from calmoe.report.rows_over_seeds import Cell, Rows
from calmoe.report.sweep_figures import draw_values, label_values, values_text
from calmoe.report.sweep_points import Cells, Swept, by_point, seeds_at_points, settings_of, value_entries
from calmoe.report.sweeps import sweep_section, trimmed
from calmoe.report.tables import METHOD, SEEDS, method_entry

DATASET, TILTED = "cifar10h", "robust"  # where the paper measured Γ_eff
MEASURED = "in the last epoch"  # when the perplexity and Γ_eff of a row were measured


class Concentration(NamedTuple):
    """How far the weights in batches of n examples are from equal; `top` is n / Γ_eff, rounded up."""

    perplexity: Cell
    effective_fraction: Cell
    gamma_eff: Cell
    top: int


def eta_gamma(rows: Rows) -> tuple[dict[str, dict[float, Concentration]], int]:
    """The concentration of the tilted weights, by method and η; and the batch size n."""
    if settings_of(rows) != ("eta",):
        raise InputError(f"η and Γ_eff need a sweep of eta, not of {', '.join(settings_of(rows))}")
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
    swept = by_point(tilted, tilted[0]["protocol"])  # training has one set of weights, whatever the protocol

    def tilt(cells: Cells) -> Concentration:
        perplexity, gamma = cells["perplexity"], cells["gamma_eff"]
        share = Cell(perplexity.mean / n, perplexity.standard_error / n, perplexity.n)
        return Concentration(perplexity, share, gamma, math.ceil(n / gamma.mean - 1e-9))

    return {
        method: {eta: tilt(cells) for (eta,), cells in by.items() if isinstance(eta, int | float)}
        for method, by in swept.items()
    }, n


def eta_gamma_table(rows: Rows, dataset: str = DATASET, measured: str = MEASURED) -> Grid:
    """η, the weights' perplexity, its share of the batch, Γ_eff, and the top-k of an equal hard adversary.

    Beside Robust MoE on CIFAR-10H stand the paper's numbers, and the differences of those that are measured;
    the share and the top-k follow from these. The paper measured its trained models; `measured` says when the
    run measured its own.
    """
    tilts, n = eta_gamma(rows)
    texts = value_entries([eta for by in tilts.values() for eta in by])

    def row(method: str, eta: float, tilt: Concentration) -> tuple[Entry, ...]:
        paper = _paper(method, dataset, n).get(eta, {})
        perplexity, fraction, gamma, top = (
            paper.get(name, math.nan)
            for name in ("perplexity", "effective_fraction", "density_ratio_bound", "top")
        )
        return (
            method_entry(method),
            texts[eta],
            count(tilt.perplexity.n),
            estimate(*tilt.perplexity[:2], decimals=1),
            number(perplexity, 1),
            signed(tilt.perplexity.mean - perplexity, decimals=1),
            estimate(*tilt.effective_fraction[:2]),
            number(fraction, 3),
            estimate(*tilt.gamma_eff[:2], decimals=2),
            number(gamma, 1),
            signed(tilt.gamma_eff.mean - gamma, decimals=2),
            count(tilt.top),
            number(top, 0),
        )

    beside = any(_paper(method, dataset, n) for method in tilts)
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
        tuple(tuple(row(method, eta, tilt) for eta, tilt in by.items()) for method, by in tilts.items()),
    )
    return trimmed(grid, list(tilts), () if beside else ("Paper", "Difference"))


@rc_context(STYLE)
def eta_gamma_figure(rows: Rows, dataset: str = DATASET, measured: str = MEASURED) -> Drawn:
    """Perplexity and Γ_eff against η, bars over seeds, with the paper's points where it has them."""
    tilts, n = eta_gamma(rows)
    swept: Swept = {
        method: {
            (eta,): {"perplexity": tilt.perplexity, "gamma_eff": tilt.gamma_eff} for eta, tilt in by.items()
        }
        for method, by in tilts.items()
    }
    paper = {eta: point for method in swept for eta, point in _paper(method, dataset, n).items()}
    figure = new_figure(FULL, 2.5)
    left, right = figure.subplots(1, 2)
    for axes, column, name in (
        (left, "perplexity", "perplexity"),
        (right, "gamma_eff", "density_ratio_bound"),
    ):
        for look, values in zip(looks(swept).values(), swept.values(), strict=True):
            draw_values(axes, values, column, look)
        points: dict[str, Any] = {"marker": "o", "mfc": "none", "ls": "", "markersize": 5, "color": GREY}
        axes.plot(list(paper), [point[name] for point in paper.values()], zorder=3, **points)
        label_values(axes, "eta", swept)
    left.set(ylabel=f"perplexity, of n = {n}")
    right.set(ylabel=r"$\Gamma_{\mathrm{eff}}$")
    entries = legend_entries(swept)
    if paper:
        title = "the paper's Robust MoE, after training"
        entries.append(Line2D([], [], marker="o", mfc="none", ls="", markersize=5, color=GREY, label=title))
    draw_legend(figure, entries, columns=4)
    printed = "; ".join(f"{eta:g}: {p['perplexity']}, {p['density_ratio_bound']}" for eta, p in paper.items())
    columns = {"perplexity": "perplexity", "gamma_eff": "Γ_eff"}
    return Drawn(
        figure,
        f"η against the perplexity of the tilted weights in batches of {n} and Γ_eff, "
        f"{seeds_at_points(swept)}, "
        f"measured {measured}. {values_text(['eta'], swept, columns, 2)}."
        + (f" The paper, perplexity and Γ_eff by η: {printed}." if paper else ""),
    )


def _paper(method: str, dataset: str, n: int) -> dict[float, dict[str, float]]:
    """The paper's rows by η, where method, dataset and batch size are the paper's."""
    table = published("eta_gamma")
    if (method, dataset, n) != (TILTED, DATASET, table["batch_size"]):
        return {}
    return {row["eta"]: row for row in table["rows"]}


CARD: FigureCard[RunNumbers] = FigureCard(
    name="eta_gamma",
    section=sweep_section("eta"),
    caption="How far the tilted weights of a batch are from even, by η, in the last epoch.",
    draw=lambda numbers: eta_gamma_figure(numbers.sweeps["eta"], numbers.dataset),
)
