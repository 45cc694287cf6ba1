"""A method is a row: the paper's seven, and what its switches give beyond the paper."""

from collections.abc import Iterable
from dataclasses import dataclass

from calmoe.training.settings import Stage


@dataclass(frozen=True, kw_only=True)
class Method:
    """Four switches: the head, the objective after warm-up, the gradient rule, and what follows training."""

    name: str
    head: str = "mixture"
    objective: str = "erm"
    loss: str = "cross_entropy"
    rectified: bool = False
    post_hoc: str | None = None
    weights_of: str | None = None  # the method whose trained model this one uses

    def stage(self, start: int, end: int) -> Stage:
        """Epochs [start, end) of this method's own training."""
        return Stage(
            head=self.head,
            objective=self.objective,
            loss=self.loss,
            rectified=self.rectified,
            start=start,
            end=end,
        )


METHODS = {
    method.name: method
    for method in (
        Method(name="single", head="single"),
        Method(name="vanilla"),
        Method(name="mocae", post_hoc="per_expert_temperature", weights_of="vanilla"),
        Method(name="fgr", rectified=True),
        Method(name="robust", objective="tilted"),
        Method(name="robust_filtered", objective="filtered"),
        Method(name="fgr_robust", objective="tilted", rectified=True),
        Method(name="entropic", objective="entropic"),
        Method(name="robust_brier", objective="tilted", loss="brier"),
        Method(name="cvar", objective="cvar"),
    )
}
PAPER_METHODS = ("single", "vanilla", "mocae", "fgr", "robust", "robust_filtered", "fgr_robust")


def source(name: str) -> str:
    """The method whose trained model `name` uses: mostly its own.

    >>> source("mocae"), source("robust")
    ('vanilla', 'robust')
    """
    return METHODS[name].weights_of or name


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """The methods named, each once, in the table's order.

    >>> in_order(["robust", "single", "robust"])
    ('single', 'robust')
    """
    wanted = set(names)
    return tuple(name for name in METHODS if name in wanted)
