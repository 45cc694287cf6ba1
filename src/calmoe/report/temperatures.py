"""Temperatures that are no optimum, in words: in how many models, why, and what "+TS" means there."""

from collections.abc import Sequence
from typing import Any

from calmoe.calibration.temperature_solvers import FITTED
from calmoe.render.wording import many, shortest
from calmoe.report.rows_over_seeds import Row, Rows

NAMED = 5  # rows that a note names
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


def _status(row: Row) -> str:
    return str(row.get("temperature_status", "optimum"))


def _models(n: int, total: int) -> str:
    if n < total:
        return f"{n} of {total} models"
    return f"all {total} models" if total > 1 else "the one model"


def temperature_notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each protocol and kind of temperature that is no optimum: which rows, and how many."""
    odd: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["temperature_status"] not in FITTED:
            odd.setdefault((row["protocol"], row["temperature_status"]), []).append(row)
    notes = []
    for (protocol, status), those in odd.items():
        names = [
            f"seed {r['seed']} {r['method']}"
            + (f" {r['setting']} {shortest(r['value'])}" if "value" in r else "")
            for r in those
        ]
        low, high = (f"{pick(r['temperature'] for r in those):.3g}" for pick in (min, max))
        notes.append(
            f"{protocol} protocol: temperature {low}{f' to {high}' * (low != high)}, {status}, in "
            f"{len(those)} of {many(sum(r['protocol'] == protocol for r in rows), 'row')}: "
            f"{', '.join(names[:NAMED])}{', …' * (len(names) > NAMED)}"
        )
    return notes
