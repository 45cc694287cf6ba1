"""Example failures: the images that a run's Vanilla MoE gets wrong with the most confidence."""

from pathlib import Path
from typing import Annotated

import typer

from calmoe.files import write_whole
from calmoe.render.drawing import rendered
from calmoe.report.examples import examples_figure
from calmoe.report.images import run_dataset, run_examples
from calmoe.report.sources import read_targets


def failures(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, of several targets perhaps.")],
    data: Annotated[Path | None, typer.Option(help="The dataset's files, for the images.")] = None,
    to: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("results/pacs/published"),
) -> None:
    """Which images is a mixture most wrongly sure of?

    Draws, for each target, six test images that Vanilla MoE gets wrong with the most confidence, and what
    every method of the run says of them; prints each figure's name and its caption. Of a dataset only these
    thumbnails are kept.

    Example: python -m studies failures runs/pacs-photo runs/pacs-cartoon --data DATA
    """
    to.mkdir(parents=True, exist_ok=True)
    for target, sources in read_targets(runs).items():
        path = to / f"failures-{target or sources.record.spec.dataset}.png"
        drawn = examples_figure(run_examples(sources, run_dataset(sources, data)))
        write_whole(path, rendered(drawn, "png"))
        print(f"{path}: {drawn.alt}")
