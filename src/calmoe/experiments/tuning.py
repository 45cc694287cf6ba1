"""Optuna chooses the points of a sweep: a study minimises validation NLL+TS, the mean over seeds.

A study keeps no file of its own. Its sampler's choices follow from its seed and from the values before, and
those are in the folder: the same command asks for the same points again, finds them finished, and goes on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from calmoe.errors import InputError
from calmoe.experiments.engines.work import Engine
from calmoe.experiments.open_sweep import OpenSweep
from calmoe.experiments.runner import LOCAL, Outcome, run
from calmoe.experiments.search_space import Axis, Choices, check_space, parse_axis
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.sweep import Sweep, Value, make_points, value_text
from calmoe.experiments.watcher import TimeUp
from calmoe.render.console import make_console, say

MOST_TRIALS = 1000


class Objective:
    """What a study minimises: `study.optimize(Objective(spec, out, ["eta=0..4"]), n_trials=30)`.

    A trial's point is trained in the folder `out` unless it is there; its value is the validation NLL+TS, the
    mean over the spec's seeds. A point that diverges is pruned. `space` is as `calmoe sweep` takes it.
    """

    def __init__(
        self,
        spec: RunSpec,
        out: str | Path,
        space: Sequence[str | Axis],
        data: Path | None = None,
        device: str = "auto",
        *,
        time_limit: float | None = None,
        engine: Engine = LOCAL,
        console: Console | None = None,
    ) -> None:
        self.optuna = import_optuna()
        self.axes = [parse_axis(each) if isinstance(each, str) else each for each in space]
        check_space(self.axes, spec)
        self.console = console or make_console()
        self.sweep = OpenSweep(
            spec, Path(out), data, device, time_limit=time_limit, engine=engine, console=self.console
        )
        self.asked: list[Sweep] = []  # the trials' points, each as a sweep of one

    def point(self, trial: Any) -> Sweep:
        """The point that the trial suggests, as a sweep of one."""
        values = tuple(suggested(trial, axis) for axis in self.axes)
        return make_points([axis.setting for axis in self.axes], [values])

    def __call__(self, trial: Any) -> float:
        point = self.point(trial)
        self.asked.append(point)
        value = self.sweep.validation_nll_ts(point)
        outcome = "no result" if value is None else f"validation NLL+TS {value:.4f}"
        if point.points[0] in self.sweep.given_up:
            outcome = "diverged before, not trained again"
        say(f"trial {trial.number + 1}: {_short_label(point)}: {outcome}", self.console)
        if value is None:
            raise self.optuna.TrialPruned
        return value


def _short_label(point: Sweep) -> str:
    """The point with four digits a number, such as "eta 1.695"."""
    short = [float(f"{v:.4g}") if isinstance(v, float) else v for v in point.points[0]]
    return point.label(tuple(short))


def optuna_study(objective: Objective, trials: int, seed: int = 0) -> Any:
    """An Optuna study of `trials` trials, by TPE from this seed; one that was stopped goes on where it was.

    Returns the `optuna.Study`: `study.best_params`, `study.trials_dataframe()`, optuna.visualization.
    """
    if not 1 <= trials <= MOST_TRIALS:
        raise InputError(f"a study has 1 to {MOST_TRIALS:,} trials, not {trials:,}")
    with _quiet(objective.optuna):
        study = _new_study(objective.optuna, seed)
        study.optimize(objective, n_trials=trials)
    return study


def tuned(objective: Objective, trials: int, seed: int = 0) -> Outcome:
    """How a study of `trials` trials ended; its points are a sweep like any other."""
    held = objective.sweep
    try:
        optuna_study(objective, trials, seed)
    except TimeUp:
        say(f"time is up; run the same command to continue in {held.folder.path}", objective.console)
        return Outcome(time_up=True)
    sweep = reduce(Sweep.merged, objective.asked)
    outcome = run(held.spec, held.folder.path, sweep=sweep, only_report=True, console=objective.console)
    return replace(outcome, failed=outcome.failed | held.failed)


def next_point(objective: Objective, trials: int, seed: int = 0) -> tuple[int, Sweep] | None:
    """The first trial that the folder has not finished, and its point; None: all are. Trains nothing."""
    with _quiet(objective.optuna):
        study = _new_study(objective.optuna, seed)
    for number in range(1, trials + 1):
        trial = study.ask()
        point = objective.point(trial)
        value = objective.sweep.known(point)
        if value is not None:
            study.tell(trial, value)
        elif objective.sweep.diverged(point):
            study.tell(trial, state=objective.optuna.trial.TrialState.PRUNED)
        else:
            return number, point
    return None


@contextmanager
def _quiet(optuna: ModuleType) -> Iterator[None]:
    """Without Optuna's lines: the objective has one a trial, and what a trial raises is said elsewhere."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _new_study(optuna: ModuleType, seed: int) -> Any:
    """A study in memory that minimises, with TPE from this seed."""
    return optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=seed))


def suggested(trial: Any, axis: Axis) -> Value:
    """The trial's value on an axis; a list, such as `hidden`, goes by its text."""
    if isinstance(axis, Choices):
        texts = {value_text(v) if isinstance(v, tuple) else v: v for v in axis.values}
        return texts[trial.suggest_categorical(axis.setting, [*texts])]
    suggest = trial.suggest_int if axis.whole else trial.suggest_float
    value: Value = suggest(axis.setting, axis.low, axis.high, log=axis.log)
    return value


def import_optuna() -> ModuleType:
    """Optuna, which comes with an extra."""
    try:
        import optuna
    except ImportError:
        raise InputError("a study needs Optuna: pip install 'calmoe[optuna]'") from None
    module: ModuleType = optuna
    return module
