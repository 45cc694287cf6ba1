"""The command `calmoe data`: download a dataset."""

from pathlib import Path
from typing import Annotated

import typer

from calmoe.commands.options import FOLDER
from calmoe.commands.program import app, say
from calmoe.errors import InputError


@app.command("data")
def data_command(
    dataset: Annotated[str, typer.Argument(help="Such as cifar10h.")],
    to: Annotated[
        Path | None, typer.Option("--to", "--out", help="The folder to put it in.", **FOLDER)
    ] = None,
) -> None:
    """Download a dataset, verified; a download that was cut goes on where it ended.

    Example: calmoe data cifar10h --to data
    """
    from calmoe.data import DATASETS

    DATASETS.check(dataset)
    card = DATASETS[dataset]
    if card.fetch is None:
        raise InputError(card.get_it)
    if to is None:
        raise InputError(f"say where to put it: calmoe data {dataset} --to DIR")
    say(f"{dataset} is in {card.fetch(to)}: calmoe run {dataset} --data {to}")
