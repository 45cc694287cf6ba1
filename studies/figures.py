"""A results folder's figures, drawn again from its numbers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from calmoe.errors import InputError
from calmoe.files import write_whole
from calmoe.render.drawing import Drawn, draw_all, rendered
from calmoe.report.curves import read_curves
from calmoe.report.eta_gamma import eta_gamma_figure
from calmoe.report.examples import examples_figure
from calmoe.report.figures import draw
from calmoe.report.published import target_titles
from calmoe.report.sweeps import sweep_figure
from calmoe.report.targets_figures import targets_dots, targets_reliability, targets_scatter
from calmoe.validation import read_document
from studies.rows import read_results


def figures(
    folder: Annotated[Path, typer.Argument(help="A results folder, or one target's folder in it.")],
    to: Annotated[Path, typer.Option(help="Where the figures go.")],
) -> None:
    """What do a results folder's numbers look like?

    Draws every figure of a report again. Reads curves.json, examples.json, sweep_*.jsonl and, of several
    targets, results.jsonl; writes NAME.png and prints the names. results/ keeps only the figures that the
    docs show: this draws the others.

    Example: python -m studies figures results/pacs/sketch --to /tmp/sketch
    """
    drawn, missing = redrawn(folder)
    to.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn.items():
        write_whole(to / f"{name}.png", rendered(figure, "png"))
        print(to / f"{name}.png")
    for name, reason in missing.items():
        print(f"no {name}: {reason}")


def redrawn(folder: Path) -> tuple[dict[str, Drawn], dict[str, str]]:
    """The figures by name, and by name why one is missing."""
    drawn: dict[str, Drawn] = {}
    missing: dict[str, str] = {}
    if (folder / "curves.json").is_file():
        drawn, missing = draw(read_curves(folder / "curves.json"))
    more, not_drawn = draw_all(_others(folder))
    if not (drawn or missing or more or not_drawn):
        raise InputError(
            f"{folder} has nothing to draw: give a folder with curves.json, such as results/cifar10h"
        )
    return drawn | more, missing | not_drawn


def _others(folder: Path) -> dict[str, Callable[[], Drawn]]:
    """What is drawn from rows and examples."""
    figures: dict[str, Callable[[], Drawn]] = {}
    if (folder / "examples.json").is_file():
        figures["examples"] = partial(examples_figure, read_document(folder / "examples.json"))
    spec = read_document(folder / "sources.json")[0]["spec"] if (folder / "sources.json").is_file() else {}
    for path in sorted(folder.glob("sweep_*.jsonl")):
        rows, setting = read_results(path), path.stem.removeprefix("sweep_")
        figures[path.stem] = partial(sweep_figure, rows, spec["protocol"], spec["training"][setting])
        if setting == "eta":
            figures["eta_gamma"] = partial(eta_gamma_figure, rows, spec["dataset"])
    if spec.get("target"):
        rows, protocol = read_results(folder / "results.jsonl"), spec["protocol"]
        titles = target_titles(spec["dataset"], {row["target"] for row in rows})
        figures["targets"] = partial(targets_dots, rows, protocol, titles)
        figures["targets_scatter"] = partial(targets_scatter, rows, protocol, titles)
        if all((folder / target / "curves.json").is_file() for target in titles):
            curves = {target: read_curves(folder / target / "curves.json") for target in titles}
            figures["targets_reliability"] = partial(targets_reliability, curves, titles)
            figures["targets_reliability_scaled"] = partial(targets_reliability, curves, titles, "scaled")
    return figures
