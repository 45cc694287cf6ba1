"""The bar that long commands show."""

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from calmoe.launch import follows


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
