"""How far an audit is: its steps are sections of known cost, and the long ones report from inside."""

from collections.abc import Callable, Mapping

Progress = Callable[[str, float], None]
"""(the section at work, the share of all work that is done)"""


def silent(section: str, done: float) -> None:
    """Report nothing."""


class Steps:
    """Tells `progress` which section begins, and how far it is; costs are relative, in any unit.

    >>> steps = Steps({"calibration": 2, "repair": 6}, lambda section, done: print(section, done))
    >>> steps.begin("calibration")
    calibration 0.0
    >>> steps.inside(0.5)
    calibration 0.125
    >>> steps.begin("repair")
    repair 0.25
    """

    def __init__(self, costs: Mapping[str, float], progress: Progress = silent) -> None:
        self.progress, self.costs = progress, costs
        self.section, self.before = "", 0.0

    def begin(self, section: str) -> None:
        """A section begins; those before it are done."""
        names = list(self.costs)
        self.section = section
        self.before = sum(self.costs[name] for name in names[: names.index(section)])
        self.inside(0.0)

    def inside(self, share: float) -> None:
        """This share of the section is done."""
        done = (self.before + share * self.costs[self.section]) / sum(self.costs.values())
        self.progress(self.section, min(done, 1.0))
