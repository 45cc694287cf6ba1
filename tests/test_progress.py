"""The bar: on a terminal only, and gone afterwards where it is transient."""

import io

import pytest
from rich.console import Console
from rich.progress import TimeElapsedColumn

from calmoe.progress_bar import Lines, progress_bar


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


@pytest.mark.parametrize("terminal", [True, False])
def test_elsewhere_there_is_a_line_now_and_then(terminal, monkeypatch):
    now = 100.0
    monkeypatch.setattr("calmoe.progress_bar.time.monotonic", lambda: now)
    console = Console(file=io.StringIO(), force_terminal=terminal)
    lines, eager = Lines(console), Lines(console, at_once=True)
    for seconds in range(70):
        now = 100.0 + seconds
        lines.offer(f"after {seconds}")
    eager.offer("first")
    eager.offer("too soon")
    eager.offer("last", always=True)
    expected = ["after 30", "after 60", "first", "last"]
    assert console.file.getvalue().splitlines() == ([] if terminal else expected)
