"""The target in words, in a figure and on the page."""

import numpy as np
from matplotlib import rc_context

from calmoe.auditing.presentation.cells import headings, pair
from calmoe.auditing.presentation.summary import told
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.target.predict import Scores, Target
from calmoe.render.drawing import COLUMN, GREY, STYLE, Drawn, new_figure
from calmoe.render.grid import Grid, label
from calmoe.render.page import Picture, Section

_LOOKS = {  # Okabe and Ito's colours
    "source": ("source, by its labels", "#0072b2", "s"),
    "predicted": ("target, predicted", "#d55e00", "o"),
    "actual": ("target, by its labels", "#000000", "^"),
}
SHOWN = 0.01  # the least share of rows that a bin is drawn from
HOW = (
    "What source labels say about the target if a configuration is right equally often in both; the source's "
    "rows are weighted by how much commoner their configurations are in the target. Where labels of the "
    "target exist they are shown beside it, and a small p-value says that the assumption fails."
)


def words(found: Target, rate: str) -> str:
    """What is predicted, or why nothing is, in a paragraph; rate: what E[Y] is."""
    ratio, scores = found.ratio, found.predicted
    test, apart = found.plausibility, f"a classifier tells its {found.rows:,} rows from the source's"
    text = f"{apart} with AUC {told(ratio.auc)}"
    if found.verdict is not None:
        text = f"nothing can be predicted: {found.verdict}; {text}."
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
        text += (
            f" If E[Y | S] is the same there, {rate} will be {told(scores.accuracy)} and ECE "
            f"{told(scores.ece)} (source: {told(found.source.accuracy)}, {told(found.source.ece)})."
        )
    if found.shifted is not None and found.plain is not None:
        text += (
            f" A temperature refitted for it, {_temperature(found.shifted.temperature)}, will leave an ECE "
            f"of {told(found.shifted.ece)}; the source's own, {_temperature(found.plain.temperature)}, of "
            f"{told(found.plain.ece)}."
        )
    if found.actual is not None:
        text += (
            f" By its labels its {rate} is {told(found.actual.accuracy)} and its ECE "
            f"{told(found.actual.ece)}."
        )
    if test is not None:
        says = "is rejected" if test.p_value < 0.05 else "is not rejected"
        text += (
            f" The assumption {says} by {test.rows:,} labelled target rows (p = {test.p_value:.2g}): actual "
            f"less predicted {rate} is {told(test.discrepancy)}; less than {test.detectable:.3f} would "
            "usually stay unseen."
        )
    return text


def _temperature(found: Estimate) -> str:
    known = not np.isnan(found.low)
    return f"T = {found.value:.2f}" + (f" [{found.low:.2f}, {found.high:.2f}]" if known else " (no optimum)")


def shown(found: Target) -> dict[str, Scores]:
    """The populations that there are scores of."""
    every = {"source": found.source, "predicted": found.predicted, "actual": found.actual}
    return {name: scores for name, scores in every.items() if scores is not None}


@rc_context(STYLE)
def reliability(found: Target) -> Drawn:
    """How often rows of a confidence are right: on the source, predicted for the target, and actually."""
    figure = new_figure(COLUMN * 1.3, 2.8)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.6, linestyle=":")
    for name, scores in shown(found).items():
        title, colour, marker = _LOOKS[name]
        told_of = scores.share >= SHOWN
        x, y = scores.confidence[told_of], scores.right[told_of]
        low, high = (end[told_of] for end in (scores.right_low, scores.right_high))
        axes.errorbar(
            x, y, yerr=np.stack([y - low, high - y]), color=colour, marker=marker, label=title, linewidth=0.8
        )
    least = min(float(scores.confidence[scores.share >= SHOWN].min()) for scores in shown(found).values())
    axes.set(xlabel="confidence", ylabel="how often right", xlim=(max(least - 0.05, 0), 1.01), ylim=(0, 1.01))
    axes.legend(loc="lower right")
    each = "; ".join(f"{_LOOKS[name][0]}: ECE {told(scores.ece)}" for name, scores in shown(found).items())
    return Drawn(figure, f"Reliability diagrams. {each}.")


def section(found: Target, figures: list[Picture], rate: str) -> Section:
    """Its part of the page."""
    ratio = found.ratio
    notes = [
        f"{ratio.effective:,.0f} effective source rows; AUC {told(ratio.auc)}; the ratio was clipped at "
        f"{ratio.clip:.0f} (the root of the number of source rows): {ratio.clipped:.1%} of source rows; "
        f"{ratio.beyond:.1%} of target rows lie beyond it; its mean over the source is {ratio.covered:.3f}."
    ]
    if found.verdict is not None:
        notes.insert(0, f"Nothing can be predicted: {found.verdict}.")
    tables = [_scores(found, rate)] + ([_temperatures(found)] if found.shifted is not None else [])
    if found.plausibility is not None:
        tables.append(_test(found))
    return Section(
        heading="The target without its labels", how=HOW, tables=tables, figures=figures, notes=notes
    )


def _scores(found: Target, rate: str) -> Grid:
    rows = tuple(
        (
            label(_LOOKS[name][0], name),
            *pair(scores.accuracy),
            *pair(scores.ece),
            *pair(scores.nll),
            *pair(scores.brier),
        )
        for name, scores in shown(found).items()
    )
    return Grid(
        "The source, and what it says about the target",
        headings(
            ("", "what"), (rate, "accuracy*"), ("ECE", "ece*"), ("NLL", "nll*"), ("Brier score", "brier*")
        ),
        (rows,),
    )


def _temperatures(found: Target) -> Grid:
    assert found.plain is not None
    assert found.shifted is not None
    rows = tuple(
        (label(title, title), *pair(each.temperature), *pair(each.ece))
        for title, each in (("of the source", found.plain), ("refitted for the target", found.shifted))
    )
    return Grid(
        "Temperatures, and the ECE predicted to remain on the target",
        headings(("temperature", "what"), ("T", "temperature*"), ("ECE", "ece*")),
        (rows,),
    )


def _test(found: Target) -> Grid:
    test = found.plausibility
    assert test is not None
    rows = tuple(
        (label(title, title), *pair(each, sign=True))
        for title, each in (
            ("all rows alike", test.discrepancy),
            ("along the confidence", test.along_confidence),
            ("along the learned m − f", test.along_gap),
        )
    )
    caption = (
        f"Is E[Y | S] the same? p = {test.p_value:.2g} on {test.rows:,} labelled target rows; "
        f"a discrepancy below {test.detectable:.3f} would usually stay unseen"
    )
    return Grid(
        caption, headings(("actual less predicted", "what"), ("discrepancy", "discrepancy*")), (rows,)
    )
