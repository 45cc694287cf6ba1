"""How far an audit is: parts are steps of a known size, and the long ones move inside."""

from collections.abc import Callable, Mapping

Progress = Callable[[str, float], None]
"""(the part at work, the share of all work that is done)"""

PARTS = {
    "experts": 0.2,
    "auditors": 0.1,
    "certificates": 0.1,
    "configurations": 0.1,
    "hidden miscalibration": 0.2,
    "fragility": 0.1,
    "repair": 0.2,
}
"""Shares of the time that many rows take, roughly."""

TARGET = {"target": 0.5}
"""And what a target of as many rows adds."""


def silent(part: str, done: float) -> None:
    """Say nothing."""


class Steps:
    """Tells `progress` which part begins, and how far it is.

    >>> steps = Steps(lambda part, done: print(f"{part} {done:.1f}"))
    >>> steps.begin("experts")
    experts 0.0
    >>> steps.inside(0.5)
    experts 0.1
    >>> steps.begin("auditors")
    auditors 0.2
    """

    def __init__(self, progress: Progress = silent, parts: Mapping[str, float] = PARTS) -> None:
        self.progress, self.parts, self.part, self.before = progress, parts, "", 0.0

    def begin(self, part: str) -> None:
        """A part begins; those before it are done."""
        names = list(self.parts)
        self.part, self.before = part, sum(self.parts[name] for name in names[: names.index(part)])
        self.inside(0.0)

    def inside(self, share: float) -> None:
        """This share of the part is done."""
        done = (self.before + share * self.parts[self.part]) / sum(self.parts.values())
        self.progress(self.part, min(done, 1.0))
