"""The audit's figures: the fragility curves, the auditors' heat map, the mixture beside its experts."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import TwoSlopeNorm

from calmoe.auditing.presentation import certificate_page
from calmoe.auditing.presentation.summary import told
from calmoe.auditing.presentation.target_page import reliability
from calmoe.auditing.sections import surface
from calmoe.auditing.sections.auditors import Auditors
from calmoe.auditing.sections.calibration import Aggregate
from calmoe.auditing.sections.fragility import Fragility
from calmoe.render.drawing import COLUMN, FULL, GREY, STYLE, Drawn, new_figure

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

_CURVES = {  # Okabe and Ito's colours
    "configurations": ("any configurations", "#d55e00", "o"),
    "regions": ("the experts' regions", "#0072b2", "s"),
    "disagreement": ("more or less disagreement", "#009e73", "^"),
    "entropy": ("more or less routing entropy", "#cc79a7", "v"),
}


_NODES = {"indicator": "bin's centre", "hat": "where the hat is 1"}


def figures(report: "AuditReport") -> dict[str, Drawn]:
    """Those that apply, by name."""
    drawn = {"reliability": surface.figure(report.surface)}
    if report.num_experts > 1:
        drawn["experts"] = experts(report.aggregate)
    if report.fragility is not None:
        drawn["fragility"] = fragility(report.fragility)
    drawn["auditors"], drawn["hats"] = heat_map(report.indicators), heat_map(report.hats)
    drawn["certificates"] = certificate_page.figure(report.certificates, report.fragility)
    if report.target is not None:
        drawn["target"] = reliability(report.target)
    return drawn


@rc_context(STYLE)
def fragility(found: Fragility) -> Drawn:
    """Demonstrated calibration error against the KL radius, an adversary a line, with intervals."""
    figure = new_figure(COLUMN * 1.3, 3.1)
    axes = figure.add_subplot()
    for curve in found.curves:
        title, colour, marker = _CURVES[curve.name]
        value, low, high = (
            np.array([getattr(p, end) for p in curve.error]) for end in ("value", "low", "high")
        )
        axes.plot(curve.radii, value, color=colour, marker=marker, label=title)
        axes.fill_between(curve.radii, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(found.doubled, color=GREY, linewidth=0.6, linestyle=":")
    axes.annotate(
        "twice the ECE",
        (1, found.doubled),
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
    ends = ", ".join(f"{_CURVES[c.name][0]} {told(c.error[-1])}" for c in found.curves)
    return Drawn(
        figure,
        f"Calibration error under the worst reweighting; at KL {found.configurations.radii[-1]:g}: {ends}.",
    )


@rc_context(STYLE)
def heat_map(found: Auditors) -> Drawn:
    """The moments of all auditors, experts down and confidence across; dots: different from zero."""
    used = found.mass.sum(axis=0) > 0
    moments, marked = found.moments[:, used], found.found[:, used]
    figure = new_figure(FULL, 0.9 + 0.28 * len(moments))
    axes = figure.add_subplot()
    widest = np.nan_to_num(found.high - found.moments).max()  # on this scale what is only noise stays pale
    most = max(float(np.abs(moments).max()), float(widest), 1e-6)
    image = axes.imshow(moments, cmap="RdBu_r", norm=TwoSlopeNorm(0, -most, most), aspect="auto")
    for k, j in np.argwhere(marked):
        axes.plot(j, k, marker="o", color="black", markersize=3)
    axes.set_xticks(range(int(used.sum())), [f"{node:.2f}" for node in found.nodes[used]])
    mixed = len(moments) > 1
    axes.set_yticks(
        range(len(moments)), [f"expert {k}" if mixed else "all rows" for k in range(len(moments))]
    )
    axes.set(xlabel=f"confidence of the {'mixture' if mixed else 'model'} ({_NODES[found.kind]})")
    figure.colorbar(image, ax=axes, label="E[r φ(f) (Y − f)]")
    largest, differ = np.abs(moments).max(), int(marked.sum())
    alt = (
        f"Moments of {moments.size} {found.kind} auditors, largest {largest:.4f}; {differ} differ from zero."
    )
    return Drawn(figure, f"{alt} The bound √J is {told(found.bound)}.")


@rc_context(STYLE)
def experts(found: Aggregate) -> Drawn:
    """The ECE of the mixture and of each expert, on its routing-weighted view and where it leads."""
    figure = new_figure(COLUMN * 1.3, 1.0 + 0.28 * len(found.experts))
    axes = figure.add_subplot()
    names = ["mixture", *(f"expert {k}" for k in range(len(found.experts)))]
    series = {
        "all rows": (-0.0, "#000000", "s", [found.ece] + [None] * len(found.experts)),
        "routing-weighted view": (-0.12, "#0072b2", "o", [None, *(e.view for e in found.experts)]),
        "where it leads": (0.12, "#e69f00", "^", [None, *(e.region for e in found.experts)]),
    }
    for title, (shift, colour, marker, estimates) in series.items():
        known = [(i, e) for i, e in enumerate(estimates) if e is not None and not np.isnan(e.value)]
        if known:
            values = np.array([(i + shift, e.value, e.value - e.low, e.high - e.value) for i, e in known])
            axes.errorbar(
                values[:, 1],
                values[:, 0],
                xerr=values[:, 2:].T,
                fmt=marker,
                color=colour,
                label=title,
                lw=0.8,
            )
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="ECE", xlim=(0, None), ylim=(len(names) - 0.5, -0.5))
    axes.legend(loc="best")
    each = "; ".join(f"expert {k} {told(e.view)}" for k, e in enumerate(found.experts))
    return Drawn(figure, f"ECE of the mixture {told(found.ece)}; on routing-weighted views: {each}.")
