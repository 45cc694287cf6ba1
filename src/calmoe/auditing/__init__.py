"""The audit: the paper's theory as an instrument."""

from calmoe.auditing.auditors import Auditors, auditors
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.estimates import Estimate
from calmoe.auditing.experts import Aggregate, Expert, aggregate
from calmoe.auditing.fragility import Curve, Fragility, fragility
from calmoe.auditing.hidden import Hidden, Rule, hidden
from calmoe.auditing.worlds import WORLDS, World

__all__ = [
    "WORLDS",
    "Aggregate",
    "Auditors",
    "Configurations",
    "Curve",
    "Estimate",
    "Expert",
    "Fragility",
    "Hidden",
    "Rule",
    "World",
    "aggregate",
    "auditors",
    "fragility",
    "hidden",
]
