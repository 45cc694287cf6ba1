"""The shift explorer as markup: sliders, a diagram that follows them, and the cells that the script sums."""

import json
from typing import TYPE_CHECKING, Any

from calmoe.auditing.presentation.diagram import LARGEST, LEFT, SIDE, SMALLEST, TOP, frame
from calmoe.auditing.presentation.glossary import rate_name
from calmoe.auditing.presentation.plain_numbers import grown
from calmoe.auditing.presentation.terms import Explainer
from calmoe.auditing.presentation.words import threat_line
from calmoe.auditing.sections.explorer import LIMIT, STEP, USUAL, Explorer
from calmoe.escaping import visible
from calmoe.render.page import Html, templates
from calmoe.render.wording import listed

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

HOW = (
    "See for yourself: data elsewhere hold the same kinds of rows in other shares. Move a slider, or show "
    "the worst case. The numbers here are of the audited rows themselves, and so a little higher than those "
    "judged on rows kept apart."
)


def explorer_markup(report: "AuditReport", explain: Explainer) -> Html:
    """All of it; the numbers are those of `Cells.mix`."""
    explorer, verdict = report.explorer, report.verdict
    empty = "".join(
        f'<circle class="{name}" r="0"/>' for name in ("ghost", "mark") for _ in range(explorer.cells.bins)
    )
    ids = [f"tilt-{i}-{j}" for i, factor in enumerate(explorer.factors) for j, _ in enumerate(factor.levels)]
    threat = threat_line(verdict)
    return Html(
        templates(__package__)
        .get_template("explorer.html")
        .render(
            threat=explain(threat[:1].upper() + threat[1:]),
            error=explain("error (ECE)"),
            rate=rate_name(report.judged),
            chance=explain("A perfectly calibrated model would show an error of about"),
            inputs=" ".join(["budget", *ids]),
            diagram=frame(empty, report.of, "Reliability diagram of the mix that the sliders make"),
            budgets=explorer.budgets,
            usual=USUAL,
            factors=explorer.factors,
            limit=f"{LIMIT:g}",
            step=f"{STEP:g}",
            left_out=listed(explorer.left_out) if explorer.left_out else "",
            cells=script_json(cells(explorer)),
        )
    )


def cells(explorer: Explorer) -> dict[str, Any]:
    """What the script needs; sums to nine decimals, which no shown number notices."""
    return {
        "bins": explorer.cells.bins,
        "factors": [
            {"levels": [*map(visible, f.levels)], "phrases": [*map(visible, f.phrases)]}
            for f in explorer.factors
        ],
        "budgets": [
            {"kl": kl, "said": f"A group of 20 % of rows may become {100 * grown(kl):.0f} %."}
            for kl in explorer.budgets
        ],
        "worst": explorer.worst,
        "plot": {"left": LEFT, "top": TOP, "side": SIDE, "smallest": SMALLEST, "largest": LARGEST},
        "cells": {
            "bin": explorer.cells.bin.tolist(),
            "level": explorer.cells.level.T.tolist(),
            "count": explorer.cells.count.astype(int).tolist(),
            "confidence": [round(value, 9) for value in explorer.cells.confidence.tolist()],
            "outcome": explorer.cells.outcome.astype(int).tolist(),
            "noise": [round(value, 9) for value in explorer.cells.noise.tolist()],
        },
    }


def script_json(value: Any) -> Html:
    """JSON inside a script element: no character of it can end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(text)
