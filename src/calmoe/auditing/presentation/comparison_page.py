"""Several models on one page: which to deploy and why, in one sentence; then side by side, and paired."""

from collections.abc import Mapping
from typing import Any

from calmoe.auditing.comparison import Model, ModelComparison, faults
from calmoe.auditing.presentation.commands import Asked, command
from calmoe.auditing.presentation.diagram import reliability_svg
from calmoe.auditing.presentation.numbers import cells, headings
from calmoe.auditing.presentation.opening import CAPTION, tone_of
from calmoe.auditing.presentation.plain_numbers import between, percent, points
from calmoe.auditing.presentation.terms import Explainer
from calmoe.auditing.presentation.words import (
    action_line,
    headline,
    reliable,
    skill_line,
)
from calmoe.auditing.statistics.estimates import NONE, Estimate
from calmoe.auditing.verdict import Verdict
from calmoe.render.grid import Grid, label, number
from calmoe.render.page import Html, Page, Section, asset, footer, templates
from calmoe.render.wording import decimal, listed

MOST_DIAGRAMS = 3  # on the first screen


def deploy(comparison: ModelComparison) -> str:
    """Which to deploy and why, in one sentence."""
    if comparison.chosen is None:
        return "Deploy none of them: none knows more than the base rates."
    chosen = _model(comparison, comparison.chosen)
    others = [model for model in comparison.models if model.name != chosen.name]
    if comparison.basis == "log loss":
        why = f"its log loss, {decimal(chosen.nll.value)}, is surely lower than that of {_names(others)}"
    elif comparison.basis == "skill":
        why = "it alone knows clearly more than the base rates"
    else:
        rivals = [model for model in others if faults(model.verdict) > faults(chosen.verdict)]
        why = "its log loss is not shown to be above the lowest"
        why += f", and it has fewer faults than {_names(rivals)}" if rivals else ", nor has it more faults"
    truth = chosen.verdict
    state = {
        "off": f"its probabilities are off {between(truth.ece)}",
        "may be true": _true_so_far(truth),
        "not decided": "too few rows tell whether its probabilities are true",
    }[truth.truth]
    better = [m for m in others if m.difference is not None and m.difference.accuracy.low > 0]
    though = (
        f", though {_names(better)} {'is' if len(better) == 1 else 'are'} right more often" if better else ""
    )
    lead = f"Deploy {chosen.name}"
    if truth.truth == "off" and not reliable(truth):
        advice = "repair it before you deploy it" if truth.mended else "do not rely on its probabilities"
        lead = f"The best of them is {chosen.name}, but {advice}"
    return f"{lead}: {why}; {state}{though}."


def comparison_lines(comparison: ModelComparison) -> list[str]:
    """The terminal's lines: the choice, then a line a model."""
    lines = [deploy(comparison)]
    for model in comparison.models:
        verdict = model.verdict
        worst = "not looked at" if verdict.worst is None else points(max(verdict.worst.value, 0.0))
        lines.append(
            f"{model.name}: {tone_of(verdict)[1].lower()}; right on {percent(verdict.accuracy.value)}, log "
            f"loss {decimal(model.nll.value)}, off {between(verdict.ece)}, under a shift {worst}."
        )
    if not comparison.paired:
        lines.append("The files hold different rows: differences between them are not paired.")
    return lines


def comparison_page(comparison: ModelComparison, pages: dict[str, str], facts: dict[str, str]) -> Page:
    """pages: where each model's own page is."""
    explain = Explainer()
    opening = _first_screen(comparison, explain, facts)
    against = comparison.chosen or "the one with the lowest log loss"
    sections = [
        Section(
            heading="Side by side",
            how=explain("One model a row; intervals are of each model alone."),
            tables=[side_by_side(comparison)],
        )
    ]
    if comparison.paired:
        sections.append(
            Section(
                heading="Differences on the same rows",
                how=explain(
                    f"Each model less {against}, row by row. An interval that leaves out 0 is a difference "
                    "that is not by chance; for log loss and ECE below 0 is better."
                ),
                tables=[differences(comparison)],
            )
        )
    sections.append(
        Section(
            heading="Each model",
            how="What its own audit says.",
            tables=[verdicts(comparison)],
            links={f"the page of {name}": link for name, link in pages.items()},
            notes=[] if comparison.paired else ["The files hold different rows: nothing is paired."],
        )
    )
    return Page(
        title=f"Audit of {listed([model.name for model in comparison.models])}",
        subtitle=f"{len(comparison.models)} models",
        opening=opening,
        sections=sections,
        facts=facts,
        footer=footer(),
        style=asset(__package__, "audit.css"),
        script=asset(__package__, "audit.js"),
    )


def side_by_side(comparison: ModelComparison) -> Grid:
    """Accuracy, log loss, ECE, what is hidden, the worst under a shift, and skill."""
    rows = tuple(
        (
            label(model.name, model.name),
            label(tone_of(model.verdict)[1], model.verdict.truth),
            *cells(model.verdict.accuracy),
            *cells(model.nll),
            *cells(model.verdict.ece),
            label(model.verdict.hidden, model.verdict.hidden),
            label(model.verdict.fragility, model.verdict.fragility),
            number((model.verdict.worst or NONE).value),
            number(_finite(model.verdict.log_skill).value),
        )
        for model in comparison.models
    )
    columns = headings(
        ("model", "model"),
        ("verdict", "verdict"),
        ("accuracy", "accuracy*"),
        ("log loss", "nll*"),
        ("ECE", "ece*"),
        ("hidden?", "hidden"),
        ("fragile?", "fragility"),
        ("error under a shift", "worst"),
        ("skill", "log_skill"),
    )
    caption = (
        "Skill is the share of the base rates' log loss that the model takes away: 1 is perfect, 0 is none"
    )
    return Grid(caption, columns, (rows,))


def differences(comparison: ModelComparison) -> Grid:
    """Each model less the chosen one."""
    rows = tuple(
        (
            label(model.name, model.name),
            *cells(model.difference.accuracy, sign=True),
            *cells(model.difference.nll, sign=True),
            *cells(model.difference.ece, sign=True),
        )
        for model in comparison.models
        if model.difference is not None
    )
    columns = headings(("model", "model"), ("accuracy", "accuracy*"), ("log loss", "nll*"), ("ECE", "ece*"))
    return Grid(
        "Accuracy and log loss are paired row by row. An ECE cannot be: its interval is wide",
        columns,
        (rows,),
    )


def verdicts(comparison: ModelComparison) -> Grid:
    """One sentence a model."""
    rows = tuple(
        (label(model.name, model.name), label(headline(model.verdict), model.verdict.truth))
        for model in comparison.models
    )
    return Grid("The verdicts", headings(("model", "model"), ("verdict", "verdict")), (rows,))


def _true_so_far(verdict: Verdict) -> str:
    if verdict.hidden == "hidden":
        return "its probabilities may well be true on average, but errors cancel"
    if verdict.groups_off:
        return "its probabilities may well be true on average, but not for every group"
    if verdict.fragility == "fragile":
        return "its probabilities may well be true, but a shift breaks them"
    return "its probabilities may well be true"


def _first_screen(comparison: ModelComparison, explain: Explainer, facts: Mapping[str, str]) -> Html:
    """Which to deploy, each model's reliability diagram, and what to do with the one to deploy."""
    shown = sorted(comparison.models, key=lambda model: model.name != comparison.chosen)[:MOST_DIAGRAMS]
    parts: dict[str, Any] = {
        "tone": "bad",
        "headline": explain(deploy(comparison)),
        "diagrams": [(m.name, reliability_svg(m.report.surface.diagram, m.report.of)) for m in shown],
        "caption": explain(CAPTION),
    }
    if comparison.chosen is not None:
        verdict = _model(comparison, comparison.chosen).verdict
        asked = Asked.on_page(facts, facts.get(comparison.chosen))
        parts |= {
            "tone": tone_of(verdict)[0],
            "skill": explain(skill_line(verdict)),
            "action": explain(action_line(verdict)),
            "words": command(verdict, asked).split(" "),
        }
    return Html(templates(__package__).get_template("comparison_opening.html").render(**parts))


def _finite(estimate: Estimate) -> Estimate:
    return estimate if abs(estimate.value) < float("inf") else NONE


def _model(comparison: ModelComparison, name: str) -> Model:
    return next(model for model in comparison.models if model.name == name)


def _names(models: list[Model]) -> str:
    return listed([model.name for model in models])
