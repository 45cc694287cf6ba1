"""Options that several commands have."""

import csv
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calmoe.errors import InputError


def given_path(param: typer.CallbackParam, value: str | None) -> Path | None:
    """The path that an option names: '' names none, though Path would take it for the current folder."""
    if value == "":
        raise InputError(f"{param.opts[0]} is empty: give a folder")
    return None if value is None else Path(value)


def predictions_at(path: Path) -> Path:
    """The file of predictions that a path means: a model's folder stands for the rows that it held out."""
    from calmoe.formats import HELD_OUT

    if (path / HELD_OUT).is_file():
        return path / HELD_OUT
    if (path / "model.json").is_file():
        raise InputError(
            f"{path}: this model has no rows that it held out; give predictions of rows that neither it nor "
            f"a repair has seen: calmoe predict {path} ROWS --out predictions.csv"
        )
    return path


def check_cases(path: Path, cluster: str | None) -> None:
    """Refuse rows that a model held out, if others of their cases taught it."""
    from calmoe.formats import HELD_OUT
    from calmoe.new_rows import EVERY_ROW

    if cluster in (None, EVERY_ROW) or not (path / HELD_OUT).is_file():
        return
    from calmoe.models.folder import read_card

    if read_card(path).settings.get("cluster") != cluster:
        raise InputError(
            f"{path}: this model was trained without --cluster {cluster}, so rows of the same cases have "
            "taught it: train it with that, or give predictions of other cases"
        )


if TYPE_CHECKING:
    from calmoe.formats import Columns


MOST_JOBS = 1024
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
Judged = Annotated[
    str, typer.Option("--of", help="top: the predicted class is right; or a class, by name or number.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Names cases, such as person_id: one row of each is judged; row: every row is a case.",
    ),
]
TimeLimit = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Stop cleanly after that, with exit code 3.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, max=MOST_JOBS, metavar="N", help="Train N models at once.", show_default="1"
    ),
]
EngineName = Annotated[str, typer.Option("--engine", help="local, or ray: on the machines of a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option(help="Of the Ray cluster, or auto.", show_default="RAY_ADDRESS, else a Ray of its own"),
]
Resources = Annotated[
    str | None,
    typer.Option(
        help="What Ray gives a model, such as gpus=0.25,cores=2,memory=8 (GB).",
        show_default="cores=1, and gpus=1 on a GPU",
    ),
]

Sample = Annotated[
    int | None,
    typer.Option(
        metavar="ROWS",
        help="How many rows of a streamed table the learning parts see; 200,000 if not given.",
    ),
]


def _column_options(
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The labels: class names or numbers.")
    ] = None,
    probs: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS", help="The probabilities, such as p_cat,p_dog; one alone: of two classes."
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Names of the classes, such as no,yes, in the probabilities' order."
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="What a lone column of probabilities is about, such as yes."),
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS", help="The router's weights; or numbers, such as 0.3,0.7, for all rows."
        ),
    ] = None,
    experts: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="The experts' probabilities, expert first, then class; or how the columns of each begin.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Groups, such as region,age; all other columns if not given."),
    ] = None,
    logits: Annotated[
        bool,
        typer.Option("--logits", metavar="", help="Probabilities and experts are given before the softmax."),
    ] = False,
    routing_logits: Annotated[
        bool, typer.Option("--routing-logits", metavar="", help="The routing is given before the softmax.")
    ] = False,
) -> None:
    """What a user says about a file's columns, on the command line; `reads_columns` reads this signature."""


def reads_columns(*left_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options above, but those left out; they reach it as one argument, `columns`."""
    options = [
        option
        for name, option in inspect.signature(_column_options).parameters.items()
        if name not in left_out
    ]

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command).parameters.values()
        shown = [each for one in own for each in (options if one.name == "columns" else [one])]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            said = {option.name: given.pop(option.name) for option in options}
            command(columns=_columns_asked(**said), **given)

        # typer reads the command's options from these two
        keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in shown]
        run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in shown}
        return run

    return with_options


def _columns_asked(**options: Any) -> "Columns":
    """What the options above say about a file's columns."""
    from calmoe.formats import asked

    for name in ("probs", "classes", "experts", "groups", "routing"):
        if options.get(name) is not None:
            options[name] = _split(name, options[name])
    weights = [_number(each) for each in options["routing"] or ()]
    if weights and None not in weights:
        options["routing"] = weights
    return asked(**options)


def _split(name: str, text: str) -> list[str]:
    """Names between commas; one that holds a comma stands in quotes."""
    try:
        return [each.strip() for row in csv.reader([text], strict=True) for each in row]
    except csv.Error:
        raise InputError(
            f"--{name} {text!r}: write names between commas, with one that holds a comma in quotes"
        ) from None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
