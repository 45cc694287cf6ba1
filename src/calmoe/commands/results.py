"""Commands on finished runs: `calmoe report`, `compare`, `export` and `add`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calmoe.commands.options import FOLDER, Methods, Plugins, Seeds, reads_columns
from calmoe.commands.program import app, say
from calmoe.errors import InputError

if TYPE_CHECKING:
    from calmoe.formats import Columns


@app.command("report")
def report_command(
    run: Annotated[
        list[Path],
        typer.Argument(
            help="The folder of a run; more, of other targets too, and sweeps go into one report."
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", "--out", help="Where to write; RUN/report of one target if not given.", **FOLDER
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Where the dataset's files are: for the example images only.", **FOLDER),
    ] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", metavar="", help="The figures as PDF too, for papers.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """Write a run's report: one page (HTML), its tables (Markdown, LaTeX, CSV) and its figures.

    Example: calmoe report runs/digits

    One report over targets: calmoe report runs/pacs-photo runs/pacs-sketch --to runs/pacs-report --data DIR
    """
    from calmoe.plugins import load_plugin
    from calmoe.render.wording import many
    from calmoe.report.write import write_report

    for plugin in plugins or ():
        load_plugin(plugin)
    written = write_report(run, to, data, pdf)
    folder = written.page.parent
    tables, figures = many(len(written.tables), "table"), many(len(written.figures), "figure")
    say(f"{tables} in {folder / 'tables.md'}: {', '.join(written.tables)}")
    say(f"{figures} in {folder / 'figures'}: {', '.join(written.figures)}")
    for name, reason in written.missing.items():
        say(f"no figure {name}: {reason}")
    for name in written.older:
        say(f"note: {folder / name} is of an older report and not of this one; remove it, or keep it")
    for note in written.notes:
        say(f"note: {note}: the report has what its run's folder says")
    say(f"the report is {written.page}")


@app.command("compare")
def compare_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    dataset: Annotated[
        str | None,
        typer.Option(
            help="The paper's table, such as pacs_sketch: needed only if the run's record names no target.",
            show_default="the run's own",
        ),
    ] = None,
) -> None:
    """Show the paper's cells beside a run's, and the differences in combined standard errors.

    Example: calmoe compare runs/cifar10h
    """
    from calmoe.experiments.run import Run
    from calmoe.render.console import make_console
    from calmoe.report.run_tables import beside_the_paper

    make_console().print(beside_the_paper(Run.open(run), dataset).rich())


@app.command("export")
def export_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run; with --onnx also a model folder.")],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            "--out",
            help="A folder for METHOD-SEED/validation.safetensors and test; with --model the model folder.",
            **FOLDER,
        ),
    ] = None,
    methods: Methods = None,
    seeds: Seeds = None,
    scaled: Annotated[
        bool, typer.Option("--scaled", metavar="", help="After the temperature that validation chooses.")
    ] = False,
    views: Annotated[
        bool, typer.Option("--views", metavar="", help="Pooled over views: of a run with --set views=N.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="Export this method's trained model, not predictions.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed of that model.")] = None,
    onnx: Annotated[
        Path | None,
        typer.Option(help="Write the model as ONNX: preparation and temperature inside.", **FOLDER),
    ] = None,
) -> None:
    """Write the predictions of a run's models as files, or one of its models as a folder or as ONNX.

    Example: calmoe export runs/pacs-sketch --methods robust --seeds 42 --to predictions

    Then: cd predictions/robust-42; calmoe audit validation.safetensors --target test.safetensors

    A model: calmoe export runs/digits --model vanilla --seed 42 --out digits-model --onnx digits.onnx
    """
    if model is not None or onnx is not None:
        if methods is not None or seeds is not None or scaled or views:
            raise InputError(
                "--methods, --seeds, --scaled and --views are for predictions: give --model and --seed"
            )
        _export_model(run, to, model or "", seed, onnx)
        return
    if to is None or seed is not None:
        raise InputError(
            "say where to write the predictions, --to DIR; or name a model: --model METHOD --seed N --out DIR"
        )
    from calmoe.experiments.export import export
    from calmoe.experiments.run import Run
    from calmoe.experiments.spec import parse_methods, parse_seeds
    from calmoe.render.wording import many

    Run.open(run)  # names the methods that plug-ins have added
    chosen = parse_methods(methods) if methods is not None else None
    files, notes = export(run, to, chosen, parse_seeds(seeds) if seeds is not None else None, scaled, views)
    for note in notes:
        say(f"note: {note}")
    say(f"{many(len(files), 'file')}, such as {files[-1]}: `calmoe audit` reads them")


def _export_model(run: Path, to: Path | None, method: str, seed: int | None, onnx: Path | None) -> None:
    from calmoe.experiments.trained import load
    from calmoe.models.onnx_file import write_onnx

    if to is None and onnx is None:
        raise InputError("say where to write the model: --out DIR for a folder, --onnx FILE for ONNX")
    loaded = load(run, method, seed)
    if onnx is not None:
        difference = write_onnx(loaded, onnx)
        say(f"{onnx}: the same probabilities as PyTorch's, to {difference:.0e}")
    if to is not None:
        loaded.save(to)
        say(f'the model is {to}: calmoe.load("{to}") in Python, or `calmoe predict {to} DATA --out FILE`')


@app.command("add")
@reads_columns("groups")
def add_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    name: Annotated[str, typer.Argument(help="What tables and figures call the predictions.")],
    validation: Annotated[Path, typer.Option(help="Predictions for the run's validation rows.")],
    test: Annotated[Path, typer.Option(help="Predictions for the run's test rows.")],
    augmented: Annotated[
        Path | None,
        typer.Option(help="For augmented validation rows: the published protocol fits temperatures there."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="The seed that they stand under.", show_default="the run's first"),
    ] = None,
    *,
    columns: "Columns",
) -> None:
    """Let predictions from elsewhere stand in a run's tables and figures, as a method of their own.

    Rows must be the run's, in its order: `calmoe export` writes files that show it.

    Columns of other names are named by options, as for `calmoe audit`.

    Example: calmoe add runs/digits my_model --validation validation.npz --test test.npz
    """
    from calmoe.experiments.added_predictions import add_predictions, class_names_of
    from calmoe.experiments.run import Run
    from calmoe.experiments.runner import Outcome
    from calmoe.formats import NOTE
    from calmoe.reading import read_with
    from calmoe.render.console import make_console
    from calmoe.report.terminal import show_results

    columns = replace(columns, like=class_names_of(run), label_optional=True)
    paths = (validation, test, augmented)
    files = [None if path is None else read_with(path, columns) for path in paths]
    for path, each in zip(paths, files, strict=True):
        if each is not None and NOTE in each.metadata:
            say(f"note: {path}: {each.metadata[NOTE]}")
    if any(each is not None and each.labels is None for each in files):
        say("note: a file has no labels, so nothing shows that its rows are the run's, in its order")
    stands_under = seed if seed is not None else min(Run.open(run).record.seeds)
    opened = add_predictions(run, name, stands_under, *files)  # type: ignore[arg-type]
    show_results(Outcome(run=opened, rows=opened.rows), make_console())
