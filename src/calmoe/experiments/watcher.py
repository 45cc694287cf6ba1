"""Watch a run train: show how far it is, and end the run when its time is up."""

import math
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from calmoe.experiments.plan import Node
from calmoe.experiments.tensorboard_events import Events
from calmoe.progress_bar import progress_bar

QUIET = 30.0  # seconds after which the next epoch has a line, where there is no terminal


class TimeUp(Exception):
    """The time limit was reached; all that was trained is saved."""


class Watcher:
    """Shows how far the run is, and ends it when its time is up.

    A terminal has a bar. Elsewhere the first epoch has a line, then a node's last, and one now and then.
    """

    def __init__(
        self, console: Console, total: int, deadline: float = math.inf, events: Events | None = None
    ) -> None:
        self.console = console
        self.events = events
        self.deadline = deadline  # by time.monotonic
        self.last_line = -math.inf  # so that the first epoch has one
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
        elif epoch == node.stage.end or time.monotonic() - self.last_line >= QUIET:
            self.console.print(f"{node} epoch {epoch}/{horizon} {loss} {entry['seconds']:.1f} s")
            self.last_line = time.monotonic()
        if self.events:
            self.events.add(node, epoch, entry)
        if time.monotonic() > self.deadline:
            raise TimeUp
