"""The engine of one process: nodes are trained here, in the order of the plan."""

from collections.abc import Sequence
from typing import Any

import torch

from calmoe.experiments.engines.node import train_node
from calmoe.experiments.engines.work import Work
from calmoe.experiments.environment import describe
from calmoe.experiments.plan import Node
from calmoe.experiments.preparation import pick_device
from calmoe.experiments.run import WARMUP_DIVERGED, Run
from calmoe.experiments.watcher import Watcher
from calmoe.training.trainer import Diverged


class Local:
    """Trains in this process."""

    def device(self, name: str) -> torch.device:
        return pick_device(name)

    def session(self, device: torch.device) -> dict[str, Any]:
        return describe(device)

    def train(self, nodes: Sequence[Node], work: Work, opened: Run, watcher: Watcher) -> dict[str, str]:
        """Train the nodes in order; one that diverges is named, with the reason, and the others go on."""
        trainer = work.trainer
        failed: dict[str, tuple[Node, str]] = {}  # by key: warm-ups of several points have one name
        for node in nodes:
            if node.parent is not None and node.parent.key in failed:
                failed[node.key] = (node, WARMUP_DIVERGED)
                continue
            try:
                train_node(node, trainer, opened.folder, watcher, work.spec.keep_weights)
                opened.note_finished(node)
            except Diverged as error:
                failed[node.key] = (node, str(error))
            watcher.end(node)
        return {str(node): reason for node, reason in failed.values()}
