"""Write the report on one or more run folders: page, tables, figures, their numbers, their sources."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from calmoe.data import ShiftDataset
from calmoe.errors import InputError
from calmoe.experiments.environment import portable
from calmoe.experiments.plugins import missing_plugins, united_plugins
from calmoe.experiments.store import RESULTS
from calmoe.files import inside, json_bytes
from calmoe.ownership import PAGE, owned, put
from calmoe.render.drawing import rendered
from calmoe.render.grid import Grid
from calmoe.render.page import Picture
from calmoe.report.curves_file import curves_file, parse_curves
from calmoe.report.figure_cards import Captioned, RunNumbers, draw_figures
from calmoe.report.figure_list import run_figures
from calmoe.report.folder import REPORT, left_over
from calmoe.report.images import domain_images, has_images, run_dataset, run_examples
from calmoe.report.overview import Overview, overview_figures, overview_of, overview_page, overview_tables
from calmoe.report.run_page import run_page
from calmoe.report.run_tables import tables
from calmoe.report.sources import Rows, Source, Sources, has_hard, read_targets, swept_defaults
from calmoe.report.timing import timing
from calmoe.threads import threads

Files = dict[str, bytes]  # by their names in the report's folder


def figures(
    sources: Sources, dataset: Callable[[], ShiftDataset]
) -> tuple[dict[str, Captioned], dict[str, str], Files]:
    """All figures by name; by name why one is missing; and the files with the numbers behind them."""
    spec, files = sources.record.spec, {}
    numbers = RunNumbers(
        dataset=spec.dataset,
        protocol=spec.protocol,
        target=spec.target,
        hard=has_hard(sources),
        sweeps={name: sweep.rows for name, sweep in sources.sweeps.items()},
        defaults=swept_defaults(sources),
    )
    if sources.runs:
        name, data = curves_file(sources.curves)
        files[name] = data
        numbers = numbers._replace(
            curves=parse_curves(name, data),  # as anyone can from that file
            examples=lambda: _kept(run_examples(sources, dataset()), files),
            domain_images=(lambda: domain_images(dataset(), spec.target)) if spec.target else None,
        )
    drawn, missing = draw_figures(run_figures(sources.sweeps), numbers)
    return drawn, missing, files


def _kept(examples: dict[str, Any], files: Files) -> dict[str, Any]:
    files["examples.json"] = json.dumps(examples, separators=(",", ":")).encode()  # pixels: no line each
    return examples


class Written(NamedTuple):
    """The page, its tables and figures, why a figure is missing, an older report's folders, other notes."""

    page: Path
    tables: list[str]
    figures: list[str]
    missing: dict[str, str]
    older: Sequence[str] = ()
    notes: Sequence[str] = ()  # plug-ins that are not loaded


def write_report(
    folders: Sequence[Path], to: Path | None = None, data: Path | None = None, pdf: bool = False
) -> Written:
    """Write the page, the tables in three formats, the figures and their numbers, and their sources.

    Several run folders count as one run, in which a later folder's methods replace an earlier one's; sweeps
    get sections of their own. Where the runs are on several targets, each has a report of its own in a
    folder of its name, and the page is about all of them. `to` is by default the first folder's "report";
    `data` is where the dataset's files are, for the example images; with `pdf` the figures are written as PDF
    too.
    """
    if data is not None and not data.exists():
        raise InputError(
            f"there is no {data}: --data is the folder with the dataset's files, or leave it out"
        )
    where = to or inside(folders[0], "report")
    owned(where, REPORT)  # somebody else's folder is refused before the work
    with threads(1):  # on a busy machine two take ten times as long
        targets = read_targets(folders)
        if len(targets) > 1 and to is None:
            raise InputError(
                f"runs on {len(targets)} targets make a report of their own: say where, --to DIR"
            )
        if len(targets) == 1:
            (sources,) = targets.values()
            older: Sequence[str] = left_over(where)
            made = _run_report(sources, data, pdf)
        else:
            several = overview_of(targets)
            older = left_over(where, several.folders.values())
            made = _overview_report(several, data, pdf, older)
    put(where, REPORT, made.files)
    plugins = united_plugins([], [p for s in targets.values() for e in s.all for p in e.record.plugins])
    notes = missing_plugins(plugins)
    return Written(where / PAGE, made.tables, made.figures, made.missing, older, notes)


class Made(NamedTuple):
    """A report before it is written: its files, and what `Written` says of them."""

    files: Files
    tables: list[str]
    figures: list[str]
    missing: dict[str, str]


def _run_report(sources: Sources, data: Path | None, pdf: bool) -> Made:
    dataset = cache(partial(run_dataset, sources, data))
    if data is not None and sources.runs and has_images(sources):
        dataset()  # wrong data that were asked for are refused before the work
    grids = tables(sources)
    drawn, missing, files = figures(sources, dataset)
    pictures, unsaved = _add_all(files, grids, drawn, sources.all, pdf)
    missing |= unsaved
    if sources.runs:
        files[RESULTS] = _lines(sources.rows)
        files["timing.json"] = json_bytes(timing(sources.runs))
    for name, sweep in sources.sweeps.items():
        files[f"sweep_{name}.jsonl"] = _lines(sweep.rows)
    files[PAGE] = run_page(sources, grids, pictures, missing).html().encode()
    return Made(files, list(grids), list(pictures), missing)


def _overview_report(several: Overview, data: Path | None, pdf: bool, older: Sequence[str] = ()) -> Made:
    files: Files = {}
    missing: dict[str, str] = {}
    for target, sources in several.targets.items():
        made = _run_report(sources, data, pdf)
        files |= {f"{several.folders[target]}/{name}": content for name, content in made.files.items()}
        missing |= {f"{target}/{name}": reason for name, reason in made.missing.items()}
    grids = overview_tables(several)
    curves = {target: sources.curves for target, sources in several.targets.items()}
    drawn, undrawn = overview_figures(several, curves)
    pictures, unsaved = _add_all(files, grids, drawn, several.all, pdf)
    undrawn |= unsaved
    files[RESULTS] = _lines(several.rows)
    files[PAGE] = overview_page(several, grids, pictures, undrawn, older).html().encode()
    return Made(files, list(grids), list(pictures), missing | undrawn)


def _add_all(
    files: Files,
    grids: Mapping[str, Grid],
    drawn: Mapping[str, Captioned],
    sources: Sequence[Source],
    pdf: bool,
) -> tuple[dict[str, Picture], dict[str, str]]:
    """Add the tables, the figures and their sources; the figures again for the page, or why not."""
    files["tables.md"] = "\n".join(grid.markdown() for grid in grids.values()).encode()
    for name, grid in grids.items():
        files[f"tables/{name}.tex"] = grid.latex().encode()
        files[f"tables/{name}.csv"] = grid.csv().encode()
    files["sources.json"] = json_bytes(
        portable([{**s.record.as_json(), "sessions": s.sessions} for s in sources])
    )
    pictures, missing = {}, {}
    for name, (figure, caption) in drawn.items():
        try:
            images = {kind: rendered(figure, kind) for kind in (("png", "pdf") if pdf else ("png",))}
        except InputError as error:
            missing[name] = str(error)
            continue
        files |= {f"figures/{name}.{kind}": image for kind, image in images.items()}
        pictures[name] = Picture(name, images["png"], figure.alt, caption)
    return pictures, missing


def _lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
