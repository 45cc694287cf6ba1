"""The command line: thin, and quick to answer; what is heavy is imported where it is needed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import calmoe
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError, check_known
from calmoe.escaping import visible

if TYPE_CHECKING:
    from calmoe.experiments.spec import RunSpec
    from calmoe.experiments.sweep import Sweep


GOES_ON = (
    "stopped; the same command goes on after the last finished node or checkpoint (one every 30 seconds of "
    "training); what came after it is trained again"
)
AFTER_STOPPING = {
    "run": GOES_ON,
    "sweep": GOES_ON,
    "data": "stopped; the same command goes on where the download ended",
}


class Commands(TyperGroup):
    """What goes wrong is told in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            _stop(f"error: {' '.join(str(error).split())}", 2)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            _stop(f"error: {where}{error.strerror or error}", 2)
        except KeyboardInterrupt:
            _stop(AFTER_STOPPING.get(ctx.invoked_subcommand, "stopped"), 130)


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _say(line: str, err: bool = False) -> None:
    """Print a line; names and values from files in it cannot steer the terminal."""
    typer.echo(visible(line), err=err)


def _stop(message: str, code: int) -> None:
    _say(message, err=True)
    raise typer.Exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        _say(f"calmoe {calmoe.__version__}")
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


def _given(param: typer.CallbackParam, value: str | None) -> Path | None:
    """The path that an option names: '' names none, though Path would take it for the current folder."""
    if value == "":
        raise InputError(f"{param.opts[0]} is empty: give a folder")
    return None if value is None else Path(value)


FOLDER: Any = {"parser": str, "metavar": "<path>", "callback": _given}

DatasetName = Annotated[
    str, typer.Argument(help="Such as digits, cifar10h or pacs; an unknown name lists them all.")
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
TimeLimit = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Stop cleanly after that, with exit code 3.")
]


@app.command("run")
def run_command(
    dataset: DatasetName,
    methods: Methods = None,
    seeds: Seeds = None,
    settings: Settings = None,
    protocol: Protocol = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's folder; runs/DATASET or runs/DATASET-TARGET if not given.", **FOLDER),
    ] = None,
    data: Data = None,
    target: Target = None,
    device: Device = "auto",
    dry_run: DryRun = False,
    only_report: OnlyReport = False,
    tensorboard: Tensorboard = False,
    time_limit: TimeLimit = None,
) -> None:
    """Train the methods on a dataset and show the paper's table; run again to continue or to add.

    Example: calmoe run digits --methods vanilla,robust --seeds 42-44 --set epochs=10 --out runs/try

    Example: calmoe run pacs --data DIR --target sketch --set weights=resnet18.pth
    """
    given = (methods, seeds, settings, protocol, target)
    spec = _spec(dataset, None, *given)
    folder, how = out or Path("runs") / spec.name, (only_report, time_limit, tensorboard)
    if only_report:
        spec, _ = _recorded(folder, dataset, *given)
    _train(spec, folder, data, device, dry_run, *how)


@app.command("sweep")
def sweep_command(
    setting: Annotated[str, typer.Argument(help="eta or warmup.")],
    dataset: DatasetName,
    values: Annotated[
        str | None,
        typer.Option(help="By commas.", show_default="0.5 to 5 for eta, 0 to 40 of 50 epochs for warmup"),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Such as robust,entropic.", show_default="robust")
    ] = None,
    seeds: Seeds = None,
    settings: Settings = None,
    protocol: Protocol = None,
    out: Annotated[
        Path | None, typer.Option(help="The sweep's folder; runs/DATASET-SETTING if not given.", **FOLDER)
    ] = None,
    data: Data = None,
    target: Target = None,
    device: Device = "auto",
    dry_run: DryRun = False,
    only_report: OnlyReport = False,
    tensorboard: Tensorboard = False,
    time_limit: TimeLimit = None,
) -> None:
    """Train a method over several values of one setting, from shared warm-ups; run again to continue or add.

    Example: calmoe sweep eta digits --values 0,1,2,4 --seeds 42-44
    """
    from calmoe.experiments.spec import load_preset, narrowed
    from calmoe.experiments.sweep import parse_values

    given = (seeds, settings, protocol, target)
    spec = _spec(dataset, narrowed(load_preset(dataset), methods=("robust",)), methods, *given)
    folder, how = out or Path("runs") / f"{spec.name}-{setting}", (only_report, time_limit, tensorboard)
    sweep = None
    if only_report:
        spec, sweep = _recorded(folder, dataset, methods, *given)
    if sweep is None or sweep.setting != setting or values is not None:
        sweep = parse_values(setting, values, spec.training.epochs)
    _train(spec, folder, data, device, dry_run, *how, sweep=sweep)


def _train(
    spec: "RunSpec",
    folder: Path,
    data: Path | None,
    device: str,
    dry_run: bool,
    only_report: bool,
    time_limit: float | None,
    tensorboard: bool,
    sweep: "Sweep | None" = None,
) -> None:
    """What `run` and `sweep` do with their options."""
    from calmoe.experiments import runner
    from calmoe.report.console import show_results

    console = runner.make_console()
    if dry_run:
        runner.show_plan(spec, folder, data, device, sweep=sweep, console=console)
        return
    outcome = runner.run(
        spec,
        folder,
        data,
        device,
        sweep=sweep,
        only_report=only_report,
        time_limit=time_limit,
        tensorboard=tensorboard,
        console=console,
    )
    show_results(outcome, console)
    raise typer.Exit(outcome.exit_code)


def _spec(
    dataset: str,
    base: "RunSpec | None",
    methods: str | None,
    seeds: str | None,
    settings: list[str] | None,
    protocol: str | None,
    target: str | None,
) -> "RunSpec":
    """What the options ask for; what they leave out is as in `base`, or else in the preset."""
    from calmoe.experiments.spec import load_preset, narrowed, parse_methods, parse_seeds, with_settings

    options: dict[str, Any] = {"methods": methods, "seeds": seeds, "protocol": protocol, "target": target}
    given = {name: value for name, value in options.items() if value is not None}
    for setting in settings or []:
        if (name := setting.partition("=")[0].strip()) in given:
            raise InputError(f"{name} is given twice: leave out --{name} or --set {setting}")
    parse: dict[str, Any] = {"methods": parse_methods, "seeds": parse_seeds}
    spec = with_settings(base or load_preset(dataset), settings or [])
    return narrowed(spec, **{name: parse.get(name, str)(value) for name, value in given.items()})


def _recorded(folder: Path, dataset: str, *options: Any) -> "tuple[RunSpec, Sweep | None]":
    """What is asked of results that are there: all that the folder holds, if the options do not say."""
    from calmoe.experiments.store import RunFolder

    record = RunFolder(folder).record()
    if record is None or record.spec.dataset != dataset:
        return _spec(dataset, None, *options), None
    return _spec(dataset, record.spec, *options), record.sweep


@app.command("report")
def report_command(
    run: Annotated[
        list[Path],
        typer.Argument(
            help="The folder of a run; more, of other targets too, and sweeps go into one report."
        ),
    ],
    to: Annotated[
        Path | None, typer.Option(help="Where to write; RUN/report of one target if not given.", **FOLDER)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Where the dataset's files are: for the example images only.", **FOLDER),
    ] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", metavar="", help="The figures as PDF too, for papers.")
    ] = False,
) -> None:
    """Write a run's report: one page (HTML), its tables (Markdown, LaTeX, CSV) and its figures.

    Example: calmoe report runs/digits

    One report over targets: calmoe report runs/pacs-photo runs/pacs-sketch --to runs/pacs-report --data DIR
    """
    from calmoe.render.wording import many
    from calmoe.report.write import write_report

    written = write_report(run, to, data, pdf)
    folder = written.page.parent
    tables, figures = many(len(written.tables), "table"), many(len(written.figures), "figure")
    _say(f"{tables} in {folder / 'tables.md'}: {', '.join(written.tables)}")
    _say(f"{figures} in {folder / 'figures'}: {', '.join(written.figures)}")
    for name, reason in written.missing.items():
        _say(f"no figure {name}: {reason}")
    for name in written.older:
        _say(f"note: {folder / name} is of an older report and not of this one; remove it, or keep it")
    _say(f"the report is {written.page}")


@app.command("audit")
def audit_command(
    file: Annotated[Path, typer.Argument(help="Predictions with labels: safetensors, npz, csv or parquet.")],
    target: Annotated[
        Path | None, typer.Option(help="Predictions elsewhere, labels not needed: what will they be worth?")
    ] = None,
    labelled_target: Annotated[
        Path | None, typer.Option(help="Some rows from there with labels, to test the assumption.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for report.html, audit.json, figures.", **FOLDER)
    ] = None,
    of: Annotated[
        str, typer.Option(help="top: the predicted class is right; or a class, such as 1 of two.")
    ] = "top",
    bins: Annotated[int, typer.Option(min=1, help="Bins of confidence.")] = BINS,
    level: Annotated[float, typer.Option(help="Of the intervals, between 0 and 1.")] = LEVEL,
    seed: Annotated[int, typer.Option(min=0, help="Says which rows teach and which are judged.")] = 0,
) -> None:
    """Audit a mixture's probabilities: its experts, what its ECE hides, what a shift would do to it.

    A safetensors or npz file holds probs [N, C] and labels [N] and, for a mixture, routing [N, K] and
    expert_probs [N, K, C]; csv and parquet files have columns prob_0, …, label, routing_0, …,
    expert_0_prob_0, … (docs/audit.md).

    Example: calmoe audit test.safetensors --out audit

    Example: calmoe audit validation.safetensors --target elsewhere.safetensors
    """
    from calmoe.arrays import check_bins
    from calmoe.auditing.files import audit_files

    check_bins(bins)

    if of != "top" and not (of.isdecimal() and len(of) < 10):
        raise InputError(f"--of must be top or the number of a class, not {of!r}")
    judged = "top" if of == "top" else int(of)
    files = (file, target, labelled_target)
    report, page = audit_files(*files, out=out, of=judged, bins=bins, level=level, seed=seed)
    for line in report.summary().split("\n"):
        _say(line)
    if page is not None:
        _say(f"the report is {page}")


@app.command("export")
def export_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    to: Annotated[
        Path, typer.Option(help="A folder for METHOD-SEED/validation.safetensors and test.", **FOLDER)
    ],
    methods: Methods = None,
    seeds: Seeds = None,
    scaled: Annotated[
        bool, typer.Option("--scaled", metavar="", help="After the temperature that validation chooses.")
    ] = False,
) -> None:
    """Write the predictions of a run's models as files, to audit them or to use them elsewhere.

    Example: calmoe export runs/pacs-sketch --methods robust --seeds 42 --to predictions

    Then: cd predictions/robust-42; calmoe audit validation.safetensors --target test.safetensors
    """
    from calmoe.experiments.export import export
    from calmoe.experiments.spec import parse_methods, parse_seeds
    from calmoe.render.wording import many

    chosen = parse_methods(methods) if methods is not None else None
    files, notes = export(run, to, chosen, parse_seeds(seeds) if seeds is not None else None, scaled)
    for note in notes:
        _say(f"note: {note}")
    _say(f"{many(len(files), 'file')}, such as {files[-1]}: `calmoe audit` reads them")


@app.command("add")
def add_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    name: Annotated[str, typer.Argument(help="What tables and figures call the predictions.")],
    validation: Annotated[Path, typer.Option(help="Predictions for the run's validation rows.")],
    test: Annotated[Path, typer.Option(help="Predictions for the run's test rows.")],
    augmented: Annotated[
        Path | None,
        typer.Option(help="For augmented validation rows: the published protocol fits temperatures there."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed that they stand under.")] = 0,
) -> None:
    """Let predictions from elsewhere stand in a run's tables and figures, as a method of their own.

    Rows must be the run's, in its order: `calmoe export` writes files that show it.

    Example: calmoe add runs/digits my_model --validation validation.npz --test test.npz
    """
    from calmoe.experiments.run import add_predictions
    from calmoe.experiments.runner import Outcome, make_console
    from calmoe.predictions import Predictions
    from calmoe.report.console import show_results

    files = [None if path is None else Predictions.load(path) for path in (validation, test, augmented)]
    opened = add_predictions(run, name, seed, *files)  # type: ignore[arg-type]
    show_results(Outcome(run=opened, rows=opened.rows), make_console())


@app.command("data")
def data_command(
    dataset: Annotated[str, typer.Argument(help="cifar10h.")],
    to: Annotated[Path, typer.Option(help="The folder to put it in.", **FOLDER)],
) -> None:
    """Download a dataset, verified; a download that was cut goes on where it ended.

    Example: calmoe data cifar10h --to data
    """
    from calmoe.data import DATASETS

    check_known("dataset", dataset, DATASETS)
    card = DATASETS[dataset]
    if card.fetch is None:
        raise InputError(card.get_it)
    _say(f"{dataset} is in {card.fetch(to)}: calmoe run {dataset} --data {to}")


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
    from calmoe.experiments.runner import make_console
    from calmoe.report.run_tables import beside_the_paper

    make_console().print(beside_the_paper(Run.open(run), dataset).rich())
