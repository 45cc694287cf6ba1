"""The command `calmoe sweep`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calmoe.commands.options import (
    FOLDER,
    Address,
    Data,
    Device,
    DryRun,
    EngineName,
    Jobs,
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
from calmoe.commands.program import app
from calmoe.commands.several import CONTINUES, several_ranks
from calmoe.commands.training import Base, Changes, How, asked, train
from calmoe.errors import InputError, shown
from calmoe.launch import launch

if TYPE_CHECKING:
    from calmoe.experiments.spec import RunSpec
    from calmoe.experiments.sweep import Sweep


@app.command("sweep")
@several_ranks(CONTINUES)
def sweep_command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="DATASET SETTING=VALUES…",
            help="A dataset or my.toml, and settings with their values (eta=0,1,2) or ranges "
            "(learning_rate=1e-4..1e-2:log); or SETTING DATASET, with --values.",
        ),
    ],
    values: Annotated[
        str | None,
        typer.Option(
            help="Of SETTING, by commas.", show_default="0.5 to 5 for eta, 0 to 40 of 50 epochs for warmup"
        ),
    ] = None,
    paired: Annotated[
        bool,
        typer.Option("--paired", metavar="", help="The first values together, the second ones, …; no grid."),
    ] = False,
    random: Annotated[
        int | None, typer.Option(min=1, metavar="POINTS", help="So many points at random, no grid.")
    ] = None,
    optuna: Annotated[
        int | None,
        typer.Option(min=1, metavar="TRIALS", help="Optuna chooses so many points, for validation NLL+TS."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of --random and --optuna.", show_default="0")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Such as robust,entropic.", show_default="robust")
    ] = None,
    seeds: Seeds = None,
    settings: Settings = None,
    protocol: Protocol = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "--to", help="The sweep's folder; runs/DATASET-SETTING… if not given.", **FOLDER
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
    """Train over values of some settings, from shared warm-ups; run again to continue or to add.

    The point with the lowest validation NLL after a temperature is chosen; test rows take no part.

    A grid: calmoe sweep digits eta=0,1,2 warmup=5,20 --seeds 42-44

    At random: calmoe sweep digits learning_rate=1e-4..1e-2:log eta=0..4 --random 20 --seed 0

    By Optuna: calmoe sweep digits learning_rate=1e-4..1e-2:log eta=0..4 --optuna 30

    One setting: calmoe sweep eta digits --values 0,1,2,4 --seeds 42-44
    """
    how = How(data, device, dry_run, only_report, time_limit, tensorboard).on(
        engine, jobs, address, resources
    )
    dataset, axes = _split(words, only_report)
    asks = Asks(axes, values, paired, random, optuna, seed)
    asks.check()
    if axes == [""] and out is None:
        raise InputError("say which sweep: --out DIR")
    changes = Changes(methods, seeds, settings, protocol, target)
    base = Base(dataset, plugins or (), methods=("robust",))
    named = "-".join(sorted(axis.partition("=")[0].strip() for axis in axes))
    spec, recorded, folder = asked(base, changes, out, only_report, f"-{named}")
    if optuna is not None and not only_report:
        _tune(spec, folder, how, asks)
    else:
        train(spec, asks.sweep(spec, recorded), folder, how)


def _split(words: Sequence[str], only_report: bool) -> tuple[str, list[str]]:
    """The dataset, and the settings with their values; "" stands for the settings that a folder has."""
    from calmoe.data import DATASETS
    from calmoe.experiments.sweep import sweepable

    axes, names = [word for word in words if "=" in word], [word for word in words if "=" not in word]
    if not axes and len(names) == 2:  # calmoe sweep eta digits, or the other way round
        swapped = names[0] in DATASETS or names[1] in sweepable()
        setting, dataset = names[::-1] if swapped else names
        return dataset, [setting]
    if not axes and len(names) == 1 and only_report:
        return names[0], [""]
    if len(names) != 1 or not axes:
        raise InputError(
            f"sweep {shown(' '.join(words))}: name one dataset, and settings with their values, such as "
            "digits eta=0,1,2 warmup=5,20"
        )
    return names[0], axes


@dataclass(frozen=True)
class Asks:
    """What the words and options say of the points."""

    axes: Sequence[str]  # "eta=0,1,2"; "eta" alone where --values names its values, or nothing does
    values: str | None
    paired: bool
    random: int | None
    optuna: int | None
    seed: int | None

    def check(self) -> None:
        """Refuse options that do not go together."""
        ways = [f"--{name}" for name in ("paired", "random", "optuna") if getattr(self, name)]
        if len(ways) > 1:
            raise InputError(f"{' and '.join(ways)}: give one of them")
        if self.seed is not None and not (self.random or self.optuna):
            raise InputError("--seed is of --random and --optuna; --seeds names the seeds to train with")
        if self.values is not None and "=" in self.axes[0]:
            raise InputError("--values goes with SETTING DATASET: leave it out, or the =")
        if ways and "=" not in self.axes[0] and self.axes[0]:
            raise InputError(f"{ways[0]} needs values or a range, such as {self.axes[0]}=0..4")

    def sweep(self, spec: "RunSpec", recorded: "Sweep | None") -> "Sweep":
        """The sweep that is asked for; a folder's own where the words leave it to that."""
        from calmoe.experiments.search_space import (
            check_space,
            grid,
            paired,
            parse_space,
            parse_values,
            random_points,
        )

        if not self.axes[0]:
            if recorded is None:
                raise InputError("the folder holds no sweep of this dataset: leave out --only-report")
            return recorded
        if "=" not in self.axes[0]:
            setting = self.axes[0]
            if recorded is not None and recorded.settings == (setting,) and self.values is None:
                return recorded
            return parse_values(setting, self.values, spec.training.epochs)
        axes = parse_space(self.axes)
        if self.optuna and recorded is not None:
            return recorded
        if self.random:
            check_space(axes, spec)
            return random_points(axes, self.random, self.seed or 0)
        return paired(axes) if self.paired else grid(axes)


def _tune(spec: "RunSpec", folder: Path, how: How, asks: Asks) -> None:
    """Let Optuna choose the points, or draw the plan of its next one; show the results."""
    from calmoe.experiments.dry_run import show_plan
    from calmoe.experiments.runner import LOCAL
    from calmoe.experiments.search_space import parse_space
    from calmoe.experiments.tuning import Objective, next_point, tuned
    from calmoe.render.console import make_console, say
    from calmoe.report.terminal import show_results

    if launch() is not None:
        raise InputError("--optuna trains in one process: leave out torchrun")
    if how.tensorboard:
        raise InputError("--tensorboard does not go with --optuna: sweep the points that it chose")
    console, trials, seed = make_console(), asks.optuna or 0, asks.seed or 0
    axes = parse_space(asks.axes)
    objective = Objective(
        spec,
        folder,
        axes,
        how.data,
        how.device,
        time_limit=how.time_limit,
        engine=how.engine or LOCAL,
        console=console,
    )
    if not how.dry_run:
        outcome = tuned(objective, trials, seed)
        show_results(outcome, console)
        raise typer.Exit(outcome.exit_code)
    following = next_point(objective, trials, seed)
    if following is None:
        say(f"all {trials} trials are finished in {folder}", console)
        return
    number, point = following
    say(f"trial {number} of {trials} is next; the points after it follow from its result", console)
    show_plan(spec, folder, how.data, how.device, sweep=point, console=console)
