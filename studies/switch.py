"""What happens when training switches from ERM to the tilted mean, and which change prevents it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from calmoe.data import load_dataset
from calmoe.errors import InputError, check_known
from calmoe.experiments.environment import describe, portable
from calmoe.experiments.evaluation import evaluate
from calmoe.experiments.preparation import pick_device
from calmoe.experiments.spec import load_preset, parse_seeds
from calmoe.methods import METHODS
from calmoe.metrics import accuracy
from calmoe.render.grid import Entry, Grid, Heading, label, number
from calmoe.training import Stage, Trainer, TrainingSettings, TrainingState
from studies.rows import Difference, differences_table, less, read_lines
from studies.step_notes import StepNotes

SLOWER = {"learning rate / 3": 3, "learning rate / 10": 10}
ARMS = ("as it is", "moments forgotten", *SLOWER, "eta 0.5", "ERM")
WATCHED = 3  # epochs after the switch whose steps are noted
TARGETS = ("art_painting", "cartoon", "photo", "sketch")  # compared over the first two, three and four
COMPARED = (
    ("moments forgotten", "as it is"),
    ("learning rate / 3", "as it is"),
    ("as it is", "ERM"),
    ("moments forgotten", "ERM"),
    ("learning rate / 3", "ERM"),
)
METRICS = ("source_accuracy", "accuracy", "ece", "ece_ts", "nll_ts")
SHOWN = {
    "source_accuracy": "Source accuracy",
    "accuracy": "Target accuracy",
    "ece": "ECE",
    "temperature": "T",
    "ece_ts": "ECE+TS",
    "nll_ts": "NLL+TS",
    "worst_loss": "Highest epoch loss",
}

Row = dict[str, Any]


def switch(
    file: Annotated[Path, typer.Argument(help="The rows: shown, or continued with --data.")],
    data: Annotated[Path | None, typer.Option(help="PACS' files: train what the file lacks.")] = None,
    weights: Annotated[Path | None, typer.Option(help="A ResNet-50's ImageNet weights.")] = None,
    target: Annotated[str, typer.Option(help="The domain to test on.")] = "sketch",
    seeds: Annotated[str, typer.Option(help="Such as 42-44.")] = "42",
    arms: Annotated[str, typer.Option(help="What to continue each warm-up with.")] = ",".join(ARMS),
) -> None:
    """What does the switch to the tilted mean do on PACS?

    Every seed's warm-up is continued with Robust MoE: as it is; with AdamW's moments forgotten at the
    switch; with a third and with a tenth of the learning rate; with η = 0.5; and once with ERM. A row has
    the metrics of a model after its last epoch, its training losses by epoch and, for each step of the first
    three epochs after the switch, the gradient's norm and the step's size (root mean square, in learning
    rates). Prints a table of the rows, then what arms differ by: the mean over targets within a seed.

    Example: python -m studies switch results/pacs/switch.jsonl
    """
    if data is not None:
        _train_missing(file, data, weights, target, parse_seeds(seeds), arms.split(","))
    rows = read_lines(file)
    print(all_arms(rows).markdown())
    for grid in comparisons(rows):
        print(grid.markdown())


# --- training


def _train_missing(
    file: Path, data: Path, weights: Path | None, target: str, seeds: Sequence[int], arms: Sequence[str]
) -> None:
    """Append a row for each arm that the file lacks."""
    for arm in arms:
        check_known("arm", arm, ARMS)
    if weights is None:
        raise InputError("--data trains a ResNet-50 from ImageNet's weights: give them with --weights")
    preset, device = load_preset("pacs"), pick_device("auto")
    model = replace(preset.model, backbone="resnet50", variant="v1", weights=str(weights))
    dataset = load_dataset("pacs", data, "corrected", target, model.weights)
    trainer = Trainer(dataset, model, preset.training, device)
    done = {(row["target"], row["seed"], row["arm"]) for row in (read_lines(file) if file.exists() else [])}
    for seed in seeds:
        missing = [arm for arm in arms if (target, seed, arm) not in done]
        for arm, row in train_arms(trainer, seed, missing):
            facts = {"target": target, "seed": seed, "arm": arm, "environment": portable(describe(device))}
            with file.open("a") as stream:
                stream.write(json.dumps(facts | row) + "\n")
            print(
                f"{target} {seed} {arm}: accuracy {row['accuracy']:.3f}, highest loss {row['worst_loss']:.3f}"
            )


def train_arms(trainer: Trainer, seed: int, arms: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """One warm-up, continued with each arm; the trainer's settings are those of "as it is"."""
    if not arms:
        return
    settings = trainer.settings
    first = trainer.initial_state("mixture", seed)
    trainer.check_state("mixture", first)
    steps = -(-len(trainer.batches) // settings.batch)  # in an epoch
    (resident,) = (resident for (_, head, *_), resident in trainer.residents.items() if head == "mixture")
    with StepNotes(resident.optimizer, steps * settings.epochs) as notes:
        warmup = trainer.train(Stage.of(METHODS["vanilla"], 0, settings.warmup), seed, first)
        for arm in arms:
            own = arm_settings(settings, arm)
            method = METHODS["vanilla" if arm == "ERM" else "robust"]
            state = trainer.train(
                Stage.of(method, settings.warmup, settings.epochs), seed, warmup, settings=own
            )
            before = 0 if own.forget_moments else steps * settings.warmup
            gradient, size = notes.between(before, before + WATCHED * steps)
            yield (
                arm,
                _row(trainer, method.name, seed, state)
                | {
                    "gradient_norm": [round(value, 4) for value in gradient],
                    "step_size": [round(value, 4) for value in size],
                },
            )


def arm_settings(settings: TrainingSettings, arm: str) -> TrainingSettings:
    """What an arm changes."""
    return replace(
        settings,
        learning_rate=settings.learning_rate / SLOWER.get(arm, 1),
        forget_moments=arm == "moments forgotten",
        eta=0.5 if arm == "eta 0.5" else settings.eta,
    )


def _row(trainer: Trainer, method: str, seed: int, state: TrainingState) -> Row:
    """The metrics of a trained model, and its losses."""
    predictions = trainer.predict(state, "mixture")
    validation = predictions["validation"]
    losses = [entry["loss"] for entry in state.history]
    return evaluate(method, seed, "corrected", predictions, None) | {
        "source_accuracy": accuracy(validation.output.probs, validation.known_labels),
        "worst_loss": max(losses[trainer.settings.warmup :]),
        "losses": [round(value, 6) for value in losses],
    }


# --- tables


def all_arms(rows: Sequence[Row]) -> Grid:
    """One row a model."""

    def line(row: Row) -> tuple[Entry, ...]:
        gradient, step = max(row["gradient_norm"]), max(row["step_size"])
        return (
            label(row["target"], row["target"]),
            label(str(row["seed"]), str(row["seed"])),
            label(row["arm"], row["arm"]),
            *(number(row[name]) for name in SHOWN),
            number(gradient, 0),
            number(step, 2),
        )

    titles = {
        "target": "Target",
        "seed": "Seed",
        "arm": "After the switch",
        **SHOWN,
        "largest_gradient": "Largest gradient",
        "largest_step": "Largest step",
    }
    headings = tuple(Heading(title, (name,)) for name, title in titles.items())
    return Grid("Every arm of every seed", headings, (tuple(map(line, rows)),))


def comparisons(rows: Sequence[Row]) -> Iterator[Grid]:
    """Arms against each other, over more and more targets, with the seeds that have them all."""
    cells = {(row["arm"], row["target"], row["seed"]): row for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    for (arm, other), most in product(COMPARED, (2, 3, 4)):
        targets = TARGETS[:most]
        own = [s for s in seeds if all((a, t, s) in cells for a in (arm, other) for t in targets)]
        if own:
            yield differences_table(
                f"{arm}, less {other}: {', '.join(targets)}; seeds {', '.join(map(str, own))}",
                [_difference(cells, (arm, name), (other, base), targets, own) for name, base in PAIRS],
                "After the switch",
            )


PAIRS = [*((name, name) for name in METRICS), ("ece", "ece_ts")]


def _difference(
    cells: dict[tuple[str, str, int], Row],
    first: tuple[str, str],
    second: tuple[str, str],
    targets: Sequence[str],
    seeds: Sequence[int],
) -> Difference:
    """One arm's metric less another's, each the mean over targets within a seed."""
    a, b = (
        {seed: mean(cells[arm, target, seed][metric] for target in targets) for seed in seeds}
        for arm, metric in (first, second)
    )
    metric = (
        SHOWN[first[1]]
        if first[1] == second[1]
        else f"{SHOWN[first[1]]}, less the other's {SHOWN[second[1]]}"
    )
    return less(first[0], metric, a, b)
