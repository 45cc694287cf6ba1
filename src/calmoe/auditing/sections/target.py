"""The audit's section on a target: what the source says about it, and a test of the assumption behind."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from calmoe.auditing.presentation.figures import BLACK, BLUE, COLUMN, VERMILION, Figure
from calmoe.auditing.presentation.glossary import rate_name
from calmoe.auditing.presentation.numbers import cells, headings, in_words
from calmoe.auditing.sections.section import Findings, Inside, Material, PageSection, Section, if_found
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.statistics.sequential import FEWEST_TO_LEARN
from calmoe.auditing.target.assumption import Plausibility
from calmoe.auditing.target.checks import check_targets
from calmoe.auditing.target.predict import Target, predict_checked
from calmoe.auditing.target.scores import Scores
from calmoe.render.grid import Grid, label
from calmoe.render.page import Picture, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from calmoe.auditing.audit_report import AuditReport

LOOKS = {
    "source": ("source, by its labels", BLUE, "s"),
    "predicted": ("target, predicted", VERMILION, "o"),
    "actual": ("target, by its labels", BLACK, "^"),
}
SHOWN = 0.01  # the least share of rows in a bin that the figure shows
CAPTION = (
    "A mark says how often rows of a confidence are right, by labels or predicted; bars are "
    "intervals, and marks below the dotted line are overconfident. Where the prediction and "
    "the target's own labels part, the assumption fails."
)


def sentences(target: Target, rate: str) -> str:
    """What the source predicts, or why nothing; rate: what E[Y] is called."""
    ratio, scores, test = target.ratio, target.predicted, target.plausibility
    text = f"a classifier tells its {target.rows:,} rows from the source's with AUC {in_words(ratio.auc)}"
    if target.verdict is not None:
        text = f"nothing can be predicted: {target.verdict}; {text}."
    else:
        text += f"; weighted towards it, the source's labels count for {ratio.effective:,.0f} effective rows."
    if test is not None and test.p_value < 0.05:
        text = f"its own labels reject the assumption, so that the predictions here are void. Besides, {text}"
    elif scores is not None and test is None:
        text += (
            " The assumption that follows cannot be checked without labels, and on a new domain it often "
            "fails: label a few hundred rows and give them as the labelled target."
        )
    if scores is not None:
        source = f"{in_words(target.source.accuracy)}, {in_words(target.source.ece)}"
        text += (
            f" If E[Y | S] is the same there, {rate} will be {in_words(scores.accuracy)} and ECE "
            f"{in_words(scores.ece)} (source: {source})."
        )
    if target.shifted is not None and target.plain is not None:
        text += (
            f" A temperature refitted for it, {_temperature(target.shifted.temperature)}, will leave an ECE "
            f"of {in_words(target.shifted.ece)}; the source's own, {_temperature(target.plain.temperature)}, "
            f"of {in_words(target.plain.ece)}."
        )
    if target.actual is not None:
        text += (
            f" By its labels its {rate} is {in_words(target.actual.accuracy)} and its ECE "
            f"{in_words(target.actual.ece)}."
        )
    return text if test is None else text + _test_sentence(test, rate)


def _temperature(temperature: Estimate) -> str:
    if np.isnan(temperature.low):
        return f"T = {temperature.value:.2f} (no optimum)"
    return f"T = {temperature.value:.2f} [{temperature.low:.2f}, {temperature.high:.2f}]"


def _test_sentence(test: Plausibility, rate: str) -> str:
    outcome = "is rejected" if test.p_value < 0.05 else "is not rejected"
    return (
        f" The assumption {outcome} by {test.rows:,} labelled target rows (p = {test.p_value:.2g}): actual "
        f"less predicted {rate} is {in_words(test.discrepancy)}; less than {test.detectable:.3f} would "
        "usually stay unseen."
    )


def _populations(target: Target) -> dict[str, Scores]:
    """The populations with scores, by name."""
    scores = {"source": target.source, "predicted": target.predicted, "actual": target.actual}
    return {name: known for name, known in scores.items() if known is not None}


def draw_diagrams(target: Target, canvas: "Canvas") -> str:
    """How often rows of a confidence are right: on the source, predicted for the target, and actually."""
    from calmoe.render.plots import draw_bins, draw_diagonal  # with matplotlib

    axes, populations = canvas.add_subplot(), _populations(target)
    draw_diagonal(axes, lw=0.6)
    for name, scores in populations.items():
        title, colour, marker = LOOKS[name]
        shown = scores.share >= SHOWN
        x, y = scores.confidence[shown], scores.right[shown]
        interval = np.stack([scores.right_low[shown], scores.right_high[shown]], axis=1)
        draw_bins(axes, x, y, interval, color=colour, marker=marker, label=title, lw=0.8)
    least = min(float(scores.confidence[scores.share >= SHOWN].min()) for scores in populations.values())
    axes.set(xlabel="confidence", ylabel="how often right", xlim=(max(least - 0.05, 0), 1.01), ylim=(0, 1.01))
    axes.legend(loc="lower right")
    eces = "; ".join(f"{LOOKS[name][0]}: ECE {in_words(scores.ece)}" for name, scores in populations.items())
    return f"Reliability diagrams. {eces}."


def _scores_table(target: Target, rate: str) -> Grid:
    rows = tuple(
        (
            label(LOOKS[name][0], name),
            *cells(scores.accuracy),
            *cells(scores.ece),
            *cells(scores.nll),
            *cells(scores.brier),
        )
        for name, scores in _populations(target).items()
    )
    columns = headings(
        ("measure", "what"), (rate, "accuracy*"), ("ECE", "ece*"), ("NLL", "nll*"), ("Brier score", "brier*")
    )
    return Grid("The source, and what it says about the target", columns, (rows,))


def _temperatures_table(target: Target) -> Grid:
    fits = {"of the source": target.plain, "refitted for the target": target.shifted}
    rows = tuple(
        (label(title, title), *cells(fit.temperature), *cells(fit.ece))
        for title, fit in fits.items()
        if fit is not None
    )
    columns = headings(("temperature", "what"), ("T", "temperature*"), ("ECE", "ece*"))
    return Grid("Temperatures, and the ECE predicted to remain on the target", columns, (rows,))


def _test_table(test: Plausibility) -> Grid:
    directions = {
        "all rows alike": test.discrepancy,
        "along the confidence": test.along_confidence,
        "along the learned m − f": test.along_gap,
    }
    rows = tuple((label(title, title), *cells(gap, sign=True)) for title, gap in directions.items())
    caption = (
        f"Is E[Y | S] the same? p = {test.p_value:.2g} on {test.rows:,} labelled target rows; "
        f"a discrepancy below {test.detectable:.3f} would usually stay unseen"
    )
    columns = headings(("actual less predicted", "what"), ("discrepancy", "discrepancy*"))
    return Grid(caption, columns, (rows,))


def _asked(material: Material) -> bool:
    return material.target is not None


def _check(material: Material) -> None:
    check_targets(material.predictions, material.target, material.labelled_target)


def _compute(material: Material, inside: Inside) -> Findings:
    rows, target = len(material.predictions), material.target
    assert target is not None
    if rows < FEWEST_TO_LEARN:
        reason = f"there are {rows} labelled rows; predicting needs at least {FEWEST_TO_LEARN}"
        return Findings({"target": None}, {"target": reason})
    files = (material.predictions, target, material.labelled_target)
    predicted = predict_checked(*files, **material.options)
    return Findings({"target": predicted})


def _summary(target: Target, report: "AuditReport") -> Point:
    return Point("Target", sentences(target, rate_name(report.judged)))


def _figures(target: Target, report: "AuditReport") -> list[Figure]:
    return [Figure("target", CAPTION, COLUMN, 2.8, partial(draw_diagrams, target))]


def _page(target: Target, report: "AuditReport", pictures: Sequence[Picture]) -> PageSection:
    ratio = target.ratio
    notes = [
        f"{ratio.effective:,.0f} effective source rows; AUC {in_words(ratio.auc)}; the ratio was clipped at "
        f"{ratio.clip:.0f} (the root of the number of source rows): {ratio.clipped:.1%} of source rows; "
        f"{ratio.beyond:.1%} of target rows lie beyond it; its mean over the source is {ratio.covered:.3f}."
    ]
    if target.verdict is not None:
        notes.insert(0, f"Nothing can be predicted: {target.verdict}.")
    tables = [_scores_table(target, rate_name(report.judged))]
    if target.shifted is not None:
        tables.append(_temperatures_table(target))
    if target.plausibility is not None:
        tables.append(_test_table(target.plausibility))
    return PageSection(
        heading="The target without its labels",
        how="What source labels say about the target if rows with the same probabilities (of the mixture, of "
        "router and experts) are right equally often in both. The source's rows are weighted by how much "
        "commoner such rows are in the target. Where labels of the target exist, they are shown beside it, "
        "and a small p-value says that the assumption fails.",
        tables=tables,
        figures=pictures,
        notes=notes,
    )


SECTION = Section(
    name="target",
    cost=5,
    compute=_compute,
    asked=_asked,
    check=_check,
    summary=if_found("target", _summary, None),
    figures=if_found("target", _figures, []),
    page=if_found("target", _page, None),
    folded=False,
)
