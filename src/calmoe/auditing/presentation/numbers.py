"""Estimates as text: in a sentence, and in the cells of a table."""

import numpy as np

from calmoe.auditing.statistics.estimates import Estimate
from calmoe.render.grid import Entry, Heading, interval, number, signed
from calmoe.render.wording import decimal


def in_words(estimate: Estimate) -> str:
    """`0.031 [0.022, 0.040]`, or `at least 0.031` for a one-sided bound, whose value the tables show.

    >>> in_words(Estimate(0.031, 0.022, 0.040, 0.005)), in_words(Estimate(0.04, 0.031, np.inf, 0.005))
    ('0.031 [0.022, 0.040]', 'at least 0.031')
    """
    if np.isnan(estimate.value):
        return "unknown"
    if np.isnan(estimate.low):
        return f"{decimal(estimate.value)} (too few rows for an interval)"
    if np.isinf(estimate.high):
        return f"at least {max(estimate.low, 0.0):.3f}"
    return f"{decimal(estimate.value)} [{decimal(estimate.low)}, {decimal(estimate.high)}]"


def cells(estimate: Estimate, *, sign: bool = False) -> tuple[Entry, Entry]:
    """The value and its interval; a lower bound has no upper end, and below 0 says nothing."""
    value = signed(estimate.value) if sign else number(estimate.value)
    if np.isinf(estimate.high):
        bound = f"≥ {decimal(estimate.low)}" if estimate.low > 0 else "not shown above 0"
        return value, Entry(bound, (estimate.low, estimate.high))
    return value, interval(estimate.low, estimate.high, sign="+" if sign else "-")


def headings(*columns: tuple[str, str]) -> tuple[Heading, ...]:
    """Titles and keys of columns; a key that ends in * stands for two, a value and its interval."""
    row: list[Heading] = []
    for title, key in columns:
        name = key.removesuffix("*")
        row.append(Heading(title, (name,)))
        if key.endswith("*"):
            row.append(Heading("interval", (f"{name}_low", f"{name}_high")))
    return tuple(row)
