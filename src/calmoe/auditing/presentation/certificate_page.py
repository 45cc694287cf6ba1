"""The certificates in words, in a table, in a figure and as a part of the page."""

from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context

from calmoe.auditing.presentation.cells import headings
from calmoe.auditing.sections.certificates import Certificates
from calmoe.auditing.sections.fragility import Fragility
from calmoe.render.drawing import COLUMN, GREY, STYLE, Drawn, new_figure
from calmoe.render.grid import Entry, Grid, count, label, number
from calmoe.render.page import Picture, Section

CAPTION = (
    "What is true lies between the demonstrated line and the certified ones, whose shades reach from these "
    "rows up to what holds for all. A certified line near the dotted one is as low as noise allows; one at "
    "the dashed line says nothing."
)
QUOTED = 0.1  # the radius that the summary speaks of


def quoted(radii: np.ndarray) -> int:
    """Where the first radius of at least 0.1 is, or the last."""
    return min(int(np.searchsorted(radii, QUOTED)), len(radii) - 1)


def words(found: Certificates, level: float, who: str = "mixture") -> str:
    """What is certified at KL 0.1, by which loss, and where it says nothing."""
    at = quoted(found.signed.radii)
    radius, best, paper = found.signed.radii[at], found.signed.ece[at].high, found.squared.ece[at].high
    if found.signed.vacuous[at] and found.squared.vacuous[at]:
        text = (
            f"vacuous at KL {radius:g}: the bounds on the ECE, {best:.3f} and through the squared residual "
            f"{paper:.3f}, are not below {found.label_free[at]:.3f}, which would hold for any labels."
        )
    else:
        text = (
            f"whatever shifts by at most KL {radius:g}, labels included, the ECE stays below {best:.3f} "
            f"({level:.0%} sure; a calibrated {who} with these confidences would read "
            f"{found.calibrated[at]:.3f} on its rows). Through the squared residual, the paper's way, below "
            f"{paper:.3f}{', which is vacuous' if found.squared.vacuous[at] else ''}."
        )
        beyond = found.signed.radii[found.signed.vacuous]
        if len(beyond):
            text += f" From KL {beyond.min():g} on it is vacuous."
    if found.cross_entropy is None:
        return text
    value = found.cross_entropy.ece[at].value
    if np.isinf(value):
        return text + " Some label has probability zero, so that the cross-entropy certifies nothing."
    text += f" Through the cross-entropy, {value:.3f} on these rows; nothing bounds it for the population"
    return text + (", and a handful of rows carry that number." if found.cross_entropy.handful[at] else ".")


def table(found: Certificates) -> Grid:
    """A row a radius and loss."""
    sections = tuple(
        tuple(
            (
                label(part.loss, part.loss),
                number(float(radius)),
                number(part.risk[i].value),
                _at_most(part.risk[i].high),
                number(part.ece[i].value),
                _at_most(part.ece[i].high),
                number(float(part.eta[i]), decimals=2),
                count(round(part.effective[i])),
                label(
                    "vacuous" if part.vacuous[i] else "", "vacuous" if part.vacuous[i] else "says something"
                ),
            )
            for i, radius in enumerate(part.radii)
        )
        for part in found.all
    )
    tail = tuple(
        (
            label("squared residual, CVaR", "cvar"),
            number(float(radius)),
            number(point.value),
            _at_most(point.high),
            number(point.value**0.5),
            _at_most(point.high**0.5),
            Entry(f"Γ = {np.exp(radius):.2f}", (float(np.exp(radius)),)),
            Entry("–", (float("nan"),)),
            label("", ""),
        )
        for radius, point in zip(found.squared.radii, found.tail, strict=True)
    )
    names = (
        ("loss", "loss"),
        ("KL", "kl"),
        ("risk, these rows", "risk"),
        ("population", "risk_high"),
        ("ECE, these rows", "ece"),
        ("population", "ece_high"),
        ("η", "eta"),
        ("effective rows", "effective"),
        ("", "vacuous"),
    )
    return Grid(
        "Every certificate; the CVaR is for densities of at most Γ = exp(KL)",
        headings(*names),
        (*sections, tail),
    )


def _at_most(high: float) -> Entry:
    return Entry("no bound" if np.isinf(high) else f"≤ {high:.3f}", (high,))


@rc_context(STYLE)
def figure(found: Certificates, fragility: Fragility | None) -> Drawn:
    """The demonstrated curve below, the certificates above; what is true lies between."""
    drawn = new_figure(COLUMN * 1.3, 3.2)
    axes, radii = drawn.add_subplot(), found.signed.radii
    for part, colour, marker in ((found.squared, "#e69f00", "s"), (found.signed, "#0072b2", "o")):
        high, value = (np.array([getattr(p, end) for p in part.ece]) for end in ("high", "value"))
        axes.plot(radii, high, color=colour, marker=marker, label=f"certified: {part.loss}")
        axes.fill_between(radii, value, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(radii, found.calibrated, color="#0072b2", linestyle=":", label="the same if calibrated")
    if fragility is not None:
        curve = fragility.configurations
        shown = [point.value for point in curve.error]
        axes.plot(curve.radii, shown, color="#d55e00", marker="v", label="demonstrated")
    axes.plot(radii, found.label_free, color=GREY, linestyle="--", label="true for any labels")
    axes.set(xlabel="KL radius ε", ylabel="ECE under the worst shift", ylim=(0, None))
    drawn.legend(loc="outside lower center", ncols=2)
    at = quoted(radii)
    alt = (
        f"Upper bounds of the ECE by KL radius; at KL {radii[at]:g}: {found.signed.ece[at].high:.3f} by "
        f"the signed residual, {found.squared.ece[at].high:.3f} by the squared residual."
    )
    return Drawn(drawn, alt)


def section(found: Certificates, pictures: Sequence[Picture]) -> Section:
    return Section(
        heading="Certificates",
        how="The true worst case lies between the demonstrated curve and the certificates: nothing within "
        "the radius is worse than certified. Vacuous means no lower than what would hold for any labels.",
        folded=[table(found)],
        figures=pictures,
    )
