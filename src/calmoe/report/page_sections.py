"""Fill the sections of a page: its tables, its figures, and why one could not be drawn."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calmoe.render.grid import Grid
from calmoe.render.page import Picture, Section
from calmoe.report.figure_cards import FigureCard
from calmoe.report.sections import SectionCard


def page_sections(
    first: Iterable[SectionCard],
    cards: Sequence[FigureCard[Any]],
    grids: Mapping[str, Grid],
    pictures: Mapping[str, Picture],
    missing: Mapping[str, str],
    *,
    protocol: str,
    hard: bool,
) -> list[Section]:
    """The sections of a page that have something to show: those named first, then those of the figures.

    Each holds its tables and its figures, and says why one could not be drawn.
    """
    sections = []
    for section in dict.fromkeys((*first, *(card.section for card in cards))):
        names = [card.name for card in cards if card.section == section]
        shown = Section(
            heading=section.heading,
            how=section.how_for(hard).format(protocol=protocol),
            tables=[grid for name, grid in grids.items() if section.holds(name)],
            figures=[pictures[name] for name in names if name in pictures],
            notes=[f"Not drawn, {name}: {missing[name]}." for name in names if name in missing],
        )
        if shown.tables or shown.figures or shown.notes:
            sections.append(shown)
    return sections
