"""The page's first screen: the verdict in one sentence, one diagram, the skill, and the one thing to do."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from calmoe.auditing.presentation.commands import Asked, command, next_step, with_options
from calmoe.auditing.presentation.diagram import reliability_svg
from calmoe.auditing.presentation.plain_numbers import percent
from calmoe.auditing.presentation.terms import Explainer
from calmoe.auditing.presentation.words import (
    action_line,
    groups_line,
    headline,
    hidden_line,
    how_far,
    skill_line,
    target_line,
    threat_line,
)
from calmoe.auditing.sections.explorer import USUAL
from calmoe.auditing.verdict import Verdict, groups_off
from calmoe.render.page import Html, templates

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

CAPTION = (
    "A dot is a group of rows that it calls equally sure, larger for more rows, with its interval. On the "
    "dashed line the probabilities are true."
)
NO_GROUPS = "the file names no groups: add a column of groups to see more."
HIDES = {"hidden": "Yes: ", "nothing found": "No: "}


def opening(report: "AuditReport", origin: Mapping[str, str], explain: Explainer) -> Html:
    """origin: the file's name, the options that say how to read it, and its cases, for the commands."""
    verdict = report.verdict
    asked = Asked.on_page(origin, origin.get("file"))
    following = next_step(verdict)
    tone, chip = tone_of(verdict)
    groups, kind = groups_line(verdict), _kind_of_rows(report)
    hidden = HIDES.get(verdict.hidden, "") + (hidden_line(verdict) or "")
    questions = {
        "For whom not?": groups or " ".join(filter(None, (_sentence(kind), _sentence(NO_GROUPS)))),
        "Does the average hide something?": hidden + (f" Such as: {kind}" if groups and kind else ""),
        "What could break it?": threat_line(verdict) + _instance(report),
        "And on the target?": target_line(verdict),
    }
    answers = [(question, explain(_sentence(line))) for question, line in questions.items() if line]
    return Html(
        templates(__package__)
        .get_template("opening.html")
        .render(
            tone=tone,
            chip=chip,
            headline=explain(headline(verdict)),
            skill=explain(_sentence(skill_line(verdict))),
            diagram=reliability_svg(report.surface.diagram, report.of),
            caption=explain(CAPTION),
            answers=answers,
            action=explain(action_line(verdict)),
            words=command(verdict, asked).split(" "),
            following=None
            if following is None
            else (following[0], explain(following[1]), with_options(following[2], asked.options).split(" ")),
        )
    )


def tone_of(verdict: Verdict) -> tuple[str, str]:
    """good, warn or bad, and the same in two or three words: colour alone says nothing."""
    if verdict.out_of_order:
        return "bad", "Check the file"
    if verdict.repeats is not None:
        return "warn", "Rows repeat"
    if verdict.worth == "reversed":
        return "bad", "Order reversed"
    if verdict.worth in ("little", "none"):
        return "bad", "Next to useless"
    if verdict.truth == "not decided":
        return "warn", "Not decided"
    if verdict.truth == "off" and not verdict.small:
        return "bad", "Not true"
    if verdict.truth == "off":
        return "warn", "Slightly off" if verdict.slight else "Off"
    if verdict.hidden == "hidden" or verdict.groups_off or verdict.fragility == "fragile":
        return "warn", "True on average only"
    return "good", "May well be true"


def _kind_of_rows(report: "AuditReport") -> str:
    """The predicted class whose rows are furthest off, where something surely hides."""
    off = groups_off(report.groups.by_prediction, "top") if report.verdict.hidden == "hidden" else ()
    if not off:
        return ""
    share = percent(off[0].rows / sum(group.rows for group in report.groups.by_prediction), 0)
    return f"{off[0].name} ({share}) are furthest off: {how_far(off[0])}."


def _instance(report: "AuditReport") -> str:
    """The worst mix that the page's explorer shows, where a shift surely breaks the probabilities."""
    explorer = report.explorer
    if report.verdict.fragility != "fragile" or not explorer.factors:
        return ""
    mix = explorer.cells.mix(explorer.worst[USUAL], explorer.budgets[USUAL])
    return f" Such as: {explorer.describe(mix).split(', ')[0]}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
