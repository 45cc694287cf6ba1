"""What long commands show while they work: a bar, or a line now and then where there is no terminal."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from calmoe.launch import follows

QUIET = 30.0  # seconds between two lines, where there is no terminal


def progress_bar(
    *columns: ProgressColumn, console: Console | None = None, transient: bool = False
) -> Progress:
    """A bar after the name of the task and before these columns, shown on a terminal only.

    Of several ranks the first shows it.
    console: standard error unless given; transient: the bar disappears when the work is done.
    """
    console = console or Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=console,
        transient=transient,
        disable=not console.is_terminal or follows(),
    )


class Lines:
    """Prints one of the lines that it is offered every `QUIET` seconds; on a terminal, with its bar, none."""

    def __init__(self, console: Console, at_once: bool = False) -> None:
        self.console = console
        self.last = time.monotonic() - (QUIET if at_once else 0.0)

    def offer(self, line: str, always: bool = False) -> None:
        """Print the line if it is time for one, or `always`."""
        if not self.console.is_terminal and (always or time.monotonic() - self.last >= QUIET):
            self.console.print(line)
            self.last = time.monotonic()
