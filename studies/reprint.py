"""Tables of a page, printed again by the commands that stand above them."""

import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer

from calmoe.files import write_whole

COMMAND = "`python -m studies "


def reprint(
    pages: Annotated[list[Path], typer.Argument(help="Markdown pages, such as results/truer/README.md.")],
    check: Annotated[bool, typer.Option(help="Write nothing; exit code 1 where a table differs.")] = False,
) -> None:
    """Do the tables of a page say what their commands print?

    A line that is a command in backticks, and nothing else, is run. What it prints takes the place of the
    tables below it, each with its caption. Other text stays.

    Example: python -m studies reprint results/truer/README.md
    """
    differ = False
    for page in pages:
        before = page.read_text()
        after = printed_again(before)
        differ |= after != before
        print(f"{page}: {'as printed' if after == before else 'differs' if check else 'printed again'}")
        if after != before and not check:
            write_whole(page, after.encode())
    if check and differ:
        raise typer.Exit(1)


def printed_again(text: str) -> str:
    """The page with what its commands print today."""
    lines, result, at = text.split("\n"), [], 0
    while at < len(lines):
        line, at = lines[at], at + 1
        result.append(line)
        if is_command(line):
            printed = ["", *output_of(line.strip("`")).strip("\n").split("\n")]
            at = end_of_tables(lines, at, len(list(tables(printed))))
            result += printed
    return "\n".join(result)


def is_command(line: str) -> bool:
    """Whether a line is a command of the studies alone.

    >>> is_command("`python -m studies choose rows.jsonl`"), is_command("`python -m studies` lists them")
    (True, False)
    """
    return line.startswith(COMMAND) and line.endswith("`") and line.count("`") == 2


def end_of_tables(lines: list[str], at: int, number: int) -> int:
    """The line after so many of the tables that begin here.

    >>> end_of_tables(["", "Means", "", "| a |", "| - |", "| 1 |", "", "And then."], 0, 1)
    6
    """
    ends = [end for _, end in tables(lines[at:])]
    return at + max(ends[:number], default=0)


def tables(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Where each of the tables that follow each other begins and ends: a blank line, a caption, its rows."""
    at = 0
    while [*map(bool, lines[at : at + 3])] == [False, True, False] and is_row(lines, at + 3):
        start, at = at, at + 3
        while is_row(lines, at):
            at += 1
        yield start, at


def is_row(lines: list[str], at: int) -> bool:
    return at < len(lines) and lines[at].startswith("|")


def output_of(command: str) -> str:
    """What a command prints."""
    from studies.app import app  # which imports this module

    with redirect_stdout(StringIO()) as printed:
        app(shlex.split(command)[3:], standalone_mode=False)
    return printed.getvalue()
