"""The card of a figure: its name, its section, its caption, the numbers it shows and the function that draws.

A drawing function and its card stand together in one file; `calmoe.report.figure_list` names the files. Page
and captions follow from the cards, so that no figure lacks a caption or a place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from calmoe.experiments.sweep import Value
from calmoe.render.drawing import Drawn, draw_all
from calmoe.report.curves import Curves
from calmoe.report.rows_over_seeds import Rows
from calmoe.report.sections import SectionCard

Numbers = TypeVar("Numbers")


class RunNumbers(NamedTuple):
    """What the figures of a run show; a figure whose numbers are missing does not apply.

    hard: whether the test rows have a hard subset; target: the domain that they come from, if it is one of
    several; examples and domain_images read images, and only once a figure asks for them; sweeps: rows by
    what is swept, such as "eta" or "eta-rho"; defaults: by swept setting its value in the run.
    """

    dataset: str
    protocol: str
    target: str = ""
    hard: bool = False
    curves: Sequence[Curves] = ()
    examples: Callable[[], Mapping[str, Any]] | None = None
    domain_images: Callable[[], Mapping[str, Mapping[str, Any]]] | None = None
    sweeps: Mapping[str, Rows] = {}
    defaults: Mapping[str, Value] = {}


class TargetNumbers(NamedTuple):
    """What the figures over several targets show: rows with "target", and the title and curves of each."""

    rows: Rows
    protocol: str
    titles: Mapping[str, str]
    curves: Mapping[str, Sequence[Curves]] = {}


def _always(_: Any) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class FigureCard(Generic[Numbers]):
    """A figure: where it stands, what stands under it, what draws it, and whether it applies at all."""

    name: str
    section: SectionCard
    caption: str | Callable[[Numbers], str]
    draw: Callable[[Numbers], Drawn]
    applies: Callable[[Numbers], bool] = _always

    def caption_for(self, numbers: Numbers) -> str:
        return self.caption if isinstance(self.caption, str) else self.caption(numbers)


class Captioned(NamedTuple):
    """A figure with the caption that fits its numbers."""

    drawn: Drawn
    caption: str


def has_curves(numbers: RunNumbers | TargetNumbers) -> bool:
    return bool(numbers.curves)


def curves_card(
    name: str,
    section: SectionCard,
    draw: Callable[[Sequence[Curves]], Drawn],
    caption: str | Callable[[RunNumbers], str],
    applies: Callable[[RunNumbers], bool] = has_curves,
) -> FigureCard[RunNumbers]:
    """The card of a figure that takes a run's curves and nothing else."""
    return FigureCard(
        name=name,
        section=section,
        caption=caption,
        draw=lambda numbers: draw(numbers.curves),
        applies=applies,
    )


def draw_figures(
    cards: Sequence[FigureCard[Numbers]], numbers: Numbers
) -> tuple[dict[str, Captioned], dict[str, str]]:
    """The figures that apply, by name, and by name the reason where one could not be drawn."""
    applying = {card.name: card for card in cards if card.applies(numbers)}
    drawn, missing = draw_all({name: partial(card.draw, numbers) for name, card in applying.items()})
    return {n: Captioned(figure, applying[n].caption_for(numbers)) for n, figure in drawn.items()}, missing
