"""calmoe's commands, given as in a shell, in this process."""

from typer.testing import CliRunner

from calmoe.commands import app


def calmoe(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments):
    """The one line on standard error of a command that ends with code 2."""
    result = calmoe(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr
