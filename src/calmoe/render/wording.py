"""Numbers and lists as text."""

import math
from collections.abc import Iterable, Sequence

FIRST = 5  # names that a long list keeps


def listed(items: Sequence[object]) -> str:
    """
    >>> listed([42, 43, 44])
    '42, 43 and 44'
    """
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


def many(n: int, noun: str, plural: str = "") -> str:
    """
    >>> many(1, "seed"), many(5, "seed"), many(5, "class", "classes")
    ('1 seed', '5 seeds', '5 classes')
    """
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"


def count_range(counts: Iterable[int], noun: str) -> str:
    """The one number that all counts are, or the fewest and the most.

    >>> count_range([5, 5], "seed"), count_range([1500, 3, 4], "validation row"), count_range([1], "seed")
    ('5 seeds', '3 to 1,500 validation rows', '1 seed')
    """
    ordered = sorted(counts)
    low, high = ordered[0], ordered[-1]
    return many(high, noun) if low == high else f"{low:,} to {high:,} {noun}s"


def plus_minus(mean: float, error: float) -> str:
    """As in the tables; without an error the mean alone.

    >>> plus_minus(0.055, 0.001), plus_minus(0.055, math.nan), plus_minus(math.nan, math.nan)
    ('0.055 ± 0.001', '0.055', 'none')
    """
    if math.isnan(mean):
        return "none"
    return f"{mean:.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")


def shortest(value: float) -> str:
    """Six digits where they give back the value, else all: no two values are written alike.

    >>> shortest(2.0), shortest(2.00000001)
    ('2', '2.00000001')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def shortened(names: Sequence[str]) -> list[str]:
    """The first names of a long list and how many more there are; a short list as it is.

    >>> shortened("abc"), shortened("abcdefgh")
    (['a', 'b', 'c'], ['a', 'b', 'c', 'd', 'e', '3 more'])
    """
    return [*names] if len(names) <= FIRST + 1 else [*names[:FIRST], f"{len(names) - FIRST} more"]


def telling(low: float, high: float) -> int:
    """How many decimals show that neither bound is zero; at least three.

    >>> telling(-0.02, -0.00004)
    5
    """
    return next((n for n in range(3, 9) if round(low, n) and round(high, n)), 3)


def decimal(value: float, decimals: int = 3, sign: str = "-") -> str:
    """Three decimals, a true minus sign, none before a zero; a dash for NaN. sign: "+" shows a plus too.

    >>> decimal(-0.25), decimal(0.25, 1, "+"), decimal(-0.0001)
    ('−0.250', '+0.2', '0.000')
    """
    if math.isnan(value):
        return "–"
    return f"{value:{sign if round(value, decimals) else '-'}z.{decimals}f}".replace("-", "−")
