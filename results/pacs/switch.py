"""What happens when training switches from ERM to the tilted mean, and which change prevents it.

    python results/pacs/switch.py --data PACS --weights resnet50-v1-imagenet.safetensors --target sketch \
        --seeds 42,43 --out switch.jsonl

Every seed's warm-up is continued with Robust MoE: as it is; with AdamW's moments forgotten at the switch;
with a third and with a tenth of the learning rate; with η = 0.5; and once with ERM. A line of the file has
the metrics of a model after its last epoch, its training losses by epoch and, for each step of the first
three epochs after the switch, the gradient's norm and the step's size (root mean square, in units of the
learning rate). Lines that are there are not computed again; without --data the file is shown as a table,
then what arms differ by: the mean over targets within a seed, with a 95 % interval where no seed is missing.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from calmoe.experiments.records import portable

from calmoe.data import load_dataset
from calmoe.experiments.environment import describe
from calmoe.experiments.evaluation import evaluate
from calmoe.experiments.runner import pick_device
from calmoe.experiments.spec import load_preset
from calmoe.methods import METHODS
from calmoe.training import Trainer
from calmoe.training.checkpoints import TrainingState
from calmoe.training.resident import Resident
from calmoe.training.settings import Stage

sys.path.insert(0, str(Path(__file__).parent.parent))
from beyond_tables import less

SLOWER = {"learning rate / 3": 3, "learning rate / 10": 10}
ARMS = ("as it is", "moments forgotten", *SLOWER, "eta 0.5", "ERM")
WATCHED = 3  # epochs after the switch
TARGETS = ("art_painting", "cartoon", "photo", "sketch")
COMPARED = [
    ("moments forgotten", "as it is"),
    ("learning rate / 3", "as it is"),
    ("as it is", "ERM"),
    ("moments forgotten", "ERM"),
    ("learning rate / 3", "ERM"),
]
PAIRS = [(name, name) for name in ("source_accuracy", "accuracy", "ece", "ece_ts", "nll_ts")]
PAIRS += [("ece", "ece_ts")]


class WatchedTrainer(Trainer):
    """Notes the gradient's norm and the size of AdamW's step, for as many steps as `watched` says."""

    watched = 0
    notes: list[torch.Tensor]

    def _steps(self, stage: Stage, resident: Resident) -> list[Callable[[], None]]:
        return [partial(self._noted, step, resident) for step in super()._steps(stage, resident)]

    def _noted(self, step: Callable[[], None], resident: Resident) -> None:
        states = [resident.optimizer.state[parameter] for parameter in resident.parameters]
        before = [state["exp_avg"].clone() for state in states] if len(self.notes) < self.watched else []
        step()
        if before:
            self.notes.append(self._note(resident, states, before))

    @torch.no_grad()
    def _note(self, resident: Resident, states: list[Any], before: list[torch.Tensor]) -> torch.Tensor:
        """What the moments say about the step just taken."""
        group = resident.optimizer.param_groups[0]
        (beta1, beta2), eps = group["betas"], group["eps"]
        gradient = update = torch.zeros((), device=self.device)
        for state, old in zip(states, before, strict=True):
            mean, square, t = state["exp_avg"], state["exp_avg_sq"], state["step"]
            gradient = gradient + ((mean - beta1 * old) / (1 - beta1)).square().sum()
            scale = (square / (1 - beta2**t)).sqrt() + eps
            update = update + (mean / (1 - beta1**t) / scale).square().sum()
        count = sum(parameter.numel() for parameter in resident.parameters)
        return torch.stack([gradient.sqrt(), (update / count).sqrt()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    for name in ("data", "weights"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--target", default="sketch")
    parser.add_argument("--seeds", default="42")
    parser.add_argument("--arms", default=",".join(ARMS))
    given = parser.parse_args()
    if given.data is None:
        if not given.out.is_file():
            parser.error(f"{given.out} is missing: --data and --weights make it")
        rows = [json.loads(line) for line in given.out.read_text().splitlines()]
        show(rows)
        compare(rows)
        return
    preset = load_preset("pacs")
    model = replace(preset.model, backbone="resnet50", variant="v1", weights=str(given.weights))
    device = pick_device("auto")
    dataset = load_dataset("pacs", given.data, "corrected", given.target, model.weights)
    trainer = WatchedTrainer(dataset, model, preset.training, device)
    known = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {(row["target"], row["seed"], row["arm"]) for row in known}
    for seed in map(int, given.seeds.split(",")):
        arms = [arm for arm in given.arms.split(",") if (given.target, seed, arm) not in done]
        if not arms:
            continue
        trainer.settings, trainer.notes, trainer.watched = preset.training, [], 0
        warmup = trainer.train(
            Stage.of(METHODS["vanilla"], 0, preset.training.warmup),
            seed,
            trainer.initial_state("mixture", seed),
        )
        for arm in arms:
            row = one_arm(trainer, arm, seed, warmup)
            facts = {
                "target": given.target,
                "seed": seed,
                "arm": arm,
                "environment": portable(describe(device)),
            }
            with given.out.open("a") as file:
                file.write(json.dumps(facts | row) + "\n")
            print(
                given.target,
                seed,
                arm,
                f"accuracy {row['accuracy']:.3f}, highest loss {row['worst_loss']:.3f}",
            )


def one_arm(trainer: WatchedTrainer, arm: str, seed: int, warmup: TrainingState) -> dict[str, Any]:
    """Robust MoE from the warm-up on, changed as the arm says."""
    settings = load_preset("pacs").training
    method = METHODS["vanilla" if arm == "ERM" else "robust"]
    stage = Stage.of(method, settings.warmup, settings.epochs)
    trainer.settings = replace(
        settings,
        learning_rate=settings.learning_rate / SLOWER.get(arm, 1),
        forget_moments=arm == "moments forgotten",
    )
    trainer.notes, trainer.watched = [], WATCHED * -(-len(trainer.batches) // settings.batch)
    state = trainer.train(stage, seed, warmup, eta=0.5 if arm == "eta 0.5" else settings.eta)
    predictions = trainer.predict(state, "mixture")
    found = evaluate(method.name, seed, "corrected", predictions, None)
    validation = predictions["validation"]
    found["source_accuracy"] = float(
        validation.output.probs.argmax(1).eq(validation.known_labels).double().mean()
    )
    losses = [entry["loss"] for entry in state.history]
    gradient, size = torch.stack(trainer.notes).cpu().T.tolist()
    return found | {
        "worst_loss": max(losses[settings.warmup :]),
        "losses": [round(value, 6) for value in losses],
        "gradient_norm": [round(value, 4) for value in gradient],
        "step_size": [round(value, 4) for value in size],
    }


def show(rows: list[dict[str, Any]]) -> None:
    """A table in Markdown."""
    columns = [
        "Target",
        "Seed",
        "After the switch",
        "Source accuracy",
        "Target accuracy",
        "ECE",
        "T",
        "ECE+TS",
    ]
    columns += ["NLL+TS", "Highest epoch loss", "Largest gradient", "Largest step"]
    print(f"| {' | '.join(columns)} |\n|{' --- |' * 3}{' ---: |' * (len(columns) - 3)}")
    for row in rows:
        metrics = "source_accuracy", "accuracy", "ece", "temperature", "ece_ts", "nll_ts", "worst_loss"
        cells = [f"{row[name]:.3f}" for name in metrics]
        cells += [f"{max(row['gradient_norm']):.0f}", f"{max(row['step_size']):.2f}"]
        print(f"| {' | '.join([row['target'], str(row['seed']), row['arm'], *cells])} |")


def compare(rows: list[dict[str, Any]]) -> None:
    """Arms against each other, over more and more targets, with the seeds that have them all."""
    cells = {(row["arm"], row["target"], row["seed"]): row for row in rows}
    every = sorted({row["seed"] for row in rows})
    for arm, other in COMPARED:
        for targets in (TARGETS[:2], TARGETS[:3], TARGETS):
            seeds = [s for s in every if all((a, t, s) in cells for a in (arm, other) for t in targets)]
            if not seeds:
                continue
            print(f"\n{arm}, less {other}: {', '.join(targets)}; seeds {', '.join(map(str, seeds))}")
            for column, against in PAIRS:
                a, b = (
                    {seed: mean(cells[name, target, seed][metric] for target in targets) for seed in seeds}
                    for name, metric in ((arm, column), (other, against))
                )
                told = column if column == against else f"{column}, less the other's {against}"
                interval = less(a, b) if len(seeds) == len(every) else ""
                print(f"{told:32} {interval}  {' '.join(f'{a[s] - b[s]:+.3f}' for s in seeds)}")


if __name__ == "__main__":
    main()
