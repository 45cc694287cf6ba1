"""Estimates as cells of a table."""

import numpy as np

from calmoe.auditing.statistics.estimates import Estimate
from calmoe.render.grid import Entry, Heading, decimal, interval, number, signed


def pair(found: Estimate, *, sign: bool = False) -> tuple[Entry, Entry]:
    """The value, and its interval; a one-sided bound has no upper end. sign: show a plus."""
    value = signed(found.value) if sign else number(found.value)
    if np.isinf(found.high):
        return value, Entry(f"≥ {decimal(found.low)}", (found.low, found.high))
    return value, interval(found.low, found.high, sign="+" if sign else "-")


def headings(*names: tuple[str, str]) -> tuple[Heading, ...]:
    """Titles and keys; a key that ends in * is a value and its interval, in two columns."""
    found: list[Heading] = []
    for title, key in names:
        name = key.removesuffix("*")
        found.append(Heading(title, (name,)))
        if key.endswith("*"):
            found.append(Heading("interval", (f"{name}_low", f"{name}_high")))
    return tuple(found)
