"""Which run a folder holds: two commands share a folder only if all but methods, seeds and values agree."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from calmoe.data import PROTOCOLS, ShiftDataset
from calmoe.errors import InputError, shown
from calmoe.experiments.plan import TRAINING_VERSION, Node, make_plan, merge
from calmoe.experiments.spec import RunSpec, from_table, setting_text
from calmoe.experiments.store import SPEC, RunFolder
from calmoe.experiments.sweep import Sweep, make_sweep
from calmoe.files import is_name
from calmoe.methods import in_order
from calmoe.training import check_weights

Record = dict[str, Any]
CHOOSE_DATA = ("dataset", "target", "protocol")
OF_DATA = ("training_fingerprint", "protocols", "hard")  # what is another where the data are
DIGESTS = {  # of contents: their digits tell nobody anything
    "fingerprint": "the data differ: other images or texts than {those}",
    "weights": "the weights differ: other weights than {those}",
}


def describe_run(spec: RunSpec, dataset: ShiftDataset, device: str, sweep: Sweep | None = None) -> Record:
    """What `spec.json` holds. `protocols` are those under which the same models may be judged."""
    weights = check_weights(spec.model, dataset.input_shape) if spec.model.weights else ""
    record = {
        "spec": asdict(spec),
        "device": device,
        "training_version": TRAINING_VERSION,
        "fingerprint": dataset.fingerprint(),
        "training_fingerprint": dataset.training_fingerprint(),
        "protocols": PROTOCOLS if dataset.one_training else [spec.protocol],
        "hard": dataset.hard,
    }
    if weights:
        record["weights"] = weights
    if sweep is not None:
        record["sweep"] = sweep.asdict()
    return json.loads(json.dumps(record))


def join(folder: RunFolder, record: Record) -> Record:
    """The folder's record with the new methods and seeds added, written; another run's is refused."""
    whole = joined(folder, record)
    if whole != folder.record():
        folder.write_record(whole)
    return whole


def joined(folder: RunFolder, record: Record) -> Record:
    """What `join` writes."""
    old = folder.record()
    if old is not None:
        _refuse_other(folder, flat(old), flat(record))
        methods = in_order([*old["spec"]["methods"], *record["spec"]["methods"]])
        seeds = sorted({*old["spec"]["seeds"], *record["spec"]["seeds"]})
        record = {**record, "spec": {**record["spec"], "methods": list(methods), "seeds": seeds}}
        before, now = sweep_of(old), sweep_of(record)
        if before and now:
            record["sweep"] = before.merged(now).asdict()
    return record


def recorded(folder: RunFolder, spec: RunSpec, sweep: Sweep | None = None) -> Record:
    """The folder's record, if it is of this spec and sweep; data and device are what they were there."""
    old = folder.record()
    if old is None:
        raise InputError(f"there is no run in {folder.path}: leave out --only-report to start one")
    here = {"spec": asdict(spec)} | ({"sweep": sweep.asdict()} if sweep else {})
    _refuse_other(folder, flat({name: old[name] for name in ("spec", "sweep") if name in old}), flat(here))
    return old


def recorded_spec(path: Path, dataset: str) -> tuple[RunSpec | None, Sweep | None]:
    """What the folder holds of this dataset, for those who ask for nothing else."""
    record = RunFolder(path).record()
    if record is None or record["spec"]["dataset"] != dataset:
        return None, None
    return from_table(record["spec"]), sweep_of(record)


def record_of(path: Path) -> Record:
    """The record of a folder that must hold a run or a sweep."""
    record = RunFolder(path).record()
    if record is None:
        raise InputError(f"{path} is not a run folder: it has no {SPEC}; `calmoe run` makes one")
    target = record["spec"].get("target")
    if target and not is_name(target):  # a report on targets has a folder of this name
        raise InputError(f"{path / SPEC}: target {shown(target)} is no name for a folder")
    return record


def sweep_of(record: Record) -> Sweep | None:
    """The sweep that the folder holds, if it is none of a single spec."""
    found = record.get("sweep")
    return make_sweep(found["setting"], tuple(found["values"])) if found else None


def plans_of(spec: RunSpec, record: Record, sweep: Sweep | None = None) -> dict[float | None, list[Node]]:
    """By value of the sweep (None where there is none): the nodes, as the folder's own trainer keyed them.

    Reports thus read what an older trainer left. Pretrained weights count by content, wherever they lay.
    """
    version, weights = record.get("training_version", 1), record.get("weights", "")
    variants = [*sweep.variants(spec).items()] if sweep else [(None, spec)]
    return {
        value: make_plan(variant, record["training_fingerprint"], record["device"], version, weights)
        for value, variant in variants
    }


def plan_of(spec: RunSpec, record: Record, sweep: Sweep | None = None) -> list[Node]:
    """All these nodes, each once; parents first."""
    plans = plans_of(spec, record, sweep)
    return merge({sweep.label(v) if sweep and v is not None else "": plan for v, plan in plans.items()})


def flat(record: Record) -> dict[str, Any]:
    """Dotted names and values of all that must agree; of pretrained weights, the content and not the path."""
    asked = from_table(record["spec"])
    model = replace(asked.model, weights="")
    spec = asdict(replace(asked, methods=(), seeds=(), keep_weights=True, model=model))
    swept = record.get("sweep", {}).get("setting")
    return dotted({**spec, **record, "spec": {}, "sweep": swept, "weights": record.get("weights", "")})


def dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """Tables within the table by dotted names.

    >>> dotted({"seeds": [42], "model": {"experts": 4}})
    {'seeds': [42], 'model.experts': 4}
    """
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= (
            {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
        )
    return found


def telling(differing: Sequence[str]) -> list[str]:
    """Of names that differ, those that say why: another target has other data, and these another digest.

    >>> telling(["training_fingerprint", "fingerprint", "target"])
    ['target']
    """
    asked = [name for name in differing if name not in (*DIGESTS, *OF_DATA)]
    chosen = [name for name in asked if name in CHOOSE_DATA]
    digests = [name for name in DIGESTS if name in differing and not (chosen and name == "fingerprint")]
    return [*asked, *digests] or list(differing)


def _difference(name: str, there: Any, here: Any) -> str:
    if name == "weights" and not (there and here):
        return f"the weights differ: {'some' if there else 'none'} there, {'some' if here else 'none'} here"
    if name in DIGESTS:
        return DIGESTS[name].format(those="those this folder was trained on")
    return f"{name} is {there!r} there, {here!r} here"


def _refuse_other(folder: RunFolder, there: dict[str, Any], here: dict[str, Any]) -> None:
    differing = [name for name in here if here[name] != there.get(name)]
    if "sweep" in differing:
        kinds = [f"a sweep of {s}" if s else "a run" for s in (there.get("sweep"), here["sweep"])]
        raise InputError(f"{folder.path} holds {kinds[0]}, not {kinds[1]}: give another --out")
    if differing:
        told = telling(differing)
        settings = [_setting(name, there[name]) for name in told if name.startswith(("model.", "training."))]
        again = f"to use it, repeat {' '.join(settings)}; or " if len(settings) == len(told) else ""
        shown = told if again else told[:3]
        listed = "; ".join(_difference(name, there.get(name), here[name]) for name in shown)
        raise InputError(f"{folder.path} holds another run ({listed}): {again}give another --out")


def _setting(name: str, value: Any) -> str:
    """The option that sets it.

    >>> _setting("model.hidden", [16]), _setting("training.forget_moments", False)
    ("--set 'hidden=[16]'", '--set forget_moments=false')
    """
    _, _, key = name.partition(".")
    return f"--set {shlex.quote(f'{key}={setting_text(value)}')}"


def portable(value: Any) -> Any:
    """Paths without the folders that one machine has, also inside of tables and lists; all else as it is.

    >>> portable({"command": ["run", "--data", "/home/me/PACS"], "seeds": [42]})
    {'command': ['run', '--data', 'PACS'], 'seeds': [42]}
    """
    if isinstance(value, dict):
        return {name: portable(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [portable(inside) for inside in value]
    return re.sub(r'(^|=|")/.*/', r"\1", value) if isinstance(value, str) else value
