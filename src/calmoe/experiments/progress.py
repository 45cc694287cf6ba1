"""What a run shows while it trains: a bar on a terminal, one line an epoch elsewhere."""

import math
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from calmoe.experiments.plan import Node


class TimeUp(Exception):
    """The time limit was reached; all that was trained is saved."""


class Watcher:
    """Shows epochs as they pass, and ends the run when its time is up."""

    def __init__(self, console: Console, total: int, time_limit: float | None = None) -> None:
        self.console = console
        self.deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        self.bar = Progress(*columns, console=console) if console.is_terminal else None
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

    def begin(self, node: Node, epoch: int) -> None:
        """`node` starts, or goes on after `epoch` epochs."""
        if self.bar and self.task is not None:
            self.bar.update(self.task, description=str(node), advance=epoch - node.stage.start)

    def epoch(self, node: Node, epoch: int, horizon: int, loss: float, seconds: float) -> None:
        """`node` has trained `epoch` of `horizon` epochs."""
        if self.bar and self.task is not None:
            self.bar.update(self.task, description=f"{node}  loss {loss:.3f}", advance=1)
        else:
            self.console.print(f"{node} epoch {epoch}/{horizon} loss {loss:.3f} {seconds:.1f} s")
        if time.monotonic() > self.deadline:
            raise TimeUp
