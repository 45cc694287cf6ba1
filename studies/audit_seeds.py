"""How much the audit's own seed changes what it says of hidden miscalibration."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from calmoe.auditing import Configurations, hidden
from calmoe.errors import InputError
from calmoe.experiments.run import Run
from calmoe.predictions import Predictions
from calmoe.render.grid import Entry, Grid, Heading, count

SEEDS, SPLITS = range(7), (1, 3, 5, 9)


def audit_seeds(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    method: Annotated[str, typer.Option(help="Whose model to audit.")] = "vanilla",
    seed: Annotated[int, typer.Option(help="The training seed of that model.")] = 42,
) -> None:
    """Does the audit's own seed change its verdict?

    Reads one model's validation split and prints p of "nothing is hidden": a row a number of splits, a
    column a seed of the audit.

    Example: python -m studies audit-seeds runs/cifar10h
    """
    trained = list(Run.open(run).read_models(seeds=[seed], methods=[method]))
    if not trained:
        raise InputError(
            f"{run} has no finished {method!r} with seed {seed}: give another --method or --seed"
        )
    print(by_splits(trained[0].validation).markdown())


def by_splits(predictions: Predictions, splits: Sequence[int] = SPLITS, seeds: Sequence[int] = SEEDS) -> Grid:
    """p_hidden of the same predictions."""
    configurations = Configurations.of(predictions)

    def cell(n: int, seed: int) -> Entry:
        p = hidden(configurations, seed=seed, splits=n).p_hidden
        return Entry(f"{p:.2g}", (p,))

    return Grid(
        "p of the hypothesis that nothing is hidden",
        (Heading("splits", ("splits",)), *(Heading(f"seed {seed}", (f"seed_{seed}",)) for seed in seeds)),
        (tuple((count(n), *(cell(n, seed) for seed in seeds)) for n in splits),),
    )
