"""The audit: the paper's theory as an instrument."""

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.estimates import Estimate
from calmoe.auditing.fragility import Curve, Fragility, fragility
from calmoe.auditing.hidden import Hidden, Rule, hidden
from calmoe.auditing.worlds import WORLDS, World

__all__ = [
    "WORLDS",
    "Configurations",
    "Curve",
    "Estimate",
    "Fragility",
    "Hidden",
    "Rule",
    "World",
    "fragility",
    "hidden",
]
