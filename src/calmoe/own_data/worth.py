"""Whether a model is worth it: its log loss beside that of the best baseline, row by row."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from calmoe.defaults import LEVEL
from calmoe.metrics import paired_difference
from calmoe.own_data.baselines import BASE_RATE
from calmoe.own_data.parts import HELD_OUT, SHIFT
from calmoe.own_data.scores import Row, row_losses
from calmoe.render.wording import decimal, many, telling

FEWEST = 30
"""Rows; the interval of fewer is too rough for a verdict."""


class Worth(NamedTuple):
    """By how much the model's log loss is lower than the best baseline's, with its interval.

    The pairs are the rows of one part. The best baseline is the one with the lowest log loss on these very
    rows, so the interval pays for the choice: 95 % for all baselines together (Bonferroni).
    """

    baseline: str
    rows: int
    gain: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Row, baselines: Sequence[Row], part: str = HELD_OUT) -> "Worth":
        best = min(baselines, key=lambda row: float(row_losses(row.parts[part]).mean()))
        own, other = row_losses(ours.parts[part]), row_losses(best.parts[part])
        difference = paired_difference(other, own, level=1 - (1 - LEVEL) / len(baselines))
        return cls(best.name, len(own), difference.estimate, difference.low, difference.high)

    def __str__(self) -> str:
        """The verdict in a sentence without its subject.

        >>> print(Worth("Logistic regression", 600, 0.021, 0.010, 0.032))
        better than logistic regression: log loss lower by 0.021 [0.010, 0.032]
        >>> print(Worth("Logistic regression", 600, 0.003, -0.009, 0.015))
        not distinguishable from logistic regression on these 600 rows: log loss 0.003 lower (0.015 lower to
        0.009 higher)
        >>> print(Worth("Gradient boosting", 600, -0.021, -0.032, -0.010))
        worse than gradient boosting: log loss higher by 0.021 [0.010, 0.032]; use that instead
        """
        name = "the base rate" if self.baseline == BASE_RATE else self.baseline.lower()
        if math.isinf(self.gain) and self.rows >= FEWEST:  # a row that one of them calls impossible
            return f"better than {name}" if self.gain > 0 else f"worse than {name}; use that instead"
        if self.rows < FEWEST or not (self.low > 0 or self.high < 0):
            same = f"not distinguishable from {name} on {'these ' * (self.rows > 1)}{many(self.rows, 'row')}"
            if not math.isfinite(self.low):
                return same
            return f"{same}: log loss {_side(self.gain)} ({_side(self.high)} to {_side(self.low)})"
        lower = self.gain > 0
        ends = (self.low, self.high) if lower else (-self.high, -self.low)
        decimals = telling(*ends)
        by, *interval = (decimal(each, decimals) for each in (abs(self.gain), *ends))
        word, rest = ("lower", "") if lower else ("higher", "; use that instead")
        verdict = f"{'better' if lower else 'worse'} than {name}"
        return f"{verdict}: log loss {word} by {by} [{', '.join(interval)}]{rest}"


def _side(gain: float) -> str:
    """A difference in log loss, in words instead of a sign."""
    return f"{decimal(abs(gain))} {'lower' if gain >= 0 else 'higher'}"


def worth_sentences(ours: Row, baselines: Sequence[Row]) -> list[str]:
    """The verdict on the rows held out and, where there is one, on the shift."""
    leads = {HELD_OUT: "this model is", SHIFT: "on the shift it is"}
    return [f"{lead} {Worth.of(ours, baselines, part)}" for part, lead in leads.items() if part in ours.parts]
