"""Temperatures that are no optimum, in words: in how many models, why, and what "+TS" means there."""

from collections.abc import Sequence

from calmoe.calibration.temperature_solvers import FITTED
from calmoe.report.tables import Row, Rows

FIRST = 5  # names that a long list keeps
WHY = {
    "separable": "the validation rows are separable (every label already has the highest probability), so no "
    "temperature is optimal and T stays 1: +TS is the raw value there",
    "uninformative": "the validation probabilities do worse than uniform ones at any temperature, so none is "
    "optimal and T is the largest allowed: +TS is of all but uniform probabilities there",
    "at bound": "the best temperature lies beyond the range that is searched and T is its bound: +TS is not "
    "after an optimal temperature there",
    "negative": "the published solver ran to a T that is not positive: +TS is of predictions turned upside "
    "down there",
}


def not_fitted(rows: Rows) -> list[Row]:
    """The rows whose temperature is no optimum."""
    return [row for row in rows if _status(row) not in FITTED]


def all_separable(rows: Rows) -> bool:
    """Whether T stays 1 in every row, so that "+TS" is the raw value."""
    return bool(rows) and all(_status(row) == "separable" for row in rows)


def consequences(rows: Rows) -> str:
    """A sentence for each reason: how many models it holds for, and what follows; empty where all is well.

    >>> consequences([{"temperature_status": "at bound"}, {"temperature_status": "optimum"}])[:55]
    'In 1 of 2 models the best temperature lies beyond the r'
    """
    statuses = [_status(row) for row in not_fitted(rows)]
    other = "validation found no optimal temperature: +TS is not after one there"
    return " ".join(
        f"In {_models(statuses.count(status), len(rows))} {WHY.get(status, other)}."
        for status in dict.fromkeys(statuses)
    )


def exceptions(rows: Rows) -> str:
    """The clause after "temperatures are fitted to convergence"; empty where all are.

    >>> exceptions([{"temperature_status": "separable"}] * 3)
    '; in all 3 models there is no optimum'
    """
    odd = [
        row for row in not_fitted(rows) if _status(row) != "negative"
    ]  # the published search never converges anyway
    return f"; in {_models(len(odd), len(rows))} there is no optimum" if odd else ""


def shortened(names: Sequence[str]) -> list[str]:
    """The first names of a long list and how many more there are; a short list as it is.

    >>> shortened("abc"), shortened("abcdefgh")
    (['a', 'b', 'c'], ['a', 'b', 'c', 'd', 'e', '3 more'])
    """
    return [*names] if len(names) <= FIRST + 1 else [*names[:FIRST], f"{len(names) - FIRST} more"]


def _status(row: Row) -> str:
    return str(row.get("temperature_status", "optimum"))


def _models(n: int, total: int) -> str:
    if n < total:
        return f"{n} of {total} models"
    return f"all {total} models" if total > 1 else "the one model"
