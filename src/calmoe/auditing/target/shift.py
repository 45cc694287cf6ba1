"""A source and a target together: both files, their density ratio, and what was learned on the source."""

from dataclasses import dataclass

import numpy as np

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.target.cross_fit import CrossFitted
from calmoe.auditing.target.density import DensityRatio
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions


@dataclass(frozen=True, kw_only=True)
class Shift:
    """`here` and `there` are the configurations of source and target; `learned` is m(S) − f."""

    source: Predictions
    target: Predictions
    here: Configurations
    there: Configurations
    ratio: DensityRatio
    learned: CrossFitted
    of: Of
    bins: int
    level: float

    @property
    def unexplained(self) -> np.ndarray:
        """Y − m(S) of the source rows. [n]"""
        return self.here.residual - self.learned.source
