"""The one list of figures: those of a run's page, and those of the page over several targets.

To add a figure, write its function and its card in one of these files; a new file goes into the list below.
"""

from collections.abc import Iterable, Sequence

from calmoe.report import (
    confidence_figures,
    domain_figure,
    eta_gamma,
    examples,
    frontier,
    group_figures,
    inside_mixture,
    targets_figures,
)
from calmoe.report.figure_cards import FigureCard, RunNumbers, TargetNumbers
from calmoe.report.sweeps import sweep_card

TARGET_FIGURES: Sequence[FigureCard[TargetNumbers]] = targets_figures.CARDS


def run_figures(swept: Iterable[str] = ()) -> list[FigureCard[RunNumbers]]:
    """The figures of a run and of its sweeps, in the order of the page. swept: such as "eta" or "eta-rho".

    >>> [card.name for card in run_figures(["eta"])][-3:]
    ['domains', 'sweep_eta', 'eta_gamma']
    """
    cards = [
        *confidence_figures.CARDS,
        *group_figures.CARDS,
        *frontier.CARDS,
        *inside_mixture.CARDS,
        examples.CARD,
        domain_figure.CARD,
    ]
    for name in swept:
        cards += [sweep_card(name), *([eta_gamma.CARD] if name == "eta" else [])]
    return cards


def figure_names(swept: Iterable[str]) -> list[str]:
    """The names of all figures that a report can have, if these settings can be swept."""
    return [card.name for card in run_figures(swept)] + [card.name for card in TARGET_FIGURES]
