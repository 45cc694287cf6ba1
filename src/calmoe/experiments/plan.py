"""The plan is a tree: each seed's mixtures share one ERM warm-up, then fork; a node's key says what it is."""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.tree import Tree

from calmoe.experiments.methods import METHODS, in_order, source
from calmoe.experiments.spec import RunSpec
from calmoe.report.tables import METHODS as TITLES
from calmoe.training.settings import Stage

TRAINING_VERSION = 2  # raise it when the trainer's results change: finished nodes then count no more
ALWAYS = ("epochs", "batch", "learning_rate", "weight_decay", "precision")  # `epochs`: the cosine's horizon
OF_OBJECTIVE = {
    "erm": (),
    "tilted": ("eta",),
    "filtered": ("eta", "regret", "disagreement"),
    "entropic": ("eta",),
    "cvar": ("gamma",),
}
OF_RECTIFIED = ("filter_fraction", "filter_variant")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One stage of training for one seed; a warm-up has no method and is no result of its own."""

    key: str
    parent: "Node | None"
    stage: Stage
    seed: int
    method: str | None

    @property
    def epochs(self) -> int:
        return self.stage.end - self.stage.start

    def __str__(self) -> str:
        return f"seed {self.seed} {self.method or 'warm-up'}"


def make_plan(
    spec: RunSpec, training_fingerprint: str, device: str, version: int = TRAINING_VERSION
) -> list[Node]:
    """All nodes that the spec's methods and seeds need, parents first, one seed after the other.

    >>> from calmoe.experiments.spec import load_preset
    >>> sum(node.epochs for node in make_plan(load_preset("digits"), "", "cpu") if node.seed == 42)
    220
    """
    data = {"data": training_fingerprint, "device": device, "version": version}
    nodes = []
    for seed in spec.seeds:
        warmup = None
        for name in in_order(source(name) for name in spec.methods):
            method = METHODS[name]
            shared = spec.training.warmup if method.head == "mixture" else 0
            if shared and warmup is None:
                warmup = _node(spec, data, seed, METHODS["vanilla"].stage(0, shared), None, None)
                nodes.append(warmup)
            parent = warmup if shared else None
            nodes.append(_node(spec, data, seed, method.stage(shared, spec.training.epochs), parent, name))
    return nodes


def to_do(nodes: Sequence[Node], done: Collection[str]) -> list[Node]:
    """The nodes still to train: unfinished methods, and the unfinished warm-ups they fork from."""
    open_leaves = [node for node in nodes if node.method and node.key not in done]
    needed = {node.parent.key for node in open_leaves if node.parent} | {node.key for node in open_leaves}
    return [node for node in nodes if node.key in needed and node.key not in done]


def leaves(nodes: Sequence[Node]) -> dict[tuple[str, int], Node]:
    """Trained methods by (method, seed)."""
    return {(node.method, node.seed): node for node in nodes if node.method}


def unshared_epochs(nodes: Sequence[Node]) -> int:
    """What the same results would cost if nothing were shared."""
    return sum(node.stage.end for node in nodes if node.method)


def draw(nodes: Sequence[Node], done: Collection[str], title: str) -> Tree:
    """The plan, with what sharing saves and what is left to do."""
    remaining = to_do(nodes, done)
    left = sum(node.epochs for node in remaining)
    tree = Tree(f"{title}: {_saving(nodes)}; {left} to do in {len(remaining)} nodes")
    for seed in dict.fromkeys(node.seed for node in nodes):
        of_seed = [node for node in nodes if node.seed == seed]
        branch = tree.add(f"seed {seed}: {_saving(of_seed)}")
        branches = {node.key: branch.add(_line(node, done)) for node in of_seed if node.parent is None}
        for node in of_seed:
            if node.parent is not None:
                branches[node.parent.key].add(_line(node, done))
    return tree


def _saving(nodes: Sequence[Node]) -> str:
    shared, unshared = sum(node.epochs for node in nodes), unshared_epochs(nodes)
    return f"{unshared} epochs become {shared}" if shared < unshared else f"{shared} epochs"


def _line(node: Node, done: Collection[str]) -> str:
    name = TITLES.get(node.method, node.method) if node.method else "warm-up (ERM)"
    state = "  [green]done[/]" if node.key in done else ""
    return f"{name}  [dim]epochs {node.stage.start}–{node.stage.end}  {node.key[:8]}[/]{state}"


def _node(
    spec: RunSpec, data: dict[str, Any], seed: int, stage: Stage, parent: Node | None, method: str | None
) -> Node:
    used = (*ALWAYS, *OF_OBJECTIVE[stage.objective], *(OF_RECTIFIED if stage.rectified else ()))
    training = asdict(spec.training)
    facts = {
        **data,
        "model": asdict(spec.model),
        "training": {name: training[name] for name in used},
        "seed": seed,
        "stage": asdict(stage),
        "parent": parent.key if parent else None,
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
    return Node(key=key, parent=parent, stage=stage, seed=seed, method=method)
