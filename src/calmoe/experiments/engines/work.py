"""What an engine must know to train a run's nodes, and the engine's own side of it: `Engine`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch

import calmoe
from calmoe.data import ShiftDataset, load_dataset
from calmoe.errors import InputError
from calmoe.experiments.plan import TRAINING_VERSION, Node
from calmoe.experiments.plugins import check_here, plugins_of
from calmoe.experiments.run import Run
from calmoe.experiments.spec import RunSpec, from_table
from calmoe.experiments.watcher import Watcher
from calmoe.origins import SESSION
from calmoe.plugins import load_plugin
from calmoe.training.building import check_weights
from calmoe.training.ranks import ALONE, Ranks
from calmoe.training.settings import ModelSettings, Stage, TrainingSettings
from calmoe.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Work:
    """A run to train: its spec, its data, and how. `threads` is of each node, whoever trains it."""

    spec: RunSpec
    dataset: ShiftDataset
    data: Path | None
    device: torch.device
    threads: int
    checkpoint_seconds: float | None = None  # of training between two checkpoints; None: the trainer's own
    ranks: Ranks = ALONE

    @cached_property
    def trainer(self) -> Trainer:
        """Made once: a study trains point after point with it."""
        often = {} if self.checkpoint_seconds is None else {"checkpoint_seconds": self.checkpoint_seconds}
        model, training = self.spec.model, self.spec.training
        return Trainer(self.dataset, model, training, self.device, **often, ranks=self.ranks)

    def as_text(self, weights: str) -> str:
        """JSON from which another process makes the same work with `from_text`.

        weights: the digest of pretrained weights that the nodes' keys hold.
        """
        plugins = plugins_of(self.spec)
        for plugin in plugins:
            if plugin.origin == SESSION:
                raise InputError(
                    f"the {plugin} was registered in this session, where no other process finds it: "
                    "put it into a file and load that with --plugin or calmoe.plugins.load_plugin"
                )
        model = replace(self.spec.model, weights=_absolute(self.spec.model.weights))
        return json.dumps(
            {
                "spec": replace(self.spec, model=model, seeds=self.spec.seeds[:1]).as_table(),
                "weights": weights,
                "data": None if self.data is None else str(self.data.absolute()),
                "device": self.device.type,
                "threads": self.threads,
                "checkpoint_seconds": self.checkpoint_seconds,
                "training_fingerprint": self.dataset.training_fingerprint(),
                "fingerprint": self.dataset.fingerprint(),
                "plugins": [[str(plugin), plugin.origin, plugin.digest] for plugin in plugins],
                "version": _version(),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> "Work":
        """The same work, with this process's own copy of code and data; both must be what they were there."""
        given = json.loads(text)
        if given["version"] != _version():
            raise InputError(f"a worker has {_version()}, not {given['version']}: install the same calmoe")
        for origin in dict.fromkeys(origin for _, origin, _ in given["plugins"] if origin.endswith(".py")):
            load_plugin(origin)
        spec = from_table(given["spec"])
        check_here(spec)
        here = [[str(plugin), plugin.origin, plugin.digest] for plugin in plugins_of(spec)]
        for plugin in given["plugins"]:
            if plugin not in here:
                raise InputError(f"a worker has other code for the {plugin[0]}: it must be the same for all")
        data = None if given["data"] is None else Path(given["data"])
        dataset = load_dataset(spec.dataset, data, spec.protocol, spec.target, spec.model.weights)
        for name in ("training_fingerprint", "fingerprint"):
            if getattr(dataset, name)() != given[name]:
                raise InputError("a worker has other data than this machine: they must be the same for all")
        if spec.model.weights and check_weights(spec.model, dataset.input_shape) != given["weights"]:
            raise InputError("a worker has other weights than this machine: they must be the same for all")
        return cls(
            spec=spec,
            dataset=dataset,
            data=data,
            device=torch.device(given["device"]),
            threads=given["threads"],
            checkpoint_seconds=given["checkpoint_seconds"],
        )


class Engine(Protocol):
    """Who trains the nodes of a plan."""

    def device(self, name: str) -> torch.device:
        """The device that "auto", "cpu" or "cuda" means where this engine trains."""

    def session(self, device: torch.device) -> dict[str, Any]:
        """Who trains, for `environment.json`."""

    def train(self, nodes: Sequence[Node], work: Work, opened: Run, watcher: Watcher) -> dict[str, str]:
        """Train the nodes, parents first, into the folder; return what failed by name, with the reason.

        A TimeUp ends it early, with checkpoints of all that was begun.
        """


def node_as_json(node: Node) -> dict[str, Any]:
    """The node as plain values, for a process that has no plan."""
    return asdict(node)


def node_from_json(values: dict[str, Any]) -> Node:
    """The node that `node_as_json` wrote."""
    parent = values["parent"]
    return Node(
        **{
            **values,
            "parent": None if parent is None else node_from_json(parent),
            "stage": Stage(**values["stage"]),
            "model": ModelSettings(**{**values["model"], "hidden": tuple(values["model"]["hidden"])}),
            "training": TrainingSettings(**values["training"]),
        }
    )


def _absolute(weights: str) -> str:
    """Where the weights lie, for a process in another folder; a name on the hub stays as it is."""
    path = Path(weights).expanduser()
    return str(path.absolute()) if weights and path.exists() else weights


def _version() -> str:
    return f"calmoe {calmoe.__version__} (training version {TRAINING_VERSION}) with torch {torch.__version__}"
