"""What a run shows while it trains: a bar on a terminal, one line an epoch elsewhere."""

import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from calmoe.errors import InputError
from calmoe.experiments.plan import Node
from calmoe.progress import progress_bar


class TimeUp(Exception):
    """The time limit was reached; all that was trained is saved."""


class Watcher:
    """Shows epochs as they pass, and ends the run when its time is up."""

    def __init__(
        self, console: Console, total: int, deadline: float = math.inf, events: "Events | None" = None
    ) -> None:
        self.console = console
        self.events = events
        self.deadline = deadline  # by time.monotonic
        columns = MofNCompleteColumn(), TimeRemainingColumn()
        self.bar = progress_bar(*columns, console=console) if console.is_terminal else None
        self.task = self.bar.add_task("epochs", total=total) if self.bar else None

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()
        if self.events:
            self.events.close()

    def begin(self, node: Node, epoch: int) -> None:
        """`node` starts, or goes on after `epoch` epochs."""
        if self.bar and self.task is not None:
            self.bar.update(self.task, description=str(node), advance=epoch - node.stage.start)

    def epoch(self, node: Node, epoch: int, horizon: int, entry: dict[str, float]) -> None:
        """`node` has trained `epoch` of `horizon` epochs; `entry` is what the last one logged."""
        loss = f"loss {entry['loss']:.3f}"
        if self.bar and self.task is not None:
            self.bar.update(self.task, description=f"{node}  {loss}", advance=1)
        else:
            self.console.print(f"{node} epoch {epoch}/{horizon} {loss} {entry['seconds']:.1f} s")
        if self.events:
            self.events.add(node, epoch, entry)
        if time.monotonic() > self.deadline:
            raise TimeUp


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
