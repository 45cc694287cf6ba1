"""One seed's predictions, small enough for git."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from calmoe.experiments.run import Run
from calmoe.methods import source
from calmoe.predictions import Predictions

LEFT_OUT = "human_"  # columns with the annotators' own distribution


def pack(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    seed: Annotated[int, typer.Argument(help="The seed to pack.")],
    to: Annotated[Path, typer.Option(help="Where the files go.")] = Path("results/cifar10h/predictions"),
) -> None:
    """How small can one seed's predictions be kept?

    Reads the run's predictions and writes METHOD-validation.npz and METHOD-test.npz in half precision, the
    mixture left to be recomputed from its experts; `Predictions.load` reads them. Prints their sizes. ECE
    and NLL move by less than 1e-5, the hard subset's ECE after a temperature by up to 3e-3.

    Example: python -m studies pack runs/cifar10h 42
    """
    to.mkdir(parents=True, exist_ok=True)
    for model in Run.open(run).read_models("corrected", seeds=[seed]):
        if source(model.method) == model.method:  # MoCaE is Vanilla MoE's file, read otherwise
            for split in ("validation", "test"):
                path = to / f"{model.method}-{split}.npz"
                save_packed(getattr(model, split), path)
                print(f"{path} {path.stat().st_size:,} bytes")


def save_packed(predictions: Predictions, path: Path) -> None:
    """Routing and experts in half precision, labels, and groups in single precision."""
    columns = {name: column for name, column in predictions.groups.items() if not name.startswith(LEFT_OUT)}
    arrays: dict[str, Any] = {
        "log_routing": predictions.output.log_routing.numpy().astype(np.float16),
        "expert_log_probs": predictions.output.expert_log_probs.numpy().astype(np.float16),
        "labels": predictions.known_labels.numpy().astype(np.int8),
        **{k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in columns.items()},
    }
    np.savez_compressed(path, **arrays)
