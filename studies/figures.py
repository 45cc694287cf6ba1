"""A results folder's figures, drawn again from its numbers."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from calmoe.errors import InputError
from calmoe.experiments.spec import from_table
from calmoe.experiments.sweep import setting_value
from calmoe.files import write_whole
from calmoe.render.drawing import rendered
from calmoe.report.curves_file import read_curves
from calmoe.report.figure_cards import Captioned, RunNumbers, TargetNumbers, draw_figures
from calmoe.report.figure_list import TARGET_FIGURES, run_figures
from calmoe.report.published import target_titles
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
        write_whole(to / f"{name}.png", rendered(figure.drawn, "png"))
        print(to / f"{name}.png")
    for name, reason in missing.items():
        print(f"no {name}: {reason}")


def redrawn(folder: Path) -> tuple[dict[str, Captioned], dict[str, str]]:
    """The figures by name, and by name why one is missing."""
    sources = folder / "sources.json"
    spec = read_document(sources)[0]["spec"] if sources.is_file() else {}
    if spec.get("target"):
        return draw_figures(TARGET_FIGURES, target_numbers(folder, spec))
    numbers = run_numbers(folder, spec)
    return draw_figures(run_figures(numbers.sweeps), numbers)


def run_numbers(folder: Path, spec: Mapping[str, Any]) -> RunNumbers:
    """What the figures of one run and its sweeps show."""
    curves = read_curves(folder / "curves.json") if (folder / "curves.json").is_file() else []
    examples = folder / "examples.json"
    paths = sorted(folder.glob("sweep_*.jsonl"))
    sweeps = {path.stem.removeprefix("sweep_"): read_results(path) for path in paths}
    if not curves and not sweeps:
        raise InputError(f"{folder} has nothing to draw: it holds neither curves.json nor sweeps")
    facts = curves[0] if curves else spec
    return RunNumbers(
        dataset=facts["dataset"],
        protocol=facts["protocol"],
        hard=any("hard" in run["rows"] for run in curves),
        curves=curves,
        examples=partial(read_document, examples) if examples.is_file() else None,
        sweeps=sweeps,
        defaults={s: setting_value(from_table(dict(spec)), s) for name in sweeps for s in name.split("-")},
    )


def target_numbers(folder: Path, spec: Mapping[str, Any]) -> TargetNumbers:
    """What the figures over several targets show; each target's curves are in a folder of its name."""
    rows = read_results(folder / "results.jsonl")
    titles = target_titles(spec["dataset"], {row["target"] for row in rows})
    curves = {target: read_curves(folder / target / "curves.json") for target in titles}
    return TargetNumbers(rows, spec["protocol"], titles, curves)
