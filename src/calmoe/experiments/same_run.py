"""Compare the records of two runs: may they share a folder or a report, and if not, why?

Two commands share a folder only if their records agree in all but methods, seeds and a sweep's points.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calmoe.errors import InputError
from calmoe.experiments.plugins import united_plugins
from calmoe.experiments.record import Record
from calmoe.experiments.spec import dotted, setting_text
from calmoe.methods import in_order

CHOOSE_DATA = ("dataset", "target", "protocol")
APART = ("spec", "added", "plugins")  # of a record: compared by other means, or free to differ
FOLLOW_FROM_DATA = ("training_fingerprint", "protocols", "hard")
DIGESTS = {  # of contents: their digits mean nothing to a reader
    "fingerprint": "the data differ: other images or texts than {those}",
    "weights": "the weights differ: other weights than {those}",
}


def joined(path: Path, old: Record | None, new: Record) -> Record:
    """The folder's record with the new methods, seeds and points added; another run's is refused."""
    if old is None:
        return new
    refuse_other(path, old, new)
    methods = in_order([*old.spec.methods, *new.spec.methods])
    seeds = tuple(sorted({*old.spec.seeds, *new.spec.seeds}))
    sweep = old.sweep.merged(new.sweep) if old.sweep and new.sweep else new.sweep
    spec = replace(new.spec, methods=methods, seeds=seeds)
    plugins = united_plugins(old.plugins, new.plugins)
    return replace(new, spec=spec, sweep=sweep, added=old.added, plugins=plugins)


def refuse_other(path: Path, old: Record, new: Record) -> None:
    """Refuse a command that asks for another run than the folder's."""
    there, here = comparable(old), comparable(new)
    differing = differences(there, here)
    if "sweep" in differing:
        kinds = [
            f"a sweep of {', '.join(record.sweep.settings)}" if record.sweep else "a run"
            for record in (old, new)
        ]
        raise InputError(f"{path} holds {kinds[0]}, not {kinds[1]}: give another --out")
    if differing:
        reasons = causes(differing)
        settings = [_option(n, there.get(n)) for n in reasons if n.startswith(("model.", "training."))]
        again = f"to use it, repeat {' '.join(settings)}; or " if len(settings) == len(reasons) else ""
        named = reasons if again else reasons[:3]
        listed = "; ".join(_difference(name, there.get(name), here.get(name)) for name in named)
        raise InputError(f"{path} holds another run ({listed}): {again}give another --out")


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The names whose values differ, or that only one has."""
    return [name for name in {**second, **first} if first.get(name) != second.get(name)]


def comparable(record: Record) -> dict[str, Any]:
    """Dotted names and values of all that must agree; of pretrained weights, the content and not the path."""
    model = replace(record.spec.model, weights="")
    training = replace(record.spec.training, sharding="none")  # where weights lie changes none of them
    spec = replace(record.spec, methods=(), seeds=(), keep_weights=True, model=model, training=training)
    rest = {name: value for name, value in record.as_json().items() if name not in APART}
    table = dotted({**spec.as_table(), **rest, "sweep": record.swept, "weights": record.weights})
    return table | {"training.batch_norm": training.batch_norm}


def causes(differing: Sequence[str]) -> list[str]:
    """Of names that differ, those that say why: another target has other data, and these another digest.

    >>> causes(["training_fingerprint", "fingerprint", "target"])
    ['target']
    """
    asked = [name for name in differing if name not in (*DIGESTS, *FOLLOW_FROM_DATA)]
    chosen = [name for name in asked if name in CHOOSE_DATA]
    digests = [name for name in DIGESTS if name in differing and not (chosen and name == "fingerprint")]
    return [*asked, *digests] or list(differing)


def _difference(name: str, there: Any, here: Any) -> str:
    if name == "weights" and not (there and here):
        return f"the weights differ: {'some' if there else 'none'} there, {'some' if here else 'none'} here"
    if name in DIGESTS:
        return DIGESTS[name].format(those="those this folder was trained on")
    return f"{name} is {there!r} there, {here!r} here"


def _option(name: str, value: Any) -> str:
    """The option that sets it.

    >>> _option("model.hidden", [16]), _option("training.forget_moments", False)
    ("--set 'hidden=[16]'", '--set forget_moments=false')
    """
    key = name.rpartition(".")[2]
    return f"--set {shlex.quote(f'{key}={setting_text(value)}')}"
