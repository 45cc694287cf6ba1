"""The audit: the paper's theory as an instrument.

Numbers first, each with an interval; no model judges a row that it learned from.

>>> from calmoe import worlds
>>> from calmoe.auditing import audit
>>> report = audit(worlds.cancelling(seed=0).sample(150, seed=0))
>>> print(report.summary())
Verdict: The probabilities ...
"""

from calmoe.auditing.audit_report import AuditReport, audit
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.sections.auditors import Auditors, auditors
from calmoe.auditing.sections.calibration import Aggregate, Expert, aggregate
from calmoe.auditing.sections.certificates import Certificate, Certificates, certificates
from calmoe.auditing.sections.fragility import Curve, Fragility, fragility
from calmoe.auditing.sections.hidden import Hidden, hidden
from calmoe.auditing.sections.repair import Repair, repair
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.statistics.rules import Rule
from calmoe.auditing.target.assumption import Plausibility
from calmoe.auditing.target.density import DensityRatio, density_ratio
from calmoe.auditing.target.predict import Scores, Target, predict_target
from calmoe.auditing.target.temperature import Tempered
from calmoe.auditing.verdict import Verdict

__all__ = [
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
    "Verdict",
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
