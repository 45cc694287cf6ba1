"""What a run leaves behind for readers: tables, figures and their numbers, rows, and where they came from."""

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from calmoe.errors import InputError
from calmoe.experiments.curves import run_curves
from calmoe.experiments.engine import results_table
from calmoe.experiments.store import ENVIRONMENT, HISTORY, RESULTS, SPEC, RunFolder, read_results
from calmoe.files import write_json, write_whole
from calmoe.predictions import Predictions
from calmoe.report import Grid, beyond, compare, comparison_table, is_published, paired, paired_table
from calmoe.report.curves import read_curves, write_curves
from calmoe.report.drawing import save
from calmoe.report.figures import draw


def tables(run: Path) -> dict[str, Grid]:
    """By name: the paper's table under each protocol, seed-paired differences, and the published cells."""
    record = RunFolder(run).record()
    if record is None:
        raise InputError(f"{run} is not a run folder: it has no {SPEC}; `calmoe run` makes one")
    rows, dataset = read_results(run), record["spec"]["dataset"]
    grids = {protocol: results_table(rows, dataset, protocol) for protocol in record["protocols"]}
    for protocol in record["protocols"]:
        if any(row["method"] == "vanilla" for row in rows):
            differences = paired(rows, protocol)
            caption = f"{dataset}, {protocol} protocol; seed-paired difference to Vanilla MoE, 95 % interval"
            grids[f"{protocol}-paired"] = paired_table(differences, caption)
    if "published" in record["protocols"] and is_published(dataset):
        cells = compare(rows, dataset)
        known = [cell for cell in cells if not math.isnan(cell.combined_errors)]
        grids["comparison"] = comparison_table(
            cells,
            f"{dataset}, published protocol beside the paper; {len(beyond(known))} of {len(known)} cells "
            f"differ by more than 2 combined standard errors ({len(cells) - len(known)} not compared)",
        )
    return grids


def timing(run: Path) -> dict[str, dict[str, float]]:
    """By method: the median seconds of an epoch after the warm-up, and over how many epochs and seeds."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for mark in run.glob(f"nodes/*/{HISTORY}"):
        method = Predictions.load(mark.parent / "test.safetensors").metadata["method"]
        seconds[method] += [row["seconds"] for row in json.loads(mark.read_text()) if "seconds" in row]
    return {
        method: {"median_epoch_seconds": round(statistics.median(times), 4), "epochs": len(times)}
        for method, times in sorted(seconds.items())
        if times
    }


class Written(NamedTuple):
    """The names of the tables and figures, and why a figure is missing."""

    tables: list[str]
    figures: list[str]
    missing: dict[str, str]


def write_report(run: Path, to: Path) -> Written:
    """Write the tables in three formats, curves.json, the figures, and where all this comes from."""
    grids = tables(run)
    (to / "tables").mkdir(parents=True, exist_ok=True)
    write_whole(to / "tables.md", "\n".join(grid.markdown() for grid in grids.values()).encode())
    for name, grid in grids.items():
        write_whole(to / "tables" / f"{name}.tex", grid.latex().encode())
        write_whole(to / "tables" / f"{name}.csv", grid.csv().encode())
    for name in (RESULTS, SPEC, ENVIRONMENT):
        if (run / name).exists():
            write_whole(to / name, (run / name).read_bytes())
    write_json(to / "timing.json", timing(run))
    drawn, missing = draw(read_curves(write_curves(run_curves(run), to)))  # as anyone can from that file
    (to / "figures").mkdir(exist_ok=True)
    for name, figure in drawn.items():
        save(figure, to / "figures" / name, formats=("png",))
    return Written(list(grids), list(drawn), missing)
