"""The command line called in this process: exit codes, one line where it refuses, no escapes of a file's."""

from collections.abc import Sequence

from typer.testing import CliRunner

from attack.running import Wrong
from calmoe.commands import app
from calmoe.errors import InputError

RUNNER = CliRunner()


def call(arguments: Sequence[str]) -> int:
    """The exit code 0, 1 or 3; a refusal, exit code 2, is an InputError; a traceback is what it was."""
    result = RUNNER.invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    lines = result.stderr.strip().splitlines()
    if result.exit_code == 2:
        usage = bool(lines) and lines[0].startswith("Usage:")  # typer's own, in a box
        if not usage and (len(lines) != 1 or not lines[0].startswith("error: ")):
            raise Wrong(f"a refusal that is not one line: {lines[:3]!a}")
        if "\x1b" in result.stderr and not any("\x1b" in argument for argument in arguments):
            raise Wrong(f"terminal escapes reach the terminal: {lines[:3]!a}")
        raise InputError(" ".join(lines)[:500] or "refused")
    if result.exit_code not in (0, 1, 3):
        raise Wrong(f"an exit code that means nothing: {result.exit_code}")
    if "\x1b" in result.output and not any("\x1b" in argument for argument in arguments):
        raise Wrong(f"terminal escapes reach the terminal: {result.output[:200]!a}")
    return result.exit_code
