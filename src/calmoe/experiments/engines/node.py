"""Train one node of a plan in its folder, from its checkpoint, its warm-up or the seed's weights."""

from typing import Protocol

from calmoe.errors import InputError
from calmoe.experiments.plan import Node
from calmoe.experiments.store import RunFolder
from calmoe.methods import card
from calmoe.models.inputs import dataset_inputs, inputs_as_dict
from calmoe.predictions import Predictions
from calmoe.training.trainer import Diverged, Trainer


class Onlooker(Protocol):
    """Who is told how a node gets on."""

    def begin(self, node: Node, epoch: int) -> None:
        """`node` starts, or goes on after `epoch` epochs."""

    def epoch(self, node: Node, epoch: int, horizon: int, entry: dict[str, float]) -> None:
        """`node` has trained `epoch` of `horizon` epochs; what this raises ends it, after a checkpoint."""


def train_node(
    node: Node, trainer: Trainer, folder: RunFolder, onlooker: Onlooker, keep_weights: bool
) -> None:
    """Train the node, or the rest of it, and seal what it leaves in the folder, if only that it diverged."""
    trainer = trainer.for_settings(node.model, node.training)
    times: dict[float, dict[str, float]] = {}

    def watch(epoch: int, entry: dict[str, float]) -> None:
        times[epoch + 1] = {"seconds": entry["seconds"]}
        onlooker.epoch(node, epoch + 1, node.training.epochs, entry)

    checkpoints = folder.begin(node)
    state = folder.state(node) or trainer.initial_state(node.stage.head, node.seed)
    try:
        trainer.check_state(node.stage.head, state)
    except InputError as error:
        raise InputError(
            f"{checkpoints}: the saved state here, or its warm-up's, does not fit the model ({error})"
        ) from None
    onlooker.begin(node, state.epoch)
    try:
        state = trainer.train(node.stage, node.seed, state, checkpoints, watch, node.training)
    except Diverged as error:
        folder.give_up(node, str(error))
        raise
    if node.method is None:
        folder.finish_warmup(node, state)
        return
    history = [entry | times.get(entry["epoch"], {}) for entry in state.history]
    head, views = node.stage.head, node.training.views
    final = trainer.averaged(state, head, node.seed) if node.training.average else state
    predictions = trainer.predict(final, head, views)
    if card(node.method).pools_views:
        predictions = _pooled_alone(predictions)
    elif node.training.average:
        last = trainer.predict(state, head, views)
        predictions |= {f"last_{split}": last[split] for split in last if split != "validation_augmented"}
    inputs = inputs_as_dict(dataset_inputs(trainer.dataset))
    folder.finish_method(node, final, predictions, history, keep_weights, inputs)


def _pooled_alone(predictions: dict[str, Predictions]) -> dict[str, Predictions]:
    """What is pooled over views stands for the splits themselves."""
    splits = (split for split in predictions if not split.startswith("views_"))
    return {split: predictions.get(f"views_{split}", predictions[split]) for split in splits}
