"""An objective by its name, with the η that it reads."""

from typing import Any

from calmoe.arrays import as_number
from calmoe.errors import check_known, refusal
from calmoe.methods import OBJECTIVES
from calmoe.objectives import ERM, Objective


def named_objective(name: Any, eta: float) -> Objective:
    """The objective of `calmoe.methods.OBJECTIVES` with this name; η = 0 is the mean.

    >>> named_objective("entropic", 1.0)
    EntropicRisk(loss=<function cross_entropy at ...>, eta=1.0)
    """
    if not isinstance(name, str):
        raise refusal("objective", 'a name such as "erm" or "entropic"', name)
    check_known("objective", name, OBJECTIVES)
    eta = as_number("eta", eta, least=0)
    recipe = OBJECTIVES[name]
    if "eta" not in recipe.settings:
        return recipe.make()
    return recipe.make(eta=eta) if eta > 0 else ERM()
