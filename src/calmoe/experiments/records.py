"""Which run a folder holds: two commands share a folder only if all but their methods and seeds agree."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from calmoe.data import PROTOCOLS, ShiftDataset, load_dataset
from calmoe.errors import InputError
from calmoe.experiments.methods import in_order
from calmoe.experiments.plan import TRAINING_VERSION, Node, make_plan
from calmoe.experiments.spec import RunSpec, from_table
from calmoe.experiments.store import RunFolder

Record = dict[str, Any]


def describe_run(spec: RunSpec, dataset: ShiftDataset, data: Path | None, device: str) -> Record:
    """What `spec.json` holds. `protocols` are those under which the same models may be judged."""
    own = dataset.training_fingerprint()
    protocols = [
        protocol
        for protocol in PROTOCOLS
        if protocol == spec.protocol
        or load_dataset(spec.dataset, data, protocol).training_fingerprint() == own
    ]
    record = {
        "spec": asdict(spec),
        "device": device,
        "training_version": TRAINING_VERSION,
        "fingerprint": dataset.fingerprint(),
        "training_fingerprint": own,
        "protocols": protocols,
        "hard": dataset.hard,
    }
    return json.loads(json.dumps(record))


def join(folder: RunFolder, record: Record) -> Record:
    """The folder's record with the new methods and seeds added; another run's folder is refused."""
    old = folder.record()
    if old is not None:
        _refuse_other(folder, _flat(old), _flat(record))
        methods = in_order([*old["spec"]["methods"], *record["spec"]["methods"]])
        seeds = sorted({*old["spec"]["seeds"], *record["spec"]["seeds"]})
        record = {**record, "spec": {**record["spec"], "methods": list(methods), "seeds": seeds}}
    if record != old:
        folder.write_record(record)
    return record


def recorded(folder: RunFolder, spec: RunSpec) -> Record:
    """The folder's record, if it is of this spec; data and device are what they were there."""
    old = folder.record()
    if old is None:
        raise InputError(f"there is no run in {folder.path}: leave out --only-report to start one")
    _refuse_other(folder, _flat({"spec": old["spec"]}), _flat({"spec": asdict(spec)}))
    return old


def plan_of(spec: RunSpec, record: Record) -> list[Node]:
    """The nodes as the folder's own trainer keyed them: reports read what an older one trained."""
    version = record.get("training_version", 1)
    return make_plan(spec, record["training_fingerprint"], record["device"], version)


def _flat(record: Record) -> dict[str, Any]:
    """Dotted names and values of all that must agree."""
    spec = asdict(replace(from_table(record["spec"]), methods=(), seeds=(), keep_weights=True))
    flat: dict[str, Any] = {}
    for name, value in {**spec, **record, "spec": {}}.items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _refuse_other(folder: RunFolder, there: dict[str, Any], here: dict[str, Any]) -> None:
    differing = [name for name in here if here[name] != there.get(name)]
    if differing:
        listed = "; ".join(
            f"{name} is {there.get(name)!r} there, {here[name]!r} here" for name in differing[:3]
        )
        raise InputError(f"{folder.path} holds another run ({listed}): give another --out")
