"""The plan of a run: a tree of trainings, in which each seed's mixtures share one ERM warm-up, then fork.

A node's key says what it is. The plans of several specs, a sweep's, merge into one: a longer warm-up goes on
where a shorter one ended.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from calmoe.experiments.plugins import Cards, Plugin, plugins_of
from calmoe.experiments.spec import RunSpec
from calmoe.methods import GRADIENTS, Method, in_order, source
from calmoe.training.settings import ModelSettings, Stage, TrainingSettings

TRAINING_VERSION = 2  # raise it when the trainer's results change: finished nodes then count no more
ALWAYS = ("epochs", "batch", "learning_rate", "weight_decay", "precision")  # `epochs`: the cosine's horizon
WARMUPS = {  # ERM, which mixtures share
    "plain": Method(name="warm-up"),
    "sharp": Method(name="sharp warm-up", gradient="sharp"),
}
LATER = {"average": 0.0, "views": 1}  # settings of what follows the warm-up, in a key only where they are on
FIRST_MODEL_SETTINGS = (  # in every key; later settings only where they are not the default
    "backbone", "hidden", "stem", "stages", "variant", "experts", "router_hidden", "routing",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Node:
    """One stage of training for one seed; a warm-up has no method and is no result of its own."""

    key: str
    parent: "Node | None"
    stage: Stage
    seed: int
    method: str | None
    model: ModelSettings  # weights by their digest; in a sweep they differ from node to node, as the next do
    training: TrainingSettings  # of this stage
    value: str = ""  # of the settings that a sweep changes, such as "eta 0.5"

    @property
    def warmup_name(self) -> str:
        return WARMUPS[self.stage.gradient].name

    @property
    def epochs(self) -> int:
        return self.stage.end - self.stage.start

    def __str__(self) -> str:
        return " ".join(filter(None, [f"seed {self.seed}", self.method or self.warmup_name, self.value]))


def make_plan(
    spec: RunSpec,
    training_fingerprint: str,
    device: str,
    version: int = TRAINING_VERSION,
    weights: str = "",
    plugins: Sequence[Plugin] | None = None,
) -> list[Node]:
    """All nodes that the spec's methods and seeds need, parents first, one seed after the other.

    `weights` is the digest of the pretrained weights: keys know their content, not where they lie.
    `plugins` are those that a record names; the spec's own as they are now, if not given.

    >>> from calmoe.experiments.spec import load_preset
    >>> sum(node.epochs for node in make_plan(load_preset("digits"), "", "cpu") if node.seed == 42)
    270
    """
    cards = Cards(plugins_of(spec) if plugins is None else plugins)
    spec = replace(spec, model=replace(spec.model, weights=weights))
    data = {"data": training_fingerprint, "device": device, "version": version}
    if spec.model.backbone == "encoder" and device == "cpu":
        data["texts"] = "by length"  # since then dropout draws differ there
    pairs: list[tuple[_Template | None, _Template]] = []  # a method's warm-up and the method
    for name in in_order(source(name) for name in spec.methods):
        method, trunk = cards.method(name), None
        own = replace(spec, training=replace(spec.training, **method.fixed_with(spec.model.backbone)))
        shared = own.training.warmup if method.head == "mixture" else 0
        if shared:
            warmup = WARMUPS[method.warmup]
            trunk = _template(own, cards, data, warmup, Stage.of(warmup, 0, shared))
        stage = Stage.of(method, shared, own.training.epochs)
        pairs.append((trunk, _template(own, cards, data, method, stage)))
    nodes = []
    for seed in spec.seeds:
        warmups: dict[str, Node] = {}
        for trunk, template in pairs:
            parent = None
            if trunk is not None:
                parent = trunk.node(seed, None)
                if parent.key not in warmups:
                    nodes.append(parent)
                parent = warmups.setdefault(parent.key, parent)
            nodes.append(template.node(seed, parent))
    return nodes


def merge(plans: Mapping[str, Sequence[Node]]) -> list[Node]:
    """One plan out of many by label, those with shorter warm-ups first: each node once, by seed.

    ERM to epoch 10 is ERM to epoch 5 and on: a longer warm-up keeps its key and starts where the next shorter
    one with the same settings ends. A method that only one plan trains carries that plan's label.
    """
    plans_with = Counter(node.key for plan in plans.values() for node in plan)
    once = {
        node.key: replace(node, value=label) if label and node.method and plans_with[node.key] == 1 else node
        for label, plan in plans.items()
        for node in plan
    }
    by_seed: dict[int, list[Node]] = {}
    for node in once.values():
        by_seed.setdefault(node.seed, []).append(node)
    merged: list[Node] = []
    for of_seed in by_seed.values():
        warmups: dict[str, Node] = {}
        shorter: dict[tuple[Any, ...], Node] = {}  # by what the warm-ups are trained with
        for node in sorted((node for node in of_seed if not node.method), key=lambda node: node.stage.end):
            used = (*ALWAYS, *GRADIENTS[node.stage.gradient])
            trained_with = (node.model, node.stage.gradient, *(node.training.value(name) for name in used))
            if parent := shorter.get(trained_with):
                node = replace(node, parent=parent, stage=replace(node.stage, start=parent.stage.end))
            warmups[node.key] = shorter[trained_with] = node
        for node in of_seed:
            trunk = warmups[node.parent.key] if node.parent else None
            forked = node if trunk is node.parent else replace(node, parent=trunk)
            merged.append(warmups.get(node.key, forked))
    return merged


def to_do(nodes: Sequence[Node], done: Collection[str], asked: Sequence[Node] | None = None) -> list[Node]:
    """The nodes still to train for those `asked`: unfinished methods, and the warm-ups they fork from."""
    needed = set()
    for leaf in nodes if asked is None else asked:
        node: Node | None = leaf if leaf.method else None
        while node is not None and node.key not in done:
            needed.add(node.key)
            node = node.parent
    return [node for node in nodes if node.key in needed]


def leaves(nodes: Sequence[Node]) -> dict[tuple[str, int], Node]:
    """Trained methods by (method, seed)."""
    return {(node.method, node.seed): node for node in nodes if node.method}


def _model_facts(model: ModelSettings) -> dict[str, Any]:
    """The settings that determine a model; a setting that came later leaves older keys as they were."""
    defaults = {field.name: field.default for field in fields(model)}
    return {k: v for k, v in asdict(model).items() if k in FIRST_MODEL_SETTINGS or v != defaults[k]}


class _Template(NamedTuple):
    """The node of a method's stage, or of a warm-up, for whatever seed.

    Its key is the digest of all that determines the node: JSON, of which only the parent's key and the seed
    differ from seed to seed. They stand side by side in it; `before` and `after` are the rest.
    """

    before: str
    after: str
    stage: Stage
    method: str | None
    model: ModelSettings
    training: TrainingSettings

    def node(self, seed: int, parent: Node | None) -> Node:
        named = f'"{parent.key}"' if parent else "null"
        facts = f'{self.before}"parent": {named}, "seed": {seed}{self.after}'
        key = hashlib.sha256(facts.encode()).hexdigest()[:32]
        return Node(
            key=key,
            parent=parent,
            stage=self.stage,
            seed=seed,
            method=self.method,
            model=self.model,
            training=self.training,
        )


def _template(spec: RunSpec, cards: Cards, data: dict[str, Any], method: Method, stage: Stage) -> _Template:
    used: tuple[str, ...] = ALWAYS
    is_warmup = method in WARMUPS.values()
    if spec.training.forget_moments and stage.switches:  # keys made before these do not have them
        used += ("forget_moments",)
    if spec.training.batch_norm != "synchronised":
        used += ("batch_norm",)
    if not is_warmup:
        used += tuple(name for name, off in LATER.items() if spec.training.value(name) != off)
    training = {name: spec.training.value(name) for name in used} | cards.training(method, spec.training)
    if training.get("sharp_every") == 1:
        del training["sharp_every"]
    facts = {
        **data,
        "model": _model_facts(spec.model),
        "training": training,
        "seed": 0,
        "stage": stage.facts(),
        "parent": None,
    }
    if code := cards.code(stage, spec.model):  # of plug-ins
        facts["code"] = code
    if data["device"] == "cpu" and spec.model.backbone.startswith("resnet"):
        facts["gradients"] = "laid out as the weights"  # older keys: trained on scrambled ones
    if is_warmup and stage.end == spec.training.epochs:  # Vanilla without a warm-up is as long, no trunk
        facts["warmup"] = True
    before, after = json.dumps(facts, sort_keys=True).split('"parent": null, "seed": 0')
    name = None if is_warmup else method.name
    settings = replace(spec.training, average=0.0, views=1) if is_warmup else spec.training
    return _Template(before, after, stage, name, spec.model, settings)
