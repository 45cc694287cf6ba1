"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, Any

import typer

from calmoe.errors import InputError


def given_path(param: typer.CallbackParam, value: str | None) -> Path | None:
    """The path that an option names: '' names none, though Path would take it for the current folder."""
    if value == "":
        raise InputError(f"{param.opts[0]} is empty: give a folder")
    return None if value is None else Path(value)


FOLDER: Any = {"parser": str, "metavar": "<path>", "callback": given_path}

DatasetName = Annotated[
    str,
    typer.Argument(
        help="Such as digits, cifar10h or pacs, or your own my.toml; an unknown name lists them all."
    ),
]
Methods = Annotated[str | None, typer.Option(help="Such as vanilla,robust.")]
Seeds = Annotated[str | None, typer.Option(help="Such as 42-46,50.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as epochs=10; repeat for more."),
]
Protocol = Annotated[str | None, typer.Option(help="corrected, or published: the paper's split and solver.")]
Data = Annotated[Path | None, typer.Option(help="Where the dataset's files are.", **FOLDER)]
Target = Annotated[str | None, typer.Option(help="The domain to test on, such as sketch: pacs, domains.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar="", help="Draw the plan and stop.")]
OnlyReport = Annotated[
    bool, typer.Option("--only-report", metavar="", help="Recompute the results from the saved predictions.")
]
Tensorboard = Annotated[
    bool, typer.Option("--tensorboard", metavar="", help="Write TensorBoard events into the run's folder.")
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="Run a Python file that registers methods, datasets, …; repeat for more.",
    ),
]
TimeLimit = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Stop cleanly after that, with exit code 3.")
]
