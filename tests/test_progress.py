"""The bar: on a terminal only, and gone afterwards where it is transient."""

import io

import pytest
from rich.console import Console
from rich.progress import TimeElapsedColumn

from calmoe.progress_bar import progress_bar


@pytest.mark.parametrize("terminal", [True, False])
def test_it_shows_on_a_terminal_only(terminal):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal)
    with progress_bar(TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("reading", total=2)
        bar.advance(task)
    assert ("reading" in stream.getvalue()) == terminal


def test_by_default_it_goes_to_standard_error(capsys):
    with progress_bar() as bar:
        bar.add_task("reading", total=2)
        assert bar.console.stderr
    assert capsys.readouterr().out == ""
