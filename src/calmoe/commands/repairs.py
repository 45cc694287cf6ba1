"""The commands `calmoe repair` and `calmoe apply`: choose a calibrator, and use it."""

from pathlib import Path
from typing import Annotated

import typer

from calmoe.commands.options import (
    FOLDER,
    Classes,
    Experts,
    Groups,
    Label,
    Logits,
    Positive,
    Probs,
    Routing,
    RoutingLogits,
    columns_asked,
)
from calmoe.commands.program import app, say
from calmoe.errors import InputError


@app.command("repair")
def repair_command(
    file: Annotated[Path, typer.Argument(help="Predictions with labels: safetensors, npz, csv or parquet.")],
    out: Annotated[Path, typer.Option("--out", "--to", help="The calibrator, a json file.", **FOLDER)],
    kind: Annotated[
        str,
        typer.Option(help="auto, or one of nothing, temperature, isotonic, vector, matrix, routing."),
    ] = "auto",
    label: Label = None,
    probs: Probs = None,
    classes: Classes = None,
    positive: Positive = None,
    routing: Routing = None,
    experts: Experts = None,
    groups: Groups = None,
    logits: Logits = False,
    routing_logits: RoutingLogits = False,
    seed: Annotated[int, typer.Option(min=0, help="Says which rows teach and which are judged.")] = 0,
) -> None:
    """Choose what makes the probabilities truer, and write it as a calibrator; it may well be nothing.

    Candidates are compared by their log loss on rows that they were not fitted on. Taken is the best of them;
    or one temperature, or nothing, where that does nearly as well. None that surely makes the calibration
    error worse is taken.

    Example: calmoe repair validation.csv --out calibrator.json

    Then: calmoe apply calibrator.json test.csv --out repaired.csv
    """
    from rich.progress import TaskProgressColumn, TimeElapsedColumn

    from calmoe.auditing.repairs.files import repair_file
    from calmoe.auditing.sections.repair import candidates_table, sentences
    from calmoe.progress_bar import progress_bar
    from calmoe.render.console import make_console

    columns = columns_asked(
        label=label,
        probs=probs,
        classes=classes,
        positive=positive,
        routing=routing,
        experts=experts,
        groups=groups,
        logits=logits,
        routing_logits=routing_logits,
    )
    with progress_bar(TaskProgressColumn(), TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task("repair", total=1.0)
        found = repair_file(
            file,
            columns,
            out,
            kind=kind,
            seed=seed,
            inside=lambda share: bar.update(task, completed=share),
        )
    if found.note:
        say(f"note: {file}: {found.note}")
    make_console().print(candidates_table(found.repair).rich())
    say(sentences(found.repair))
    changes = "changes nothing" if found.calibrator.kind == "Identity" else f"holds {found.calibrator.title}"
    say(f"{out} {changes}, {found.calibrator.note}")
    say(f"next: calmoe apply {out} NEW_FILE_OR_MODEL --out REPAIRED")


@app.command("apply")
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
    label: Label = None,
    probs: Probs = None,
    classes: Classes = None,
    positive: Positive = None,
    routing: Routing = None,
    experts: Experts = None,
    groups: Groups = None,
    logits: Logits = False,
    routing_logits: RoutingLogits = False,
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
        from calmoe.errors import about
        from calmoe.models.folder import load_folder

        model = load_folder(given)
        with about(given):
            model = model.with_calibrator(fitted)
        model.save(out)
        say(f"{out} is the model of {given} with {fitted.title}: calmoe predict {out} NEW_DATA")
        return
    from calmoe.auditing.repairs.files import apply_to_file

    columns = columns_asked(
        label=label,
        probs=probs,
        classes=classes,
        positive=positive,
        routing=routing,
        experts=experts,
        groups=groups,
        logits=logits,
        routing_logits=routing_logits,
    )
    for note in apply_to_file(fitted, given, columns, out):
        say(f"note: {given}: {note}")
    say(f"{out} holds the predictions of {given} after {fitted.title}")
