"""What a run folder's files say is checked even where their seals are intact: a seal is no proof of sense."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calmoe.calibration.temperature_solvers import STATUSES
from calmoe.data import PROTOCOLS
from calmoe.errors import InputError, about
from calmoe.experiments.plan import TRAINING_VERSION
from calmoe.experiments.spec import from_table
from calmoe.experiments.sweep import KINDS, make_sweep
from calmoe.files import open_regular
from calmoe.methods import METHODS
from calmoe.validation import items, number, one_of, parse_json, read_document, table, text, whole

RECORD = ("spec", "device", "fingerprint", "training_fingerprint", "protocols", "hard")
OF_SPEC = {  # settings that were always recorded, and that reports read
    "spec": ("protocol", "model", "training"),
    "spec.model": ("backbone", "variant"),
    "spec.training": ("epochs", "warmup", "batch", "eta"),
}
SCORES = ("accuracy", "ece", "ece_ts", "nll", "nll_ts", "brier", "brier_ts")
MOST = {"accuracy": 1.001, "ece": 1.001, "brier": 2.001, "nll": math.inf}  # by the metric in a column's name
TILT = {"perplexity": 0, "gamma_eff": 0, "negative_share": -1}  # what each must be above
MOST_VALUES = 1000
MOST_OF_ROWS = 256 * 2**20  # bytes of results.jsonl


def check_record(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """What `spec.json` may say: a run or a sweep that this calmoe can plan."""
    with about(path):
        table("", record, RECORD)
        version = whole("training_version", record.get("training_version", 1), least=1)
        if version > TRAINING_VERSION:
            raise InputError(
                f"training_version {version} is newer than this calmoe's {TRAINING_VERSION}: update calmoe"
            )
        parts = {"spec": record["spec"]}
        for name, keys in OF_SPEC.items():
            part = table(name, parts[name], keys)
            parts |= {f"{name}.{key}": part[key] for key in keys}
        spec = from_table(record["spec"])
        one_of("device", record["device"], ("cpu", "cuda"))
        for name in ("fingerprint", "training_fingerprint", "weights"):
            text(name, record.get(name, ""), most=200)
        protocols = items("protocols", record["protocols"], least=1, most=len(PROTOCOLS))
        for protocol in protocols:
            one_of("protocols", protocol, PROTOCOLS)
        if spec.protocol not in protocols or len({*protocols}) < len(protocols):
            raise InputError(f"protocols must name {spec.protocol} and each protocol once")
        if record["hard"] is not None:
            text("hard", record["hard"])
        if "sweep" in record:
            sweep = table("sweep", record["sweep"], ("setting", "values"))
            values = items("sweep.values", sweep["values"], least=1, most=MOST_VALUES)
            setting = text("sweep.setting", sweep["setting"])
            make_sweep(setting, tuple(_value(value) for value in values)).variants(spec)
    return record


def _value(value: Any) -> float:
    """A sweep's value; whole ones stay so, as captions show them."""
    number("sweep.values", value)
    return value


def check_sessions(path: Path, environment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sessions that `environment.json` tells of."""
    with about(path):
        sessions = items("sessions", environment.get("sessions"))
        for session in sessions:
            told = table("sessions", session, ("device", "date", "command"))
            for word in items("command", told["command"], least=1):
                text("command", word)
            for name in ("cores", "threads"):
                whole(name, told.get(name) or 0)
            for name in ("device", "date", "calmoe", "commit", "python", "torch"):
                text(name, told.get(name) or "")
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


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of `results.jsonl`."""
    rows = []
    with open_regular(path) as stream:
        data = stream.read(MOST_OF_ROWS + 1)
    if len(data) > MOST_OF_ROWS:
        raise InputError(f"{path} is longer than {MOST_OF_ROWS:,} bytes")
    for at, line in enumerate(data.splitlines(), start=1):
        with about(f"{path}, line {at}"):
            rows.append(_row(parse_json(line)))
    return rows


def are_of(rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> bool:
    """Whether the rows are of the run or sweep that the record tells of, none twice."""
    spec, sweep = record["spec"], record.get("sweep", {"setting": None, "values": [None]})
    named = {
        (sweep["setting"], value, method, seed, protocol)
        for value in sweep["values"]
        for method in spec["methods"]
        for seed in spec["seeds"]
        for protocol in record["protocols"]
    }
    there = [(r.get("setting"), r.get("value"), r["method"], r["seed"], r["protocol"]) for r in rows]
    return len({*there}) == len(there) and named.issuperset(there)


def _row(row: Any) -> dict[str, Any]:
    table("row", row, ("method", "seed", "protocol", "temperature", "temperature_status", "n", *SCORES))
    one_of("method", row["method"], METHODS)
    one_of("protocol", row["protocol"], PROTOCOLS)
    whole("seed", row["seed"])
    number("temperature", row["temperature"])
    one_of("temperature_status", row["temperature_status"], [s for of in STATUSES.values() for s in of])
    whole("n", row["n"], least=1)
    whole("n_hard", row.get("n_hard", 0), most=row["n"])
    for value in items("temperatures", row.get("temperatures", [])):
        number("temperatures", value)
    if {"setting", "value"} & row.keys():
        table("row", row, ("setting", "value", "batch"))
        one_of("setting", row["setting"], KINDS)
        number("value", row["value"])
        whole("batch", row["batch"], least=1)
    for name, value in row.items():
        if name in TILT:
            _logged(name, value)
        metric = next((metric for metric in MOST if metric in name.split("_")), None)
        if metric and value is not None:
            number(name, value, least=-1e-3, most=MOST[metric])
    groups = row.get("worst_group")
    for name in table("worst_group", groups) if groups is not None else ():
        text(f"worst_group.{name}", groups[name] or "")
    return row


def _logged(name: str, value: Any) -> None:
    number(name, value, **({"above": TILT[name]} if name in TILT else {}))
