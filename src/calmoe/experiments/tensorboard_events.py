"""TensorBoard events of a training: a curve per logged quantity, a run per method and seed."""

from pathlib import Path
from typing import Any

from calmoe.errors import InputError
from calmoe.experiments.plan import Node


class Events:
    """TensorBoard events: a curve per logged quantity, a run per method and seed."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("--tensorboard needs tensorboard: pip install 'calmoe[tensorboard]'") from None
        self.make = lambda name: SummaryWriter(folder / name)
        self.writers: dict[str, Any] = {}

    def add(self, node: Node, epoch: int, entry: dict[str, float]) -> None:
        name = str(node).replace(" ", "-")
        if name not in self.writers:
            self.writers[name] = self.make(name)
        for quantity, value in entry.items():
            if quantity != "epoch":
                self.writers[name].add_scalar(quantity, value, epoch)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
