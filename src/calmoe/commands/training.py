"""The command `calmoe run`, and what `calmoe sweep` shares with it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calmoe.commands.options import (
    FOLDER,
    Address,
    Data,
    DatasetName,
    Device,
    DryRun,
    EngineName,
    Jobs,
    Methods,
    OnlyReport,
    Plugins,
    Protocol,
    Resources,
    Seeds,
    Settings,
    Target,
    Tensorboard,
    TimeLimit,
)
from calmoe.commands.program import app, say
from calmoe.commands.several import CONTINUES, several_ranks
from calmoe.errors import InputError
from calmoe.launch import follows

if TYPE_CHECKING:
    from calmoe.experiments.engines.work import Engine
    from calmoe.experiments.spec import RunSpec
    from calmoe.experiments.sweep import Sweep


@app.command("run")
@several_ranks(CONTINUES)
def run_command(
    dataset: DatasetName,
    methods: Methods = None,
    seeds: Seeds = None,
    settings: Settings = None,
    protocol: Protocol = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--to",
            help="The run's folder; runs/DATASET or runs/DATASET-TARGET if not given.",
            **FOLDER,
        ),
    ] = None,
    data: Data = None,
    target: Target = None,
    device: Device = "auto",
    dry_run: DryRun = False,
    only_report: OnlyReport = False,
    tensorboard: Tensorboard = False,
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    resources: Resources = None,
    plugins: Plugins = None,
) -> None:
    """Train the methods on a dataset and show the paper's table; run again to continue or to add.

    Example: calmoe run digits --methods vanilla,robust --seeds 42-44 --set epochs=10 --out runs/try

    Example: calmoe run digits --seeds 42-61 --jobs 8 (docs/scale-out.md: more processes, GPUs, machines)

    Example: calmoe run pacs --data DIR --target sketch --set weights=resnet18.pth

    Example: calmoe run my.toml (docs/extend.md: methods, datasets and models of your own)
    """
    how = How(data, device, dry_run, only_report, time_limit, tensorboard).on(
        engine, jobs, address, resources
    )
    changes = Changes(methods, seeds, settings, protocol, target)
    spec, _, folder = asked(Base(dataset, plugins or ()), changes, out, only_report)
    train(spec, None, folder, how)


@dataclass(frozen=True)
class How:
    """Where and how to train."""

    data: Path | None
    device: str
    dry_run: bool
    only_report: bool
    time_limit: float | None
    tensorboard: bool
    engine: "Engine | None" = None  # begun; None where nothing is trained

    def on(self, engine: str, jobs: int | None, address: str | None, resources: str | None) -> "How":
        """The same on this engine, which starts now: before this process imports what takes seconds."""
        from calmoe.experiments.engines.choice import choose_engine

        if self.dry_run or self.only_report:
            return self
        return replace(self, engine=choose_engine(engine, jobs, address, resources))


@dataclass(frozen=True)
class Changes:
    """What the options change in a run."""

    methods: str | None
    seeds: str | None
    settings: list[str] | None
    protocol: str | None
    target: str | None

    def applied(self, base: "RunSpec") -> "RunSpec":
        """`base` with what the options say; what they leave out stays."""
        from calmoe.experiments.spec import narrowed, parse_methods, parse_seeds, with_settings

        options = {name: getattr(self, name) for name in ("methods", "seeds", "protocol", "target")}
        given = {name: value for name, value in options.items() if value is not None}
        for setting in self.settings or []:
            if (name := setting.partition("=")[0].strip()) in given:
                raise InputError(f"{name} is given twice: leave out --{name} or --set {setting}")
        parse: dict[str, Any] = {"methods": parse_methods, "seeds": parse_seeds}
        if self.methods is not None:
            parse_methods(self.methods)  # loads installed plug-ins, which declare settings
        spec = with_settings(base, self.settings or [])
        return narrowed(spec, **{name: parse.get(name, str)(value) for name, value in given.items()})


@dataclass(frozen=True)
class Base:
    """What the options change: a dataset's preset, or a file of the user's own; plug-ins are loaded first."""

    name: str
    plugins: Sequence[Path]
    methods: tuple[str, ...] = ()  # instead of a preset's

    def spec(self) -> "RunSpec":
        from calmoe.experiments.spec import load_preset, narrowed
        from calmoe.experiments.spec_file import is_spec_file, read_spec_file
        from calmoe.plugins import load_plugin

        for plugin in self.plugins:
            load_plugin(plugin)
        if is_spec_file(self.name):
            return read_spec_file(Path(self.name))
        preset = load_preset(self.name)
        return narrowed(preset, methods=self.methods) if self.methods else preset

    def folder(self, spec: "RunSpec | None") -> Path:
        """Where its run goes if the user does not say."""
        stem = Path(self.name).stem if self.name.endswith(".toml") else self.name
        return Path("runs") / (spec.name if spec and stem == self.name else stem)


def asked(
    base: Base, changes: Changes, out: Path | None, only_report: bool, suffix: str = ""
) -> "tuple[RunSpec, Sweep | None, Path]":
    """The run that the options ask for, the sweep that its folder holds if that is read, and the folder.

    With --only-report the options change what the folder holds of this dataset, and not its preset.
    """
    from calmoe.experiments.store import RunFolder

    if only_report:
        RunFolder(out or Path(f"{base.folder(None)}{suffix}")).record()  # names what plug-ins have added
    try:
        spec = changes.applied(base.spec())
    except InputError as error:
        if "unknown " in str(error):
            _refuse_missing_plugin(out or Path(f"{base.folder(None)}{suffix}"))
        raise
    folder = out or Path(f"{base.folder(spec)}{suffix}")
    if not only_report:
        _note_unread(spec, changes.settings or [])
    record = RunFolder(folder).record() if only_report else None
    if record is None or record.spec.dataset != spec.dataset:
        return spec, None, folder
    return changes.applied(record.spec), record.sweep, folder


def _note_unread(spec: "RunSpec", settings: Sequence[str]) -> None:
    """Say which settings change nothing; they stay, as the run's next methods may read them."""
    from calmoe.experiments.sweep import unread
    from calmoe.render.wording import listed

    names = (setting.partition("=")[0].strip().rpartition(".")[2] for setting in settings)
    if (idle := unread(spec, names)) and not follows():
        say(f"note: {listed(idle)}: set, but read by no method of this run")


def _refuse_missing_plugin(folder: Path) -> None:
    """A name may be unknown because the folder's run has it from a plug-in that is not loaded: say so."""
    from calmoe.experiments.plugins import check_loaded
    from calmoe.experiments.store import RunFolder

    try:
        record = RunFolder(folder).record()
    except (InputError, OSError):
        return
    if record is not None:
        check_loaded(folder, record.plugins)


def train(spec: "RunSpec", sweep: "Sweep | None", folder: Path, how: How) -> None:
    """Train, or draw the plan, and show the results."""
    from calmoe.experiments.dry_run import show_plan
    from calmoe.experiments.runner import LOCAL, follow_run, run
    from calmoe.render.console import make_console
    from calmoe.report.terminal import show_results

    if follows():
        follow_run(spec, how.data, how.device)
        return
    console = make_console()
    if how.dry_run:
        show_plan(spec, folder, how.data, how.device, sweep=sweep, console=console)
        return
    outcome = run(
        spec,
        folder,
        how.data,
        how.device,
        sweep=sweep,
        only_report=how.only_report,
        time_limit=how.time_limit,
        tensorboard=how.tensorboard,
        engine=how.engine or LOCAL,
        console=console,
    )
    show_results(outcome, console)
    raise typer.Exit(outcome.exit_code)
