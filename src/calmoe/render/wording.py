"""Numbers and lists as words."""

from collections.abc import Sequence


def listed(items: Sequence[object]) -> str:
    """
    >>> listed([42, 43, 44])
    '42, 43 and 44'
    """
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


def many(n: int, noun: str) -> str:
    """
    >>> many(1, "seed"), many(5, "seed")
    ('1 seed', '5 seeds')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def shortest(value: float) -> str:
    """Six digits where they are the very value: no two values are written alike.

    >>> shortest(2.0), shortest(2.00000001)
    ('2', '2.00000001')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
