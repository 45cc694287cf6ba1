"""Read a run folder's sessions, histories and rows, and check every value in them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calmoe.calibration.temperature_solvers import STATUSES
from calmoe.data import PROTOCOLS
from calmoe.errors import InputError, about
from calmoe.experiments.sweep import sweepable, swept_value
from calmoe.files import open_regular
from calmoe.validation import items, number, one_of, parse_json, read_document, table, text, whole

SCORES = ("accuracy", "ece", "ece_ts", "nll", "nll_ts", "brier", "brier_ts")
HIGHEST = {
    "accuracy": 1.001,
    "ece": 1.001,
    "brier": 2.001,
    "nll": math.inf,
}  # by a column's metric
TILT_ABOVE = {"perplexity": 0, "gamma_eff": 0, "negative_share": -1}  # what each must be above
MOST_OF_ROWS = 256 * 2**20  # bytes of results.jsonl


def check_sessions(path: Path, environment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sessions in `environment.json`, all checked."""
    with about(path):
        sessions = items("sessions", environment.get("sessions"))
        for session in sessions:
            facts = table("sessions", session, ("device", "date", "command"))
            for word in items("command", facts["command"], least=1):
                text("command", word)
            for name in ("cores", "threads", "ranks"):
                whole(name, facts.get(name) or 0)
            for name in ("device", "date", "calmoe", "commit", "python", "torch"):
                text(name, facts.get(name) or "")
    return sessions


def read_history(path: Path) -> list[dict[str, float]]:
    """What training logged, an entry an epoch."""
    history = read_document(path)
    with about(path):
        for entry in items("history", history, least=1):
            whole("epoch", table("history", entry, ("epoch",))["epoch"], least=1)
            for name, value in entry.items():
                _logged(name, value)
    return history


def read_results_file(path: Path) -> bytes:
    """The bytes of `results.jsonl`."""
    with open_regular(path) as stream:
        data = stream.read(MOST_OF_ROWS + 1)
    if len(data) > MOST_OF_ROWS:
        raise InputError(f"{path} is longer than {MOST_OF_ROWS:,} bytes")
    return data


def parse_rows(path: Path, data: bytes) -> list[dict[str, Any]]:
    """The rows in the bytes of `results.jsonl`, all checked."""
    rows = []
    for at, line in enumerate(data.splitlines(), start=1):
        with about(f"{path}, line {at}"):
            rows.append(_row(parse_json(line)))
    return rows


def _row(row: Any) -> dict[str, Any]:
    table("row", row, ("method", "seed", "protocol", "temperature", "temperature_status", "n", *SCORES))
    text("method", row["method"], most=255)
    one_of("protocol", row["protocol"], PROTOCOLS)
    whole("seed", row["seed"])
    number("temperature", row["temperature"])
    one_of(
        "temperature_status",
        row["temperature_status"],
        [status for statuses in STATUSES.values() for status in statuses],
    )
    whole("n", row["n"], least=1)
    whole("n_hard", row.get("n_hard", 0), most=row["n"])
    for value in items("temperatures", row.get("temperatures", [])):
        number("temperatures", value)
    if {"setting", "value"} & row.keys():
        table("row", row, ("setting", "value", "batch"))
        one_of("setting", row["setting"], sweepable())
        swept_value("value", row["value"])
        whole("batch", row["batch"], least=1)
    if "point" in row:
        table("row", row, ("batch",))
        for setting, value in table("point", row["point"]).items():
            one_of("point", setting, sweepable())
            swept_value(f"point.{setting}", value)
        whole("batch", row["batch"], least=1)
    for name, value in row.items():
        if name in TILT_ABOVE:
            _logged(name, value)
        metric = next((metric for metric in HIGHEST if metric in name.split("_")), None)
        if metric and value is not None:
            number(name, value, least=-1e-3, most=HIGHEST[metric])
    groups = row.get("worst_group")
    for name in table("worst_group", groups) if groups is not None else ():
        text(f"worst_group.{name}", groups[name] or "")
    return row


def _logged(name: str, value: Any) -> None:
    number(name, value, **({"above": TILT_ABOVE[name]} if name in TILT_ABOVE else {}))
