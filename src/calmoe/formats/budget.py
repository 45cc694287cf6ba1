"""What a file may unpack to, so that a small one cannot fill the memory.

The limit is a number of bytes in memory. A file may take 32 times its length, though 64 MiB are always
allowed and more than 8 GiB never; `Predictions.load(path, limit=…)` or the environment variable
CALMOE_READ_LIMIT puts another number in the place of that.
"""

import os

from calmoe.errors import InputError

VARIABLE = "CALMOE_READ_LIMIT"
EXPANSION = 32
ALWAYS = 64 * 2**20
NEVER_BEYOND = 8 * 2**30
CELL = 8
"""The bytes that a number takes once it is computed with, however few the file has for it."""
COLUMN = 1024
"""About what a column takes beside its values."""


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
        self.limit = default if (given := _given(limit)) is None else given
        self.spent = 0
        self.check(length)

    def spend(self, amount: int) -> None:
        """Refuse the file if this amount is too much on top of what was spent before."""
        self.spent += amount
        self.check(self.spent)

    def spend_cells(self, cells: int, columns: int = 0) -> None:
        """So many numbers, in so many columns."""
        self.spend(cells * CELL + columns * COLUMN)

    def spend_text(self, rows: int, longest: int) -> None:
        """A column of text: NumPy gives every row the room of the longest, four bytes a character."""
        self.spend(rows * max(1, longest) * 4)

    def check(self, amount: int) -> None:
        """Refuse the file if this amount is too much by itself."""
        if amount > self.limit:
            raise InputError(
                f"unpacks to {amount:,} bytes or more, beyond the limit of {self.limit:,}: if you expect "
                f"that, raise it: Predictions.load(path, limit=…) or {VARIABLE}, in bytes"
            )


def _given(limit: int | None) -> int | None:
    """The argument, else the environment's number, else None."""
    if limit is None:
        text = os.environ.get(VARIABLE, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise InputError(f"{VARIABLE} must be a whole number of bytes, not {text[:40]!r}")
        return int(text)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InputError(f"limit must be a whole number of bytes, not {limit!r}")
    return limit
