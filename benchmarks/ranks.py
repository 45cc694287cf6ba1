"""How far several ranks are from one process, and why: `python -m benchmarks.ranks`.

Digits, 50 steps: two epochs of batches of 29 rows, the last of 23, so that the ranks' shares are uneven. The
judge is one process that sees the rows of every batch in another order. It differs from one process by the
order of sums alone, which nobody can ask to be better than.

- One step's gradient, at the weights that one process had before the step: nothing has grown.
- The weights after 50 steps. Two things make a difference grow. AdamW's first steps divide a gradient by its
  own size, so that a tiny one moves its weight as far as a large one: warm runs begin after an epoch of ERM.
  And a ReLU whose input is zero but for rounding is on for some and off for others: smooth runs have GELU.
"""

import argparse
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from calmoe.data import ShiftDataset, load_dataset
from calmoe.experiments.spec import load_preset
from calmoe.mixture import MixtureClassifier
from calmoe.training import Stage, Trainer, TrainingState
from calmoe.training.following import follow
from calmoe.training.ranks import ALONE, WORDS, Ranks
from calmoe.training.resident import Resident
from calmoe.training.step import Step

RULES = {  # objective and rule for the gradient
    "ERM": ("erm", "plain"),
    "tilted": ("tilted", "plain"),
    "filtered": ("filtered", "plain"),
    "FGR": ("erm", "rectified"),
    "sharp": ("erm", "sharp"),
}
ROWS, BATCH, EPOCHS, STEPS = 719, 29, 2, 50  # 24 batches of 29 and one of 23, twice


@dataclass(frozen=True)
class Case:
    """What is trained, and what counts: the weights at the end, or each step's gradient along a path."""

    rule: str
    seed: int = 42
    dtype: torch.dtype = torch.float32
    smooth: bool = False
    warm: bool = False
    along: bool = False


class DigitsTrainer(Trainer):
    """A trainer of one case. Along a path it notes gradients, and puts the weights where the path has them.

    order: a seed by which the rows of each batch are shuffled.
    """

    def __init__(
        self, case: Case, ranks: Ranks = ALONE, path: Tensor | None = None, order: int | None = None
    ) -> None:
        self.case, self.path, self.order = case, path, order
        self.gradients: list[Tensor] = []
        self.weights: list[Tensor] = []
        preset = load_preset("digits")
        settings = replace(preset.training, batch=BATCH)
        super().__init__(_digits(), preset.model, settings, torch.device("cpu"), ranks=ranks)
        self.losses = self.losses.to(case.dtype)

    def _build(self, head: str) -> MixtureClassifier:
        model = super()._build(head).to(self.case.dtype)
        if self.case.smooth:
            _smoothen(model)
        model.backbone.register_forward_pre_hook(lambda _, inputs: (inputs[0].to(self.case.dtype),))
        return model

    def _steps(self, stage: Stage, resident: Resident, settings: object) -> list:
        steps = super()._steps(stage, resident, settings)
        if self.order is not None:
            for step in {*steps}:
                _shuffle_rows(step, self.order)
        return [partial(self._noted, step, resident) for step in steps] if self.case.along else steps

    def _noted(self, step: Step, resident: Resident) -> None:
        step()
        self.gradients.append(_flat(parameter.grad for parameter in resident.parameters))
        if self.path is None:
            self.weights.append(_flat(resident.parameters))
            return
        pieces = self.path[len(self.gradients) - 1].split([p.numel() for p in resident.parameters])
        with torch.no_grad():
            for parameter, piece in zip(resident.parameters, pieces, strict=True):
                parameter.copy_(piece.view_as(parameter))


@cache
def _digits() -> ShiftDataset:
    digits = load_dataset("digits")
    return replace(digits, train=digits.train.take(range(ROWS)))


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _smoothen(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.ReLU):
            setattr(module, name, nn.GELU())
        _smoothen(child)


def _shuffle_rows(step: Step, seed: int) -> None:
    """Let the step see the rows of each batch in another order, with the same images filtered by FGR."""
    generator, take, filtered = torch.Generator().manual_seed(seed), step.take, step._filtered
    order = torch.arange(0)

    def take_shuffled(at: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal order
        order = torch.randperm(len(at), generator=generator)
        inputs, labels = take(at)
        return inputs[order], labels[order]

    def filter_as_before(inputs: Tensor, *how: object) -> Tensor:
        return filtered(inputs[order.argsort()], *how)[order]

    step.take, step._filtered = take_shuffled, filter_as_before


def trained(trainer: DigitsTrainer) -> Tensor:
    """What counts of the trainer's case: the weights [P], or the gradients [50, P]."""
    case = trainer.case
    objective, gradient = RULES[case.rule]
    stage = Stage(
        head="mixture", objective=objective, loss="cross_entropy", gradient=gradient, start=0, end=EPOCHS
    )
    state = trainer.initial_state("mixture", case.seed)
    if case.warm:
        state, stage = _after_an_epoch(replace(case, rule="ERM")), replace(stage, end=EPOCHS + 1)
    state = trainer.train(stage, case.seed, state)
    if case.along:
        return torch.stack(trainer.gradients)
    return _flat(value for name, value in state.tensors.items() if name.startswith("model."))


@cache
def _after_an_epoch(case: Case) -> TrainingState:
    """The state after an epoch of ERM on one process."""
    erm = Stage(head="mixture", objective="erm", loss="cross_entropy", gradient="plain", start=0, end=1)
    trainer = DigitsTrainer(case)
    return trainer.train(erm, case.seed, trainer.initial_state("mixture", case.seed))


def train_on_ranks(rank: int, size: int, folder: str, cases: Sequence[Case]) -> None:
    """One of `size` processes that train the cases; the first writes what came out to SIZE.pt."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{size}.init", rank=rank, world_size=size)
    ranks = Ranks(rank, size, dist.group.WORLD, dist.new_group(backend="gloo", timeout=WORDS))
    paths = torch.load(f"{folder}/paths.pt", weights_only=True)
    results = []
    for case, path in zip(cases, paths, strict=True):
        trainer = DigitsTrainer(case, ranks, path)
        if ranks.leads:
            results.append(trained(trainer))
            ranks.order("end")
        else:
            follow(trainer)
    if ranks.leads:
        torch.save(results, f"{folder}/{size}.pt")
    dist.barrier()
    dist.destroy_process_group()


class Comparison:
    """One process on every case, and how far others are from it."""

    def __init__(self, cases: Sequence[Case], folder: Path) -> None:
        self.cases, self.folder = cases, folder
        self.one: dict[Case, Tensor] = {}
        self.paths: dict[Case, Tensor | None] = {}  # the weights after each step [50, P]
        for case in cases:
            trainer = DigitsTrainer(case)
            self.one[case] = trained(trainer)
            self.paths[case] = torch.stack(trainer.weights) if case.along else None
        torch.save([*self.paths.values()], folder / "paths.pt")

    def ranks(self, size: int) -> dict[Case, Tensor]:
        """What SIZE.pt says, once that many processes have written it."""
        results = torch.load(self.folder / f"{size}.pt", weights_only=True)
        return {case: self._difference(case, each) for case, each in zip(self.cases, results, strict=True)}

    def shuffled(self, cases: Sequence[Case], order: int) -> dict[Case, Tensor]:
        """One process that sees the rows of every batch in another order."""
        return {
            case: self._difference(case, trained(DigitsTrainer(case, path=self.paths[case], order=order)))
            for case in cases
        }

    def _difference(self, case: Case, value: Tensor) -> Tensor:
        """‖g − g₁‖ / ‖g₁‖ of every step [50], or the largest of |w − w₁| at the end. []"""
        one = self.one[case].double()
        if case.along:
            return (value - one).norm(dim=1) / one.norm(dim=1)
        return (value - one).abs().max()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = range(42, 42 + parser.parse_args().seeds)
    kinds = {
        "float64": {"dtype": torch.float64},
        "smooth, warm": {"smooth": True, "warm": True},
        "smooth, cold": {"smooth": True},
        "ReLU, warm": {"warm": True},
        "ReLU, cold": {},
    }
    gradients = [Case(rule, seed, along=True) for rule in RULES for seed in seeds]
    cases = [*gradients, *(Case(r, seed, **kind) for kind in kinds.values() for r in RULES for seed in seeds)]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        comparison, rivals = Comparison(cases, Path(place)), {}
        for size in (2, 4):
            mp.start_processes(train_on_ranks, (size, place, cases), nprocs=size, start_method="spawn")
            rivals[f"{size} ranks"] = comparison.ranks(size)
        rivals["one process, rows in another order"] = comparison.shuffled(cases, order=0)
    cores = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}"
    print(f"{cores}, torch {torch.__version__}, {STEPS} steps, seeds {seeds[0]} to {seeds[-1]}")
    print("\n| gradient of one step, relative: median, largest |", " | ".join(rivals), "|")
    print("| --- |", "---: | " * len(rivals))
    for rule in RULES:
        each = [torch.cat([d[Case(rule, seed, along=True)] for seed in seeds]) for d in rivals.values()]
        shown = (f"{float(steps.median()):.1e}, {float(steps.max()):.1e}" for steps in each)
        print(f"| {rule} |", " | ".join(shown), "|")
    print(
        "\n| largest difference of a weight after 50 steps: median, largest, beyond 1e-5 |",
        " | ".join(rivals),
        "|",
    )
    print("| --- |", "---: | " * len(rivals))
    for name, kind in kinds.items():
        each = [
            torch.stack([d[Case(r, seed, **kind)] for r in RULES for seed in seeds]) for d in rivals.values()
        ]
        shown = (
            f"{float(runs.median()):.0e}, {float(runs.max()):.0e}, {int((runs > 1e-5).sum())} of {len(runs)}"
            for runs in each
        )
        print(f"| {name} |", " | ".join(shown), "|")
    print("\n| the same, seed by seed | |", " | ".join(rivals), "|")
    print("| --- | --- |", "---: | " * len(rivals))
    for name, kind in kinds.items():
        for rule in RULES:
            each = [[float(d[Case(rule, seed, **kind)]) for seed in seeds] for d in rivals.values()]
            shown = (", ".join(f"{difference:.0e}" for difference in of_seeds) for of_seeds in each)
            print(f"| {name} | {rule} |", " | ".join(shown), "|")


if __name__ == "__main__":
    main()
