"""A sweep's folder that stays open: points are trained as they are asked for, and judged on validation."""

import math
import time
from pathlib import Path

import torch
from rich.console import Console

from calmoe.errors import InputError
from calmoe.experiments.engines.work import Engine, Work
from calmoe.experiments.evaluation import validation_nll_ts
from calmoe.experiments.preparation import describe_run, load_data
from calmoe.experiments.run import Run
from calmoe.experiments.runner import LOCAL
from calmoe.experiments.same_run import joined
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.store import RunFolder
from calmoe.experiments.sweep import Point, Sweep
from calmoe.experiments.watcher import Watcher
from calmoe.render.console import make_console, say_notes
from calmoe.threads import threads


class OpenSweep:
    """Trains one point after the other in one folder; what the folder holds is not trained again.

    The folder is locked while a point is trained, and free in between.
    """

    def __init__(
        self,
        spec: RunSpec,
        out: Path,
        data: Path | None = None,
        device: str = "auto",
        *,
        time_limit: float | None = None,
        engine: Engine = LOCAL,
        console: Console | None = None,
    ) -> None:
        if len(spec.methods) != 1:
            raise InputError(
                f"a study tunes one method, not {', '.join(spec.methods)}: give --methods robust"
            )
        self.spec, self.folder = spec, RunFolder(out)
        self.deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        self.console = console or make_console()
        self.engine, self.device = engine, engine.device(device)
        self.dataset = load_data(self.folder, spec, data, self.console)
        self.work = Work(
            spec=spec,
            dataset=self.dataset,
            data=data,
            device=self.device,
            threads=1 if spec.model.backbone == "mlp" else torch.get_num_threads(),
        )
        self.trains = False  # whether this session stands in the folder's environment.json
        self.checked: dict[str, dict[str, str]] = {}  # digests of nodes that this process has looked at
        self.failed: dict[str, str] = {}  # by name of a model: why it has no result
        self.given_up: set[Point] = set()  # a model of them had diverged, and was not trained again

    def validation_nll_ts(self, sweep: Sweep) -> float | None:
        """The mean over seeds at the sweep's one point, trained if it is not there; None: one diverged."""
        record = describe_run(self.spec, self.dataset, self.device.type, sweep)
        with self.folder.locked(), threads(self.work.threads):
            old = self.folder.record()
            whole = joined(self.folder.path, old, record)
            if whole != old:
                self.folder.write_record(whole)
            run = Run(self.folder, whole, self.checked)
            self._train(run, sweep)
            self.checked |= run.sealed
            return self._mean(run, sweep)

    def known(self, sweep: Sweep) -> float | None:
        """The same, if the folder holds it: nothing is trained or written."""
        return self._mean(self._run(sweep), sweep)

    def diverged(self, sweep: Sweep) -> bool:
        """Whether nothing is left to train at the sweep's one point, as a model diverged there."""
        run = self._run(sweep)
        return not run.to_do(self.spec, sweep) and bool(run.diverged_notes(self.spec, sweep))

    def _run(self, sweep: Sweep) -> Run:
        """The folder's run with the sweep's point added, as it would be; nothing is written."""
        record = describe_run(self.spec, self.dataset, self.device.type, sweep)
        return Run(self.folder, joined(self.folder.path, self.folder.record(), record))

    def _train(self, run: Run, sweep: Sweep) -> None:
        if run.diverged_notes(self.spec, sweep):
            self.given_up |= {*sweep.points}
        missing = run.to_do(self.spec, sweep)
        if not missing:
            return
        if not self.trains:
            say_notes(self.folder.add_session(self.engine.session(self.device)), self.console)
            self.trains = True
        watcher = Watcher(self.console, sum(node.epochs for node in missing), self.deadline)
        with watcher:
            self.failed |= self.engine.train(missing, self.work, run, watcher)

    def _mean(self, run: Run, sweep: Sweep) -> float | None:
        spec, (point,) = self.spec, sweep.points
        models = [
            m
            for m in run.finished()
            if m.point == point and m.method in spec.methods and m.seed in spec.seeds
        ]
        losses = [validation_nll_ts(m.method, spec.protocol, self.folder.predictions(m.key)) for m in models]
        known = [loss for loss in losses if loss is not None]
        return math.fsum(known) / len(known) if len(known) == len(spec.seeds) else None
