"""The console: standard output at a width that tables fit, and lines that cannot steer the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from calmoe.escaping import visible

WIDTH = 150  # of the console where there is no terminal


def make_console() -> Console:
    """Standard output; wide enough for the table where it is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def say(line: str, console: Console, soft_wrap: bool = False) -> None:
    """Print a line as it is: names from files in it are no markup and cannot steer the terminal."""
    console.print(Text(visible(line)), soft_wrap=soft_wrap)


def say_notes(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        say(f"note: {note}", console, soft_wrap=True)
