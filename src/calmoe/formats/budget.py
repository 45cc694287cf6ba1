"""A bound on what a file unpacks to, so that a small one cannot fill the memory.

The limit is a number of bytes in memory. A file may take 32 times its length, though 64 MiB are always
allowed and more than 8 GiB never; `Predictions.load(path, limit=…)` or the environment variable
CALMOE_READ_LIMIT sets another limit.
"""

import os

from calmoe.errors import InputError, refusal

VARIABLE = "CALMOE_READ_LIMIT"
EXPANSION = 32
ALWAYS = 64 * 2**20
NEVER_BEYOND = 8 * 2**30
CELL = 8
"""Bytes of a number in a computation, however few the file spends on it."""
COLUMN = 1024
"""Bytes of a column beside its values, roughly."""


class Budget:
    """The bytes left to one file.

    >>> budget = Budget(length=1000)
    >>> budget.spend_cells(3_000, columns=3)
    >>> budget.spend_cells(3_000_000_000, columns=3)
    Traceback (most recent call last):
    ...
    calmoe.errors.InputError: unpacks to 24,000,030,144 bytes or more, beyond the limit of 67,108,864: ...
    """

    def __init__(self, length: int, limit: int | None = None) -> None:
        default = min(NEVER_BEYOND, max(ALWAYS, EXPANSION * length))
        chosen = _chosen(limit)
        self.limit = default if chosen is None else chosen
        self.spent = 0
        self.check(length)

    def spend(self, amount: int) -> None:
        """Refuse the file if this amount is too much on top of what was spent before."""
        self.spent += amount
        self.check(self.spent)

    def spend_cells(self, cells: int, columns: int = 0) -> None:
        """Spend on this many numbers, in this many columns."""
        self.spend(cells * CELL + columns * COLUMN)

    def spend_text(self, rows: int, longest: int) -> None:
        """Spend on a column of text: every row takes the room of the longest, four bytes a character."""
        self.spend(rows * max(1, longest) * 4)

    def check(self, amount: int) -> None:
        """Refuse the file if this amount is too much by itself."""
        if amount > self.limit:
            raise InputError(
                f"unpacks to {amount:,} bytes or more, beyond the limit of {self.limit:,}: if you expect "
                f"that, raise it: Predictions.load(path, limit=…) or {VARIABLE}, in bytes"
            )


def _chosen(limit: int | None) -> int | None:
    """The user's limit: the argument, else the environment's number, else None."""
    if limit is None:
        text = os.environ.get(VARIABLE, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise refusal(VARIABLE, "a whole number of bytes", text)
        return int(text)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise refusal("limit", "a whole number of bytes", limit)
    return limit
