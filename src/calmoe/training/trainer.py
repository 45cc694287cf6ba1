"""One trainer for CPU and GPU.

On a GPU the whole step (batch, augmentation, forward, objective, backward, AdamW) is captured in one CUDA
graph; an epoch is a row of replays that waits for nobody. On a CPU the same step runs eagerly. Models,
optimiser state and buffers keep their addresses, so that the graphs serve all seeds and methods.

On several ranks (`calmoe.training.ranks`) each takes its share of every batch. Rank 0's trainer is used like
one that is alone; the others' do what it does, each in `calmoe.training.following`. Steps run eagerly then.
"""

import hashlib
import math
import time
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path

import torch

from calmoe.averaging import estimate_statistics
from calmoe.backbones import (
    Encoder,
    load_pretrained,
)
from calmoe.data import ShiftDataset
from calmoe.errors import InputError
from calmoe.methods import GRADIENTS, LOSSES, OBJECTIVES
from calmoe.mixture import MixtureClassifier
from calmoe.objectives import Objective
from calmoe.predictions import Predictions
from calmoe.training.batch_norm import over_ranks
from calmoe.training.batches import Batches
from calmoe.training.building import check_together, make_backbone, make_head
from calmoe.training.checkpoints import TrainingState, save_state
from calmoe.training.diagnostics import tilt_diagnostics
from calmoe.training.group_check import knows_its_group
from calmoe.training.layouts import make_layout
from calmoe.training.prediction import Predictor
from calmoe.training.ranks import ALONE, Ranks
from calmoe.training.resident import AVERAGE, MOMENTS, Resident, without_moments
from calmoe.training.residents import KEPT_STEPS, Residents, let_old_go, recent
from calmoe.training.settings import ModelSettings, Stage, TrainingSettings
from calmoe.training.step import Step, captured
from calmoe.validation import check_shapes

Watch = Callable[[int, dict[str, float]], None]
STATISTICS_ROWS = 20_000  # of training, for batch norm's statistics of averaged weights


class RaisedTogether(InputError):
    """What all ranks notice at once: the leader says it, and the others listen again."""


class Diverged(RaisedTogether):
    """The loss became NaN or infinite. The message says where, and which checkpoint is the last good one."""


class Stopped(Exception):
    """The leader ended the training before its last epoch; this is a follower."""


class Trainer:
    """Trains the stages of a plan on one dataset and one device.

    `training` holds the settings of stages that bring none of their own. Steps that differ only in η are one:
    they read η from the device.
    """

    def __init__(
        self,
        dataset: ShiftDataset,
        model: ModelSettings,
        training: TrainingSettings,
        device: torch.device,
        checkpoint_seconds: float = 30.0,
        *,
        ranks: Ranks = ALONE,
    ) -> None:
        self.dataset, self.model_settings, self.settings = dataset, model, training
        self.device, self.on_gpu, self.ranks = device, device.type == "cuda", ranks
        self.captures = self.on_gpu and not ranks.several
        self.checkpoint_seconds = checkpoint_seconds
        self.generator = torch.Generator(device)
        self.batches = Batches(dataset.train, dataset, device)
        self.cursor = torch.zeros((), dtype=torch.int64, device=device)
        self.losses = torch.zeros(len(self.batches), device=device)
        self.eta = torch.tensor(training.eta, dtype=torch.float64, device=device)
        self.residents: Residents = {}
        if self.captures:
            self.pool = torch.cuda.graph_pool_handle()
        if ranks.several:
            trained_on, everything = dataset.training_fingerprint(), dataset.fingerprint()
            ranks.meet_alike({"training data": trained_on, "data": everything})
        self.layout = make_layout(training.sharding, ranks, device)
        ranks.finish_order()  # to begin: a leader that fails before just ends, and is missed at the meeting

    def for_settings(self, model: ModelSettings, training: TrainingSettings) -> "Trainer":
        """This trainer with other settings, as a sweep has them: data, buffers and residents are shared.

        Pretrained weights are this trainer's own.
        """
        other = copy(self)
        other.settings = training
        other.model_settings = replace(model, weights=self.model_settings.weights)
        return other

    def initial_state(self, head: str, seed: int) -> TrainingState:
        """The seed's weights before any training, and an optimiser that has seen nothing.

        A pretrained backbone's weights replace the seed's; the head's are the same with and without them.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self._build(head)
        if self.model_settings.weights and not isinstance(model.backbone, Encoder):
            load_pretrained(model.backbone, self.model_settings.weights)
        tensors = {f"model.{name}": value.detach().clone() for name, value in model.state_dict().items()}
        for name, parameter in model.named_parameters():
            tensors |= {f"{moment}.{name}": torch.zeros_like(parameter.detach()) for moment in MOMENTS[:2]}
            tensors[f"step.{name}"] = torch.zeros(())
        return TrainingState(epoch=0, tensors=tensors)

    def check_state(self, head: str, state: TrainingState) -> None:
        """Refuse the state of another model than the one with this head."""
        model = self._resident(head).tensors()
        if any(name.startswith(AVERAGE) for name in state.tensors):
            model |= {f"{AVERAGE}{n}": p for n, p in self._resident(head).model.named_parameters()}
        check_shapes(state.tensors, model)

    def train(
        self,
        stage: Stage,
        seed: int,
        state: TrainingState,
        folder: Path | None = None,
        watch: Watch | None = None,
        settings: TrainingSettings | None = None,
    ) -> TrainingState:
        """Train epochs [state.epoch, stage.end); with a folder, leave checkpoints there now and then.

        `settings` are the stage's own, the trainer's if not given.
        """
        settings = settings or self.settings
        self._order("train", settings, stage=asdict(stage), seed=seed, epoch=state.epoch)
        with torch.random.fork_rng(devices=[self.device] if self.on_gpu else []):
            trained = self._train(stage, seed, state, folder, watch, settings)
        self.ranks.finish_order()
        return trained

    def _train(
        self,
        stage: Stage,
        seed: int,
        state: TrainingState,
        folder: Path | None,
        watch: Watch | None,
        settings: TrainingSettings,
    ) -> TrainingState:
        self.eta.fill_(settings.eta)
        if settings.forget_moments and stage.switches and state.epoch == stage.start:
            state = without_moments(state)
        resident, averaged = self._resident(stage.head, settings), settings.average > 0
        if averaged:
            resident.keep_average()
        steps = self._steps(stage, resident, settings)
        resident.load(state)
        resident.model.train()
        history, saved, last_saved = list(state.history), state.epoch, time.monotonic()
        for epoch in range(state.epoch, stage.end):
            begin = time.perf_counter()
            self._begin(seed, epoch, resident, settings)
            for step in steps:
                step()
            record = self._record(stage, epoch, saved, resident, settings)
            history.append(record)
            due = folder is not None and time.monotonic() - last_saved >= self.checkpoint_seconds
            if self.ranks.agree(due):
                _save(resident.state(epoch + 1, history, averaged), folder)
                saved, last_saved = epoch + 1, time.monotonic()
            stop = _watched(watch, epoch, {**record, "seconds": time.perf_counter() - begin})
            if self.ranks.agree(stop is not None):
                if saved != epoch + 1:
                    _save(resident.state(epoch + 1, history, averaged), folder)
                self.ranks.finish_order()
                raise stop or Stopped
        return resident.state(stage.end, history, averaged)

    def averaged(self, state: TrainingState, head: str, seed: int) -> TrainingState:
        """The state with averaged weights instead of the last ones, and batch norm's statistics for them."""
        self._order("averaged", self.settings, epoch=state.epoch, head=head, seed=seed)
        tensors = dict(state.tensors)
        for name in [name for name in tensors if name.startswith(AVERAGE)]:
            tensors[f"model.{name.removeprefix(AVERAGE)}"] = tensors.pop(name)
        resident = self._resident(head)
        resident.load(replace(state, tensors=tensors))
        positions = torch.arange(min(len(self.batches), STATISTICS_ROWS), device=self.device)
        with torch.random.fork_rng(devices=[self.device] if self.on_gpu else []):
            self._seed(f"{seed}/statistics")
            self.batches.draw(self.generator)
            shares = map(self.ranks.own, positions.split(self.settings.batch))
            taken = (self.batches.take(at)[0] for at in shares)
            rows = (self.batches.normalise(inputs) for inputs in taken)
            estimate_statistics(resident.model.backbone, rows, resident.features)
        final = resident.state(state.epoch, state.history)
        self.ranks.finish_order()
        return final

    def predict(self, state: TrainingState, head: str, views: int = 1) -> dict[str, Predictions]:
        """What the state says about each split, as `Predictor.splits` has them."""
        self._order("predict", self.settings, epoch=state.epoch, head=head, views=views)
        resident = self._resident(head)
        resident.load(state)
        predictions = Predictor(resident.model, self.dataset, self.device, self.ranks).splits(views)
        self.ranks.finish_order()
        return predictions

    def _order(self, what: str, settings: TrainingSettings, **facts: object) -> None:
        """Tell the followers what this rank does now, and with which model and settings."""
        self.ranks.order(what, model=asdict(self.model_settings), settings=asdict(settings), **facts)

    # --- one epoch

    def _begin(self, seed: int, epoch: int, resident: Resident, settings: TrainingSettings) -> None:
        """Everything random in an epoch follows from its seed and its number."""
        self._seed(f"{seed}/{epoch}")
        self.batches.draw(self.generator)
        self.cursor.zero_()
        self.losses.zero_()
        horizon = math.pi * epoch / settings.epochs
        resident.learning_rate.fill_(settings.learning_rate * (1 + math.cos(horizon)) / 2)

    def _seed(self, name: str) -> None:
        """The same draws of rows on all ranks; dropout's are each rank's own, for its own rows."""
        digest = hashlib.sha256(name.encode()).digest()
        self.generator.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        if not self.ranks.leads:
            digest = hashlib.sha256(f"{name}/rank {self.ranks.rank}".encode()).digest()
        default = int.from_bytes(digest[8:16], "big") >> 1
        torch.manual_seed(default)  # dropout draws from the default generators: `train` gives them back

    def _record(
        self, stage: Stage, epoch: int, saved: int, resident: Resident, settings: TrainingSettings
    ) -> dict[str, float]:
        """What the epoch's losses say; losses or weights that are not finite end the run here."""
        losses = self.ranks.add(self.losses).cpu()
        bad = (~losses.isfinite()).nonzero()
        if not self.ranks.everywhere(not len(bad) and resident.is_finite()):
            self.ranks.finish_order()
            last = len(losses) - 1
            place = int(bad[0, 0]) if len(bad) else last
            what = f"the loss is {float(losses[place])}" if len(bad) else "weights are not finite"
            raise Diverged(
                f"{what} at epoch {epoch + 1}, step {place // settings.batch + 1} ({stage.objective}); "
                f"the last good checkpoint is after epoch {saved}; lower learning_rate"
            )
        record = {"epoch": epoch + 1, "loss": float(losses.double().mean())}
        if stage.objective in ("tilted", "entropic"):
            tilted = stage.objective == "tilted"
            record |= tilt_diagnostics(losses, settings.eta, settings.batch, tilted)
        return record

    def _steps(
        self, stage: Stage, resident: Resident, settings: TrainingSettings
    ) -> list[Callable[[], None]]:
        """The epoch's steps, ready to be called in order: full batches, then the rest."""
        full, rest = divmod(len(self.batches), settings.batch)
        sizes = [settings.batch] * full + [rest] * (rest > 0)
        plain, every = replace(stage, gradient="plain"), settings.sharp_every
        stages = [plain if stage.gradient == "sharp" and at % every else stage for at in range(len(sizes))]
        pairs = zip(stages, sizes, strict=True)
        return [self._step(part, resident, settings, size) for part, size in pairs]

    def _step(
        self, stage: Stage, resident: Resident, settings: TrainingSettings, size: int
    ) -> Callable[[], None]:
        rule = (stage.gradient, *(settings.value(name) for name in GRADIENTS[stage.gradient]))
        values = self._values(stage, settings)
        fixed = {name: value for name, value in values.items() if value is not self.eta}
        key = (stage.objective, stage.loss, rule, settings.average, *fixed.items(), size)

        def make() -> Callable[[], None]:
            objective = self._objective(stage, values)
            where = (self.cursor, self.losses, size, self.generator, self.ranks)
            step = Step(resident, self.batches, objective, *where)
            if stage.gradient == "rectified":
                step.rectify_with(settings.filter_fraction, settings.filter_variant)
            if stage.gradient == "sharp":
                step.sharpen(settings.rho)
            step.average(settings.average)
            # compiling the odd last batch as well would cost more than it ever saves
            compiles = size == settings.batch
            return captured(step, compiles, self.pool) if self.captures else step

        return recent(resident.steps, key, make, KEPT_STEPS)

    # --- models and objectives

    def _values(self, stage: Stage, settings: TrainingSettings) -> dict[str, object]:
        """What the objective reads, by name; η as the tensor on the device."""
        recipe = OBJECTIVES[stage.objective]
        names = (*recipe.settings, *recipe.own)
        return {name: self.eta if name == "eta" else settings.value(name) for name in names}

    def _objective(self, stage: Stage, values: dict[str, object]) -> Objective:
        objective = OBJECTIVES[stage.objective].make(**values, loss=LOSSES[stage.loss])
        from_outside = self.ranks.several and OBJECTIVES.origin(stage.objective)
        if from_outside and not knows_its_group(objective, self.ranks, self.device):
            self.ranks.finish_order()
            raise RaisedTogether(
                f"the objective {stage.objective!r} is not that of all ranks' rows: let its reduce use "
                "`group`, or train on one process (docs/extend.md)"
            )
        return objective

    def _build(self, head: str) -> MixtureClassifier:
        settings = self.model_settings
        check_together(settings.backbone, self.dataset.name, self.dataset.tokens)
        backbone = make_backbone(settings, self.dataset.input_shape)
        return MixtureClassifier(
            backbone, make_head(settings, head, backbone.out_features, self.dataset.num_classes)
        )

    def _resident(self, head: str, settings: TrainingSettings | None = None) -> Resident:
        """The model with this head and its optimiser, as the settings want them."""
        settings = settings or self.settings
        built, precision = self.model_settings, settings.precision

        def make() -> Resident:
            half = {"float32": False, "bfloat16": True, "auto": self.on_gpu}[precision]
            alike = (r for key, r in self.residents.items() if (key[0], key[3]) == (built, precision))
            model = self._build(head)
            if self.ranks.several:
                over_ranks(model, self.ranks.group, self.settings.batch_norm == "synchronised")
            return Resident(model, settings, self.device, half, next(alike, None), self.layout)

        resident = recent(self.residents, (built, head, settings.weight_decay, precision), make)
        let_old_go(self.residents)
        return resident


def _save(state: TrainingState, folder: Path | None) -> None:
    if folder is not None:
        save_state(state, folder)


def _watched(watch: Watch | None, epoch: int, entry: dict[str, float]) -> BaseException | None:
    """What whoever watches raised at the end of an epoch, to end the training there."""
    try:
        if watch is not None:
            watch(epoch, entry)
    except BaseException as stop:
        return stop
    return None
