"""How methods look in figures: their colours, their markers, and what a legend says of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.lines import Line2D

from calmoe.methods import METHODS, SPARE, method_title


class Look(NamedTuple):
    """How a method looks, wherever it appears."""

    title: str
    colour: str
    marker: str


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """The look of each method; methods without one of their own take the spare ones, in the order given.

    >>> looks(["vanilla", "mine"])["vanilla"]
    Look(title='Vanilla MoE', colour='#000000', marker='s')
    """
    methods = list(methods)
    cards = [METHODS[method] for method in methods if method in METHODS]
    drawn = {card.name: (card.colour, card.marker) for card in cards if card.colour}
    own = [method for method in methods if method not in drawn]
    drawn |= {method: SPARE[i % len(SPARE)] for i, method in enumerate(own)}
    return {method: Look(method_title(method), *drawn[method]) for method in methods}


def legend_entries(
    methods: Iterable[str], suffixes: Mapping[str, str] | None = None, **options: Any
) -> list[Line2D]:
    """The methods' entries in a legend. suffixes: by method what follows its title, such as `fewer_seeds`."""
    return [
        Line2D([], [], color=look.colour, marker=look.marker, label=label, **options)
        for method, look in looks(methods).items()
        for label in [look.title + (suffixes or {}).get(method, "")]
    ]


def fewer_seeds(counts: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """What follows the title of each method: its number of seeds where another has more, else nothing.

    counts: by method, one for each place, such as a target; a place where a method has none does not count.

    >>> fewer_seeds({"vanilla": [3, 3, 2], "robust": [3, 2, 2], "fgr": [2, 2, 0]})
    {'vanilla': '', 'robust': ' (2–3 seeds)', 'fgr': ' (2 seeds)'}
    """
    most = [max(place) for place in zip(*counts.values(), strict=True)]

    def suffix(own: Sequence[int]) -> str:
        if all(n in (0, top) for n, top in zip(own, most, strict=True)):
            return ""
        known = sorted({n for n in own if n})
        number = str(known[0]) if len(known) == 1 else f"{known[0]}–{known[-1]}"
        return f" ({number} seed{'s' * (number != '1')})"

    return {method: suffix(own) for method, own in counts.items()}
