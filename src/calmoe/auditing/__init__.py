"""The audit: the paper's theory as an instrument.

Numbers first, each with an interval; no row is judged by a model that saw it.

>>> from calmoe.auditing import audit, worlds
>>> report = audit(worlds.cancelling(seed=0).sample(4000, seed=0))
>>> print(report.summary())
In short: The probabilities ...
"""

from calmoe.auditing.adversaries import Curve, Fragility, fragility
from calmoe.auditing.certifying import Certificate, Certificates, certificates
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.density import DensityRatio, density_ratio
from calmoe.auditing.estimates import Estimate
from calmoe.auditing.experts import Aggregate, Expert, aggregate
from calmoe.auditing.mending import Repair, repair
from calmoe.auditing.moments import Auditors, auditors
from calmoe.auditing.plausibility import Plausibility
from calmoe.auditing.report import AuditReport, audit
from calmoe.auditing.target import Scores, Target, predict_target
from calmoe.auditing.target_temperature import Tempered
from calmoe.auditing.witness import Hidden, Rule, hidden
from calmoe.auditing.worlds import WORLDS, World

__all__ = [
    "WORLDS",
    "Aggregate",
    "AuditReport",
    "Auditors",
    "Certificate",
    "Certificates",
    "Configurations",
    "Curve",
    "DensityRatio",
    "Estimate",
    "Expert",
    "Fragility",
    "Hidden",
    "Plausibility",
    "Repair",
    "Rule",
    "Scores",
    "Target",
    "Tempered",
    "World",
    "aggregate",
    "audit",
    "auditors",
    "certificates",
    "density_ratio",
    "fragility",
    "hidden",
    "predict_target",
    "repair",
]
