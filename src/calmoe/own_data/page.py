"""The page of a model: what it was given, how well it does beside baselines, and what to do next."""

from matplotlib import rc_context

from calmoe.metrics import reliability
from calmoe.models.card import Card
from calmoe.own_data.parts import HELD_OUT
from calmoe.own_data.scores import ECE_NOTE, Row, Tables
from calmoe.render.drawing import FULL, STYLE, Drawn, new_figure, rendered
from calmoe.render.page import Code, Page, Picture, Point, Section, footer
from calmoe.render.plots import plot_reliability
from calmoe.render.wording import decimal, many


def make_page(ours: Row, tables: Tables, card: Card, notes: list[str], command: str) -> str:
    """The whole page as HTML."""
    sections = [
        Section(
            heading="Scores",
            how="Lower is better for log loss, ECE and Brier score. The lowest log loss is bold. Baselines "
            "cost nothing: where the model is no better than they are, use them.",
            tables=tables.parts,
            notes=[f"{ECE_NOTE}."],
            figures=[_reliability(ours)],
        )
    ]
    if tables.groups or tables.few:
        groups = [tables.groups] if tables.groups else []
        sections.append(Section(heading="Groups", tables=groups, notes=tables.few))
    page = Page(
        title=f"A model for {card.label or card.dataset}",
        subtitle=f"{card.method}, trained on {many(card.rows, 'row')} of {card.dataset}",
        summary=[
            Point("Result", f"{card.worth[:1].upper()}{card.worth[1:]}. {_result(ours, card)}"),
            Point("Data", bullets=notes),
            Point(
                "Next",
                "calmoe audit with the name of this folder says whether its probabilities are true, on the "
                "rows that were held out; calmoe predict writes predictions for new rows.",
            ),
        ],
        sections=sections,
        facts={
            "command": Code(command),
            "seed": str(card.seed),
            "data (SHA-256)": card.digest,
            "calmoe": card.calmoe + (f", commit {card.commit}" if card.commit else ""),
            **{name: str(value) for name, value in card.settings.items()},
        },
        footer=footer(),
    )
    return page.html()


def _result(ours: Row, card: Card) -> str:
    """Our scores beside those of the baseline with the lowest log loss, on each part."""
    sentences = []
    for part in ours.parts:
        best = min(card.baselines, key=lambda name: card.baselines[name][part]["log_loss"])
        where = "On rows held out" if part == HELD_OUT else "On the shift"
        own, other = _figures(card.scores[part]), _figures(card.baselines[best][part])
        sentences.append(f"{where}: {own}; {best.lower()} has {other}.")
    return " ".join(sentences)


def _figures(values: dict[str, float]) -> str:
    loss, right, ece, most = (decimal(values[key]) for key in ("log_loss", "accuracy", "ece", "ece_high"))
    return f"log loss {loss}, accuracy {right}, ECE at most {most} (estimate {ece})"


@rc_context(STYLE)
def _reliability(ours: Row) -> Picture:
    """Accuracy against confidence, a panel a part."""
    figure = new_figure(FULL, 2.6)
    panels = figure.subplots(1, len(ours.parts), squeeze=False)[0]
    for axes, (part, predictions) in zip(panels, ours.parts.items(), strict=True):
        plot_reliability(reliability(predictions.output.probs, predictions.known_labels), axes)
        axes.set_title(part)
    alt = "Accuracy against confidence, bin by bin."
    return Picture(
        name="reliability",
        png=rendered(Drawn(figure, alt), "png"),
        alt=alt,
        caption="Accuracy against confidence. A model whose probabilities are true lies on the dotted line.",
    )
