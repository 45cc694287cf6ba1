"""The program `calmoe`: the order of its commands, mistakes as one line, exit codes, `--version`."""

import select
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import calmoe
from calmoe.errors import InputError
from calmoe.escaping import visible
from calmoe.launch import follows

UsageError: Any = typer.BadParameter.__mro__[1]  # typer brings its own copy of click, or uses click's
GOES_ON = (
    "stopped; the same command goes on after the last finished node or checkpoint (one every 30 seconds of "
    "training); what came after it is trained again"
)
AFTER_STOPPING = {
    "run": GOES_ON,
    "sweep": GOES_ON,
    "train": "stopped: nothing was written, the same command begins anew",
    "data": "stopped; the same command goes on where the download ended",
}
ORDER = (
    *("train", "predict", "audit", "audit-shard", "audit-merge", "repair", "apply", "init"),
    *("run", "sweep", "report", "compare", "export", "add", "data"),
)  # in `calmoe --help`


class Commands(TyperGroup):
    """A mistake is one line, without a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command. Options that are wrong get one line as well, where typer would draw a box."""
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except UsageError as error:
            code = 2
            if "NoArgs" in type(error).__name__:
                error.show()
            else:
                command = error.ctx.command_path if error.ctx else "calmoe"
                line = " ".join(error.format_message().split()).rstrip(".")
                say_once(f"error: {line}: `{command} --help` shows what it takes")
        except typer.Abort:
            code = 130
        sys.exit(code or 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            _stop(f"error: {' '.join(str(error).split())}", 2)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and _nobody_reads():
                raise  # typer ends without a word: `head` has enough
            where = f"{error.filename}: " if error.filename else ""
            _stop(f"error: {where}{error.strerror or error}", 2)
        except KeyboardInterrupt:
            say_once(AFTER_STOPPING.get(ctx.invoked_subcommand, "stopped"))
            raise typer.Exit(130) from None


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader is gone."""
    watch = select.poll()
    watch.register(1, 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def say(line: str, err: bool = False) -> None:
    """Print a line; names and values from files in it cannot steer the terminal."""
    typer.echo(visible(line), err=err)


def say_once(line: str) -> None:
    """Print a line to standard error; of several ranks, which all know it, the first does."""
    if not follows():
        say(line, err=True)


def _stop(message: str, code: int) -> None:
    say(message, err=True)
    raise typer.Exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"calmoe {calmoe.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_print_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """Calibrated mixtures of experts: train them, audit them, reproduce the paper.

    Example: calmoe run digits
    """
