"""What an attack counts: one tally an attack, a row of the table of figures."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Self

Progress = Callable[[int, int, int], None]  # cases done, cases in all, failures so far

MEMORY_LIMIT = 1000.0  # MB that one case may take
SHOWN = 20  # failures kept of each tally, so that a broken reader does not fill the screen
HEADINGS = {
    "name": "attack",
    "cases": "cases",
    "loaded": "loaded",
    "refused": "refused",
    "tracebacks": "tracebacks",
    "hangs": "hangs",
    "wrong": "silent wrong loads",
    "foreign": "foreign files changed",
    "lost": "bytes of results lost",
    "memory_mb": "peak MB a case",
    "seconds": "seconds",
}


@dataclass
class Tally:
    """The figures of one attack.

    loaded: cases that calmoe took; refused: cases that ended in one line. The next five must be zero:
    tracebacks: any exception but InputError, a crash of the process too; hangs: cases over 10 s; wrong: loads
    that an independent strict reading denies; foreign: files not calmoe's that changed; lost: bytes of
    finished results that did not survive. memory_mb: the most that one case added to the process.
    failures: a line each, with all that it takes to run the case again.
    """

    name: str
    cases: int = 0
    loaded: int = 0
    refused: int = 0
    tracebacks: int = 0
    hangs: int = 0
    wrong: int = 0
    foreign: int = 0
    lost: int = 0
    memory_mb: float = 0.0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """How many of the counts that must be zero are not, added up; a case over the memory counts one."""
        counts = self.tracebacks + self.hangs + self.wrong + self.foreign + self.lost
        return counts + (self.memory_mb >= MEMORY_LIMIT)

    def merge(self, other: Self) -> Self:
        """Both tallies as one, under this one's name: counts add up, memory is the larger."""
        self.memory_mb = max(self.memory_mb, other.memory_mb)
        for name in ("cases", "loaded", "refused", "tracebacks", "hangs", "wrong", "foreign", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.seconds += other.seconds
        self.failures = (self.failures + other.failures)[:SHOWN]
        return self


def table(tallies: Iterable[Tally]) -> str:
    """The tallies as a Markdown table, with a line for all of them.

    >>> print(table([Tally("csv", cases=2000, loaded=1, refused=1999, memory_mb=3.14, seconds=9)]))
    | attack | cases | loaded | refused | tracebacks | hangs | ... | peak MB a case | seconds |
    |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
    | csv | 2,000 | 1 | 1,999 | 0 | 0 | 0 | 0 | 0 | 3 | 9 |
    | all | 2,000 | 1 | 1,999 | 0 | 0 | 0 | 0 | 0 | 3 | 9 |
    """
    rows = list(tallies)
    total = Tally("all")
    for row in rows:
        total.merge(row)
    lines = ["| " + " | ".join(HEADINGS.values()) + " |", "|---" + "|---:" * (len(HEADINGS) - 1) + "|"]
    lines += ["| " + " | ".join(_cell(row, name) for name in HEADINGS) + " |" for row in [*rows, total]]
    return "\n".join(lines)


def _cell(tally: Tally, name: str) -> str:
    value = getattr(tally, name)
    return value if isinstance(value, str) else f"{value:,.0f}"


assert set(HEADINGS) == {column.name for column in fields(Tally)} - {"failures"}
