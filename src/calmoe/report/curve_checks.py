"""Check curves that come from a file, before anything draws them; the error names the field."""

from collections.abc import Sequence
from typing import Any

from calmoe.arrays import MOST_BINS
from calmoe.errors import InputError, about
from calmoe.validation import items, number, table, text, whole

CURVES = ("method", "rows", "temperature", "raw", "scaled", "frontier", "routing", "history")
TABLE = ("share", "confidence", "accuracy", "standard_error")
GROUP = ("accuracy", "confidence", "ece")
ROUTING = ("entropy", "disagreement")
HISTORY = ("epoch", "negative_share", "gamma_eff")


def check_curves(all_curves: Any, histogram_bins: int, quantiles: int) -> list[dict[str, Any]]:
    """The curves, if all have one shape: the same parts of the rows, and the same epochs for a method."""
    epochs: dict[str, Any] = {}
    for at, curves in enumerate(items("curves", all_curves)):
        with about(f"[{at}]"):
            table("curves", curves, CURVES)
            text("method", curves["method"])
            for name in ("dataset", "protocol"):
                text(name, curves.get(name, ""))
            whole("seed", curves.get("seed", 0))
            number("temperature", curves["temperature"])
            for part, rows in table("rows", curves["rows"], ("all",)).items():
                whole(f"rows.{part}", rows, least=1)
            parts = list(curves["rows"])
            if parts != list(all_curves[0]["rows"]):
                raise InputError("rows must name the same parts as in the first curves")
            for view in ("raw", "scaled"):
                table(view, curves[view], ("reliability", "histogram", "groups"))
                with about(view):
                    _check_view(curves[view], parts, histogram_bins)
            _check_frontier(curves["frontier"])
            _check_routing(curves["routing"], parts, quantiles)
            tilt = _check_history(curves["history"])
            if epochs.setdefault(curves["method"], tilt) != tilt:
                raise InputError("history.epoch must be the same for all seeds of a method")
    return all_curves


def _check_view(view: dict[str, Any], parts: Sequence[str], histogram_bins: int) -> None:
    reliability = table("reliability", view["reliability"], [part for part in parts if part != "easy"])
    for part, columns in reliability.items():
        table(f"reliability.{part}", columns, ("count", "ece", *TABLE))
        bins = len(items(f"reliability.{part}.count", columns["count"], least=1, most=MOST_BINS))
        _check_counts(f"reliability.{part}.count", columns["count"], bins)
        number(f"reliability.{part}.ece", columns["ece"])
        for name in TABLE:
            _check_column(f"reliability.{part}.{name}", columns[name], bins)
    for part, columns in table("histogram", view["histogram"], parts).items():
        table(f"histogram.{part}", columns, ("count", "confidence", "accuracy"))
        _check_counts(f"histogram.{part}.count", columns["count"], histogram_bins)
        for name in ("confidence", "accuracy"):
            number(f"histogram.{part}.{name}", columns[name])
    for column, groups in table("groups", view["groups"]).items():
        for group, measures in table(f"groups.{column}", groups).items():
            field = f"groups.{column}.{group}"
            whole(f"{field}.count", table(field, measures, ("count", *GROUP))["count"])
            _check_column(field, [measures[name] for name in GROUP], len(GROUP))


def _check_frontier(frontier: Any) -> None:
    table("frontier", frontier, ("temperature", "ece", "hard_ece", "chosen"))
    temperatures = items("frontier.temperature", frontier["temperature"], least=2)
    for name in ("temperature", "ece", "hard_ece"):
        values = items(f"frontier.{name}", frontier[name], least=len(temperatures), most=len(temperatures))
        for value in values:
            number(f"frontier.{name}", value, least=0)
    if 1 not in temperatures:
        raise InputError("frontier.temperature must have 1 among its values")
    whole("frontier.chosen", frontier["chosen"], most=len(temperatures) - 1)
    for name in items("frontier.of", frontier.get("of", ["ECE", "hard ECE"]), least=2, most=2):
        text("frontier.of", name)


def _check_routing(routing: Any, parts: Sequence[str], quantiles: int) -> None:
    for column in table("routing", routing, ROUTING) if routing is not None else ():
        for part, summary in table(f"routing.{column}", routing[column], parts).items():
            field = f"routing.{column}.{part}"
            number(field, table(field, summary, ("mean", "quantiles"))["mean"])
            for value in items(f"{field}.quantiles", summary["quantiles"], least=quantiles, most=quantiles):
                number(f"{field}.quantiles", value)


def _check_history(history: Any) -> list[int] | None:
    """The epochs; None where training did not tilt."""
    if history is None:
        return None
    epochs = items("history.epoch", table("history", history, HISTORY)["epoch"], least=1)
    for epoch in epochs:
        whole("history.epoch", epoch, least=1)
    for name in HISTORY:
        _check_column(f"history.{name}", history[name], len(epochs))
    return epochs


def _check_column(field: str, values: Any, size: int) -> None:
    """Numbers, or None where there are no rows."""
    for value in items(field, values, least=size, most=size):
        if value is not None:
            number(field, value)


def _check_counts(field: str, values: Any, size: int) -> None:
    counts = [whole(field, value) for value in items(field, values, least=size, most=size)]
    if not sum(counts):
        raise InputError(f"{field} must count some rows")
