"""The audit's section on certificates: what no reweighting within a KL radius can exceed.

This is the paper's value-level bound. For every density a with KL(a) ≤ ε and every η > 0: E_a[L] ≤ (log
E[e^{ηL}] + ε) / η, entropic risk plus ε/η. Minimised over η this is exactly the largest E_a[L] over all
reweightings of rows, labels included, so that it also covers those of configurations. Three losses say
something about the ECE under a, Σ_b |E_a[D 1_b]|:

- the squared residual D² (the paper's): ECE_a ≤ E_a|D| ≤ √E_a[D²];
- the cross-entropy, which is never below D²: again the root. It has no bound, so neither has its population;
- the signed residual s_b D, for the worst signs s of the bins: ECE_a = max over s of E_a[s_b D], no root.

What a certificate cannot know is m(S): if every configuration came true always or never, E|m − f| would be
E|D|, and rows that are seen once cannot tell. A calibrated mixture is therefore certified for more than zero.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.presentation.figures import BLUE, COLUMN, GREY, ORANGE, VERMILION, Figure
from calmoe.auditing.presentation.glossary import subject_name
from calmoe.auditing.presentation.numbers import headings
from calmoe.auditing.sections.fragility import Fragility
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section
from calmoe.auditing.statistics.demonstration import RADII, quoted
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.statistics.worst_case import Worst, tail, upper_bounds, worst, worst_signed
from calmoe.defaults import BINS, LEVEL
from calmoe.metrics.scores import log_losses
from calmoe.render.grid import Entry, Grid, count, label, number
from calmoe.render.page import Picture, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.auditing.audit_report import AuditReport

ENOUGH = 100  # effective rows: with fewer, a sample's entropic risk rests on a handful of rows
STAND_FOR_ALL = 200_000  # rows that stand for all where the report only compares


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """sup_a E_a[L] within KL(a) ≤ ε for one loss L, radius by radius.

    Attributes:
        loss: The name of L.
        radii: ε. [R]
        risk: Of E_a[L]; value, the largest over reweightings of these rows; high, an upper bound of the
            largest over reweightings of the population, infinite where nothing bounds the loss. The upper
            bounds of all radii hold together. standard_error: of the value, by the delta method.
        ece: What this says about the ECE under a.
        eta: Where the sample's bound is least; 0 at radius 0, infinite where one value takes all the weight.
            [R]
        effective: Kish's effective rows under the worst reweighting of the sample. [R]
        vacuous: Whether the population's ECE bound is not below `Certificates.label_free`, which needs no
            label. [R]

    Example:
        >>> from calmoe.worlds import cancelling
        >>> rows = Configurations.of(cancelling(seed=0).sample(300, seed=0))
        >>> certificate = certificates(rows, radii=(0.0, 0.1)).squared
        >>> certificate.risk[0].value < certificate.risk[1].value < certificate.risk[1].high
        True
    """

    loss: str
    radii: np.ndarray  # [R]
    risk: tuple[Estimate, ...]
    ece: tuple[Estimate, ...]
    eta: np.ndarray  # [R]
    effective: np.ndarray  # [R]
    vacuous: np.ndarray  # [R]

    @property
    def handful(self) -> np.ndarray:
        """Where fewer than 100 effective rows, or an infinite loss, carry the sample's value. [R]"""
        return (self.effective < ENOUGH) | np.isinf([point.value for point in self.risk])


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """What holds for every shift within the radius, at the audit's level for each certificate alone.

    Attributes:
        signed: Of the signed residual s_b D: the sharpest about the ECE.
        squared: Of D².
        cross_entropy: Of −log f_y, where it was given.
        tail: CVaR, the largest E_a[D²] over densities a ≤ Γ = e^ε; never above `squared`, as such an a has
            KL(a) ≤ log Γ (the paper's bridge: CVaR ≤ ρ_η + log Γ / η). high: by the
            Dvoretzky-Kiefer-Wolfowitz band, all Γ together.
        label_free: The largest E_a[max(f, 1 − f)], on these rows: no labels could give a larger ECE. [R]
        calibrated: What `signed` would read on these rows if m(S) = f everywhere. [R]

    Example:
        >>> from calmoe.worlds import cancelling
        >>> certified = certificates(Configurations.of(cancelling(seed=0).sample(300, seed=0)), radii=(0.1,))
        >>> certified.tail[0].value <= certified.squared.risk[0].value
        True
    """

    signed: Certificate
    squared: Certificate
    cross_entropy: Certificate | None
    tail: tuple[Estimate, ...]
    label_free: np.ndarray  # [R]
    calibrated: np.ndarray  # [R]

    @property
    def all(self) -> tuple[Certificate, ...]:
        """The certificates that there are."""
        return tuple(c for c in (self.signed, self.squared, self.cross_entropy) if c is not None)


def certificates(
    configurations: Configurations,
    cross_entropy: np.ndarray | None = None,
    *,
    radii: tuple[float, ...] = RADII,
    bins: int = BINS,
    level: float = LEVEL,
) -> Certificates:
    """sup_a E_a[L] over all shifts a with KL(a) ≤ ε, certified on the sample and for the population.

    The worst signs of the population are not random, and so need no union over sign patterns.

    Args:
        configurations: The rows, with labels.
        cross_entropy: The mixture's −log f_y [N], which has a certificate only where given.
        radii: The sizes of shifts, KL in nats.
        bins: The number of equal-width bins.
        level: The certainty of each certificate.

    Returns:
        The certificates.

    Example:
        >>> from calmoe.worlds.binary import cancelling
        >>> world = cancelling(seed=0)
        >>> certified = certificates(Configurations.of(world.sample(4000, seed=0)), radii=(0.0, 0.1))
        >>> truth = world.fragility(np.array([0.1]))[0]
        >>> bool(truth < certified.signed.ece[1].high < certified.squared.ece[1].high)
        True
    """
    residual, index = configurations.residual, configurations.bins(bins)
    squares, confidence = residual**2, configurations.confidence
    surest = np.maximum(confidence, 1 - confidence)
    label_free = np.array([worst(surest, radius).value for radius in radii])
    both_signs = upper_bounds([residual, -residual], index, bins, (-1.0, 1.0), radii, level)
    one_bin = np.zeros(len(configurations), int)
    certificate = partial(_certificate, radii=np.array(radii), label_free=label_free)
    return Certificates(
        signed=certificate(
            "signed residual",
            [worst_signed(residual, index, bins, radius) for radius in radii],
            both_signs,
            to_ece=lambda risk: risk,
        ),
        squared=certificate(
            "squared residual",
            [worst(squares, radius) for radius in radii],
            upper_bounds([squares], one_bin, 1, (0.0, 1.0), radii, level),
            to_ece=_root,
        ),
        cross_entropy=None
        if cross_entropy is None
        else certificate(
            "cross-entropy",
            [worst(cross_entropy, radius) for radius in radii],
            np.full(len(radii), np.inf),
            to_ece=_root,
        ),
        tail=tuple(tail(squares, float(np.exp(radius)), level) for radius in radii),
        label_free=label_free,
        calibrated=_if_calibrated(confidence, index, bins, radii),
    )


def _certificate(
    loss: str,
    cases: Sequence[Worst],
    upper: np.ndarray,
    *,
    to_ece: Callable[[Estimate], Estimate],
    radii: np.ndarray,
    label_free: np.ndarray,
) -> Certificate:
    """cases: the worst case on these rows at each radius; upper: the population's bound; [R] all of them."""
    risk = tuple(
        Estimate(case.value, -np.inf, max(float(high), case.value), case.standard_error)
        for case, high in zip(cases, upper, strict=True)
    )
    ece = tuple(map(to_ece, risk))
    return Certificate(
        loss=loss,
        radii=radii,
        risk=risk,
        ece=ece,
        eta=np.array([case.eta for case in cases]),
        effective=np.array([case.effective for case in cases]),
        vacuous=np.array([point.high for point in ece]) >= label_free,
    )


def _root(risk: Estimate) -> Estimate:
    value = risk.value**0.5
    return Estimate(value, -np.inf, risk.high**0.5, risk.standard_error / (2 * max(value, 1e-12)))


def _if_calibrated(
    confidence: np.ndarray, index: np.ndarray, bins: int, radii: tuple[float, ...]
) -> np.ndarray:
    """The signed certificate on these rows if m(S) = f: each row comes true with probability f. [R]"""
    some = slice(None, None, -(-len(confidence) // STAND_FOR_ALL))
    f, binned = confidence[some], np.concatenate([index[some]] * 2)
    outcomes, chances = np.concatenate([1 - f, -f]), np.concatenate([f, 1 - f])
    mass = chances / chances.sum()
    return np.array([worst_signed(outcomes, binned, bins, radius, mass).value for radius in radii])


# --- how the report shows it --------------------------------------------------------------------------------

CAPTION = (
    "What is true lies between the demonstrated line and the certified ones, whose shades reach from these "
    "rows up to what holds for all. A certified line near the dotted one is as low as noise allows; one at "
    "the dashed line says nothing."
)


def sentences(certificates: Certificates, level: float, subject: str = "mixture") -> str:
    """What is certified at KL 0.1, by which loss, and where it says nothing."""
    signed, squared, at = certificates.signed, certificates.squared, quoted(certificates.signed.radii)
    radius, best, paper = signed.radii[at], signed.ece[at].high, squared.ece[at].high
    if signed.vacuous[at] and squared.vacuous[at]:
        text = (
            f"vacuous at KL {radius:g}: the bounds on the ECE, {best:.3f} and through the squared residual "
            f"{paper:.3f}, are not below {certificates.label_free[at]:.3f}, which would hold for any labels."
        )
    else:
        text = (
            f"whatever shifts by at most KL {radius:g}, labels included, the ECE stays below {best:.3f} "
            f"({level:.0%} sure; a calibrated {subject} with these confidences would read "
            f"{certificates.calibrated[at]:.3f} on its rows). Through the squared residual, the paper's way, "
            f"below {paper:.3f}{', which is vacuous' if squared.vacuous[at] else ''}."
        )
        beyond = signed.radii[signed.vacuous]
        if len(beyond):
            text += f" From KL {beyond.min():g} on it is vacuous."
    return text + _cross_entropy_sentence(certificates.cross_entropy, at)


def _cross_entropy_sentence(certificate: Certificate | None, at: int) -> str:
    if certificate is None:
        return ""
    value = certificate.ece[at].value
    if np.isinf(value):
        return " Some label has probability zero, so that the cross-entropy certifies nothing."
    text = f" Through the cross-entropy, {value:.3f} on these rows; nothing bounds it for the population"
    return text + (", and a handful of rows carry that number." if certificate.handful[at] else ".")


def draw_certificates(certificates: Certificates, fragility: Fragility | None, canvas: "Canvas") -> str:
    """The demonstrated curve below, the certificates above; what is true lies between."""
    signed, squared = certificates.signed, certificates.squared
    axes, radii = canvas.add_subplot(), signed.radii
    for certificate, colour, marker in ((squared, ORANGE, "s"), (signed, BLUE, "o")):
        high, value = (np.array([getattr(p, end) for p in certificate.ece]) for end in ("high", "value"))
        axes.plot(radii, high, color=colour, marker=marker, label=f"certified: {certificate.loss}")
        axes.fill_between(radii, value, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(radii, certificates.calibrated, color=BLUE, linestyle=":", label="the same if calibrated")
    if fragility is not None:
        curve = fragility.configurations
        shown = [point.value for point in curve.error]
        axes.plot(curve.radii, shown, color=VERMILION, marker="v", label="demonstrated")
    axes.plot(radii, certificates.label_free, color=GREY, linestyle="--", label="true for any labels")
    axes.set(xlabel="KL radius ε", ylabel="ECE under the worst shift", ylim=(0, None))
    canvas.legend(loc="outside lower center", ncols=2)
    at = quoted(radii)
    return (
        f"Upper bounds of the ECE by KL radius; at KL {radii[at]:g}: {signed.ece[at].high:.3f} by "
        f"the signed residual, {squared.ece[at].high:.3f} by the squared residual."
    )


def certificates_table(certificates: Certificates) -> Grid:
    """A row for each loss and radius."""
    columns = headings(
        ("loss", "loss"),
        ("KL", "kl"),
        ("risk, these rows", "risk"),
        ("population", "risk_high"),
        ("ECE, these rows", "ece"),
        ("population", "ece_high"),
        ("η", "eta"),
        ("effective rows", "effective"),
        ("says something?", "vacuous"),
    )
    return Grid(
        "Every certificate; the CVaR is for densities of at most Γ = exp(KL)",
        columns,
        (*map(_rows, certificates.all), _tail_rows(certificates)),
    )


def _rows(certificate: Certificate) -> tuple[tuple[Entry, ...], ...]:
    return tuple(
        (
            label(certificate.loss, certificate.loss),
            number(float(radius)),
            number(certificate.risk[i].value),
            _at_most(certificate.risk[i].high),
            number(certificate.ece[i].value),
            _at_most(certificate.ece[i].high),
            number(float(certificate.eta[i]), decimals=2),
            count(round(certificate.effective[i])),
            label(
                "no, vacuous" if certificate.vacuous[i] else "yes",
                "vacuous" if certificate.vacuous[i] else "",
            ),
        )
        for i, radius in enumerate(certificate.radii)
    )


def _tail_rows(certificates: Certificates) -> tuple[tuple[Entry, ...], ...]:
    return tuple(
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
        for radius, point in zip(certificates.squared.radii, certificates.tail, strict=True)
    )


def _at_most(high: float) -> Entry:
    return Entry("no bound" if np.isinf(high) else f"≤ {high:.3f}", (high,))


def _compute(material: Material, inside: Inside) -> Findings:
    predictions = material.predictions
    cross_entropy = log_losses(predictions.output.log_probs, predictions.known_labels).numpy()
    certified = certificates(material.configurations, cross_entropy, bins=material.bins, level=material.level)
    return Findings({"certificates": certified})


def _summary(report: "AuditReport") -> Point:
    text = sentences(report.certificates, report.level, subject_name(report))
    return Point("Certificates", text)


def _figures(report: "AuditReport") -> list[Figure]:
    draw = partial(draw_certificates, report.certificates, report.fragility)
    return [Figure("certificates", CAPTION, COLUMN, 3.2, draw)]


def _page(report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    return PageSection(
        heading="Certificates",
        how="The true worst case lies between the demonstrated curve and the certificates: nothing within "
        "the radius is worse than certified. Vacuous means no lower than what would hold for any labels.",
        folded=[certificates_table(report.certificates)],
        figures=pictures,
    )


SECTION = Section(
    name="certificates", cost=1, compute=_compute, summary=_summary, figures=_figures, page=_page
)
