"""Watch a run train: show how far it is, and end the run when its time is up."""

import math
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import MofNCompleteColumn, TaskID, TimeRemainingColumn

from calmoe.experiments.plan import Node
from calmoe.experiments.tensorboard_events import Events
from calmoe.progress_bar import Lines, progress_bar

MOST_ROWS = 16  # nodes that have a bar of their own


class TimeUp(Exception):
    """The time limit was reached; all that was trained is saved."""


class Watcher:
    """Shows how far the run is, and ends it when its time is up.

    A terminal has a bar over all epochs, and one for each node that is trained now. Elsewhere the first epoch
    has a line, then a node's last, and one now and then.
    """

    def __init__(
        self, console: Console, total: int, deadline: float = math.inf, events: Events | None = None
    ) -> None:
        self.events = events
        self.deadline = deadline  # by time.monotonic
        self.console = console
        self.lines = Lines(console, at_once=True)  # so that the first epoch has one
        columns = MofNCompleteColumn(), TimeRemainingColumn()
        self.bar = progress_bar(*columns, console=console) if console.is_terminal else None
        self.task = self.bar.add_task("epochs", total=total) if self.bar else None
        self.rows: dict[str, TaskID] = {}  # of the bar, by key of the node
        self.epochs: dict[str, int] = {}  # trained so far, by key

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
        if self.bar and len(self.rows) < MOST_ROWS:
            self.rows[node.key] = self.bar.add_task(str(node), total=node.epochs)
        self._advance(node, epoch)

    def epoch(self, node: Node, epoch: int, horizon: int, entry: dict[str, float]) -> None:
        """`node` has trained `epoch` of `horizon` epochs; `entry` is what the last one logged."""
        loss = f"loss {entry['loss']:.3f}"
        self._advance(node, epoch, loss)
        line = f"{node} epoch {epoch}/{horizon} {loss} {entry['seconds']:.2f} s an epoch"
        self.lines.offer(line, always=epoch == node.stage.end)
        if self.events:
            self.events.add(node, epoch, entry)
        if time.monotonic() > self.deadline:
            raise TimeUp

    def end(self, node: Node) -> None:
        """`node` is trained no more: it is done, or it failed."""
        if self.bar and node.key in self.rows:
            self.bar.remove_task(self.rows.pop(node.key))

    def _advance(self, node: Node, epoch: int, loss: str = "") -> None:
        trained = epoch - node.stage.start
        before, self.epochs[node.key] = self.epochs.get(node.key, 0), trained
        if self.bar and self.task is not None:
            self.bar.update(self.task, advance=trained - before)
        if self.bar and node.key in self.rows:
            self.bar.update(self.rows[node.key], description=f"{node}  {loss}", completed=trained)
