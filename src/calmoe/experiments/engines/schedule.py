"""Which node is trained next, where several are trained at once; and what becomes of those that fail."""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

from calmoe.experiments.plan import Node
from calmoe.experiments.run import WARMUP_DIVERGED, Run
from calmoe.experiments.watcher import TimeUp, Watcher

PASSES = {"plain": 1, "rectified": 2, "sharp": 2}  # through the model, a step


class Schedule:
    """The nodes of a plan: those that wait, that can begin, that are trained now, and that failed.

    Warm-ups come first, since forks wait for them; then whatever takes longest, so that no worker is left
    with a long node at the end. `retries`: how often a node begins again whose worker died.
    """

    def __init__(self, nodes: Sequence[Node], opened: Run, watcher: Watcher, retries: int) -> None:
        self.opened, self.watcher, self.retries = opened, watcher, retries
        self.order = {node.key: place for place, node in enumerate(nodes)}
        self.forks: dict[str, list[Node]] = {}
        self.ready: list[tuple[bool, int, int, Node]] = []
        self.training: dict[str, Node] = {}
        self.losses: dict[str, int] = {}
        self.reasons: dict[str, tuple[Node, str]] = {}
        self.time_up = False
        for node in nodes:
            if node.parent is not None and node.parent.key in self.order:
                self.forks.setdefault(node.parent.key, []).append(node)
            else:
                self._enqueue(node)

    def _enqueue(self, node: Node) -> None:
        steps = node.epochs * PASSES[node.stage.gradient]
        heapq.heappush(self.ready, (node.method is not None, -steps, self.order[node.key], node))

    @property
    def waits(self) -> bool:
        """Whether a node can begin."""
        return bool(self.ready) and not self.time_up

    def next(self) -> Node:
        """The node to begin now."""
        node = heapq.heappop(self.ready)[-1]
        self.training[node.key] = node
        return node

    def hear(self, node: Node, message: Mapping[str, Any]) -> None:
        """What the worker of a node that is trained now says of it."""
        kind = message["kind"]
        if kind == "began":
            self.watcher.begin(node, message["epoch"])
        elif kind == "epoch":
            try:
                self.watcher.epoch(node, message["epoch"], node.training.epochs, message["entry"])
            except TimeUp:  # the worker knows it, too, and will say so after its checkpoint
                self.time_up = True
        else:
            self._end(node)
            if kind == "finished":
                self.opened.note_finished(node)
                for fork in self.forks.get(node.key, ()):
                    self._enqueue(fork)
            elif kind == "diverged":
                self._fail(node, message["reason"], WARMUP_DIVERGED)
            elif kind == "time up":
                self.time_up = True

    def lost(self, node: Node) -> None:
        """The node's worker died: it begins again from its checkpoint, or has failed."""
        self._end(node)
        self.opened.folder.tidy(node.key)
        self.losses[node.key] = self.losses.get(node.key, 0) + 1
        if self.losses[node.key] <= self.retries:
            self._enqueue(node)
        else:
            times = f"{self.losses[node.key]} times"
            reason = f"its worker died {times} (was memory short?): the same command goes on where it stopped"
            self._fail(node, reason, f"the worker of its warm-up died {times}")

    def failed(self) -> dict[str, str]:
        """What failed and why, by name, in the order of the plan; a TimeUp if time ended before the work."""
        if self.time_up:
            raise TimeUp
        reasons = sorted(self.reasons.items(), key=lambda item: self.order[item[0]])
        return {str(node): reason for _, (node, reason) in reasons}

    def _end(self, node: Node) -> None:
        del self.training[node.key]
        self.watcher.end(node)

    def _fail(self, node: Node, reason: str, reason_of_forks: str) -> None:
        self.reasons[node.key] = (node, reason)
        for fork in self.forks.get(node.key, ()):
            self._fail(fork, reason_of_forks, reason_of_forks)
