"""What a run leaves behind for readers: a page, tables, figures, and where they came from."""

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from calmoe.data import ShiftDataset
from calmoe.errors import InputError
from calmoe.experiments import overview
from calmoe.experiments.engine import expected, results_table, threads
from calmoe.experiments.pages import run_captions, run_page
from calmoe.experiments.records import portable
from calmoe.experiments.sources import (
    Rows,
    Source,
    Sources,
    domain_images,
    has_images,
    read_targets,
    run_dataset,
    run_examples,
)
from calmoe.experiments.store import HISTORY, RESULTS, RunFolder
from calmoe.experiments.titles import changes, run_title
from calmoe.experiments.validation import read_history
from calmoe.files import write_json, write_whole
from calmoe.report import (
    Grid,
    compare,
    comparison_table,
    is_published,
    known_columns,
    main_table,
    paired,
    paired_table,
    summarise,
)
from calmoe.report.comparison import no_test, verdict
from calmoe.report.curves import read_curves, write_curves
from calmoe.report.drawing import Drawn, draw_all, save
from calmoe.report.eta_gamma import eta_gamma_figure, eta_gamma_table
from calmoe.report.examples import domain_examples, examples_figure
from calmoe.report.figures import draw
from calmoe.report.page import Picture
from calmoe.report.published import published, table_of
from calmoe.report.sweeps import sweep_caption, sweep_figure

PAIRED = ("accuracy", "nll_ts", "brier_ts", "ece", "ece_ts", "hard_ece", "hard_ece_ts")
SCORES = ("nll", "nll_ts", "brier", "brier_ts", *(f"worst_group_{n}" for n in ("accuracy", "ece", "ece_ts")))


def tables(sources: Sources) -> dict[str, Grid]:
    """By name: the paper's table under each protocol, seed-paired differences, published cells, sweeps."""
    record, rows = sources.record, sources.rows
    dataset, protocols = run_title(record["spec"]), record["protocols"]
    paper = table_of(record["spec"]["dataset"], record["spec"].get("target", ""))
    grids = {}
    if rows:
        grids = {protocol: results_table(rows, dataset, protocol) for protocol in protocols}
        for protocol in protocols:
            summary = summarise(rows, protocol)
            columns = known_columns(summary, SCORES)
            worst = ", and the worst group of at least 30 rows" * ("worst_group_ece" in columns)
            caption = f"{dataset}, {protocol} protocol; proper scores{worst}"
            grids[f"{protocol}-scores"] = main_table(summary, columns, caption)
    for protocol in protocols:
        if any(row["method"] == "vanilla" for row in rows):
            columns = known_columns(summarise(rows, protocol), PAIRED)
            differences = paired(rows, protocol, columns=columns)
            caption = f"{dataset}, {protocol} protocol; seed-paired difference to Vanilla MoE, 95 % interval"
            grids[f"{protocol}-paired"] = paired_table(differences, caption)
    if rows and "published" in protocols and is_published(paper):
        cells, why = compare(rows, paper), no_test("published", *changes(record["spec"]))
        beside = f"{dataset}, published protocol beside the paper's {published(paper)['table']}"
        grids["comparison"] = comparison_table(cells, f"{beside}; {verdict(cells, why)}", why)
    for setting, sweep in sources.sweeps.items():
        for protocol in protocols:
            swept = run_title(record["spec"], but=setting)
            grids[f"sweep_{setting}-{protocol}"] = results_table(sweep.rows, swept, protocol)
    if "eta" in sources.sweeps:
        with suppress(InputError):  # nothing that tilts was swept
            grid = eta_gamma_table(sources.sweeps["eta"].rows, record["spec"]["dataset"])
            told = ", ".join(filter(None, changes(record["spec"], but="eta")))
            grids["eta_gamma"] = replace(grid, caption=f"{told}: {grid.caption}") if told else grid
    return grids


def figures(
    sources: Sources, to: Path, dataset: Callable[[], ShiftDataset]
) -> tuple[dict[str, Drawn], dict[str, str]]:
    """All figures by name, and by name why one is missing; the numbers behind them are left in `to`."""
    drawn: dict[str, Drawn] = {}
    missing: dict[str, str] = {}
    later: dict[str, Callable[[], Drawn]] = {}
    if sources.runs:
        drawn, missing = draw(read_curves(write_curves(sources.curves, to)))  # as anyone can from that file
        later["examples"] = lambda: examples_figure(
            _kept(run_examples(sources, dataset()), to / "examples.json")
        )
    spec = sources.record["spec"]
    if sources.runs and spec.get("target"):
        later["domains"] = lambda: domain_examples(domain_images(dataset(), spec["target"]))
    for setting, sweep in sources.sweeps.items():
        default = spec["training"][setting]
        later[f"sweep_{setting}"] = partial(sweep_figure, sweep.rows, spec["protocol"], default)
    if "eta" in sources.sweeps:
        later["eta_gamma"] = partial(eta_gamma_figure, sources.sweeps["eta"].rows, spec["dataset"])
    also, not_drawn = draw_all(later)
    return drawn | also, missing | not_drawn


def _kept(found: dict[str, Any], path: Path) -> dict[str, Any]:
    write_whole(path, json.dumps(found, separators=(",", ":")).encode())  # pixels: no line each
    return found


def timing(runs: Sequence[Source]) -> dict[str, dict[str, float]]:
    """By trained method: the median seconds of an epoch after the warm-up, and over how many epochs.

    Over all seeds in all folders; of a model that a later folder replaces, that folder's.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        folder = RunFolder(run.path)
        for _, method, seed, node, done in expected(folder, run.record):
            if done and method == node.method and (method, seed) in run.trained:
                history = read_history(folder.node(node) / HISTORY)
                seconds[method] += [entry["seconds"] for entry in history if "seconds" in entry]
    return {
        method: {"median_epoch_seconds": round(statistics.median(times), 4), "epochs": len(times)}
        for method, times in sorted(seconds.items())
        if times
    }


class Written(NamedTuple):
    """The page, the names of the tables and figures, why a figure is missing, an older report's folders."""

    page: Path
    tables: list[str]
    figures: list[str]
    missing: dict[str, str]
    older: Sequence[str] = ()


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
    where = to or folders[0] / "report"
    if where.exists() and not where.is_dir():
        raise InputError(f"the report is a folder, and {where} is a file: give another with --to DIR")
    with threads(1):  # on a busy machine two take ten times as long
        targets = read_targets(folders)
        if len(targets) == 1:
            (sources,) = targets.values()
            return _write_run(sources, where, data, pdf)._replace(older=overview.left_over(where))
        if to is None:
            raise InputError(
                f"runs on {len(targets)} targets make a report of their own: say where, --to DIR"
            )
        return _write_overview(overview.overview_of(targets), to, data, pdf)


def _write_run(sources: Sources, to: Path, data: Path | None, pdf: bool) -> Written:
    dataset = cache(partial(run_dataset, sources, data))
    if data is not None and sources.runs and has_images(sources):
        dataset()  # wrong data that were asked for are refused before anything is written
    grids = tables(sources)
    to.mkdir(parents=True, exist_ok=True)
    drawn, missing = figures(sources, to, dataset)
    protocol = sources.record["spec"]["protocol"]
    swept = {f"sweep_{name}": sweep_caption(sweep.rows, protocol) for name, sweep in sources.sweeps.items()}
    pictures, unsaved = _write_all(to, grids, drawn, run_captions(sources) | swept, sources.all, pdf)
    missing |= unsaved
    if sources.runs:
        _write_rows(to / RESULTS, sources.rows)
        write_json(to / "timing.json", timing(sources.runs))
    for setting, sweep in sources.sweeps.items():
        _write_rows(to / f"sweep_{setting}.jsonl", sweep.rows)
    write_whole(to / "report.html", run_page(sources, grids, pictures, missing).html().encode())
    return Written(to / "report.html", list(grids), list(pictures), missing)


def _write_overview(of: overview.Overview, to: Path, data: Path | None, pdf: bool) -> Written:
    missing: dict[str, str] = {}
    for target, sources in of.targets.items():
        written = _write_run(sources, to / of.folders[target], data, pdf)
        missing |= {f"{target}/{name}": reason for name, reason in written.missing.items()}
    grids = overview.overview_tables(of)
    curves = {target: sources.curves for target, sources in of.targets.items()}
    drawn, undrawn = overview.overview_figures(of, curves)
    pictures, unsaved = _write_all(to, grids, drawn, overview.CAPTIONS, of.all, pdf)
    undrawn |= unsaved
    _write_rows(to / RESULTS, of.rows)
    older = overview.left_over(to, of.folders.values())
    page = overview.overview_page(of, grids, pictures, undrawn, older)
    write_whole(to / "report.html", page.html().encode())
    return Written(to / "report.html", list(grids), list(pictures), missing | undrawn, older)


def _write_all(
    to: Path,
    grids: Mapping[str, Grid],
    drawn: Mapping[str, Drawn],
    captions: Mapping[str, str],
    sources: Sequence[Source],
    pdf: bool,
) -> tuple[dict[str, Picture], dict[str, str]]:
    """The tables, the figures and their sources as files; the figures again for the page, or why not."""
    for folder in ("tables", "figures"):
        (to / folder).mkdir(parents=True, exist_ok=True)
    write_whole(to / "tables.md", "\n".join(grid.markdown() for grid in grids.values()).encode())
    for name, grid in grids.items():
        write_whole(to / "tables" / f"{name}.tex", grid.latex().encode())
        write_whole(to / "tables" / f"{name}.csv", grid.csv().encode())
    write_json(to / "sources.json", portable([{**s.record, "sessions": s.sessions} for s in sources]))
    pictures, missing = {}, {}
    for name, figure in drawn.items():
        try:
            path, *_ = save(figure, to / "figures" / name, formats=("png", "pdf") if pdf else ("png",))
            pictures[name] = Picture(name, path.read_bytes(), figure.alt, captions[name])
        except InputError as error:
            missing[name] = str(error)
    return pictures, missing


def _write_rows(path: Path, rows: Rows) -> None:
    write_whole(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode())
