"""The commands `calmoe repair` and `calmoe apply`: choose a calibrator, and use it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calmoe.commands.options import FOLDER, Cluster, Judged, check_cases, predictions_at, reads_columns
from calmoe.commands.program import app, say
from calmoe.errors import InputError

if TYPE_CHECKING:
    from calmoe.formats import Columns


@app.command("repair")
@reads_columns()
def repair_command(
    file: Annotated[
        Path,
        typer.Argument(
            help="Predictions with labels: safetensors, npz, csv or parquet; or the folder of a model, for "
            "the rows that it held out."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "--to", help="The calibrator, a json file.", **FOLDER)],
    kind: Annotated[
        str,
        typer.Option(help="auto, or one of nothing, temperature, isotonic, vector, matrix, routing."),
    ] = "auto",
    of: Judged = "top",
    *,
    columns: "Columns",
    cluster: Cluster = None,
    seed: Annotated[int, typer.Option(min=0, help="Says which rows teach and which are judged.")] = 0,
) -> None:
    """Choose what makes the probabilities truer, and write it as a calibrator; it may well be nothing.

    Candidates are compared by their log loss on rows that they were not fitted on. Taken is the best of them;
    or one temperature, or nothing, where that does nearly as well. None that raises the calibration error is
    taken: the error of "the predicted class is right", or with --of yes that of the class yes.

    Example: calmoe repair validation.csv --out calibrator.json

    Then: calmoe apply calibrator.json test.csv --out repaired.csv
    """
    from rich.progress import TaskProgressColumn, TimeElapsedColumn

    from calmoe.auditing.presentation.commands import with_options
    from calmoe.auditing.repairs.files import repair_file
    from calmoe.auditing.sections.repair import candidates_table
    from calmoe.progress_bar import progress_bar
    from calmoe.render.console import make_console

    check_cases(file, cluster)
    file = predictions_at(file)
    with progress_bar(TaskProgressColumn(), TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task("repair", total=1.0)
        repaired = repair_file(
            file,
            columns,
            out,
            kind=kind,
            of=of,
            seed=seed,
            cluster=cluster,
            inside=lambda share: bar.update(task, completed=share),
        )
    for note in repaired.notes:
        say(f"note: {file}: {note}")
    make_console().print(candidates_table(repaired.repair).rich())
    say(repaired.effect)
    calibrator = repaired.calibrator
    changes = "changes nothing" if calibrator.kind == "Identity" else f"holds {calibrator.title}"
    say(f"{out} {changes}, {calibrator.note}")
    if calibrator.kind != "Identity":
        new = "NEW_FILE" if columns.words else "NEW_FILE_OR_MODEL"  # a model takes no options
        apply = with_options(f"calmoe apply {shlex.quote(str(out))} {new} --out REPAIRED", columns.words)
        say(f"next: {apply}; then audit it on other rows")


@app.command("apply")
@reads_columns()
def apply_command(
    calibrator: Annotated[Path, typer.Argument(help="What calmoe repair wrote.")],
    given: Annotated[
        Path,
        typer.Argument(metavar="FILE_OR_MODEL", help="Predictions, labels not needed; or a model's folder."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "--to",
            help="A csv, parquet or safetensors file; a new folder for a model.",
            **FOLDER,
        ),
    ],
    *,
    columns: "Columns",
) -> None:
    """Repair predictions by a calibrator, or make a model that carries it and predicts with it.

    Example: calmoe apply calibrator.json test.csv --out repaired.csv

    Example: calmoe apply calibrator.json credit-model --out credit-model-repaired
    """
    from calmoe.calibration import Calibrator

    if not given.exists():
        raise InputError(f"there is no file or folder {given}")
    fitted = Calibrator.load(calibrator)
    if given.is_dir():
        if columns.given:
            raise InputError(f"--{columns.given[0]} is for files of predictions: a model needs none")
        from calmoe.errors import about
        from calmoe.models.folder import load_folder

        model = load_folder(given)
        with about(given):
            model = model.with_calibrator(fitted)
        model.save(out)
        carried = f"with {fitted.title}" if fitted.kind != "Identity" else "as it was, as no repair helps it"
        say(f"{out} is the model of {given} {carried}")
        say(f"use it: calmoe predict {shlex.quote(str(out))} NEW_DATA --out predictions.csv")
        return
    from calmoe.auditing.repairs.files import apply_to_file

    for note in apply_to_file(fitted, given, columns, out):
        say(f"note: {given}: {note}")
    say(f"{out} holds the predictions of {given} after {fitted.title}")
