"""What a run leaves behind for readers: its tables in three formats, its rows, and where it came from."""

import shutil
from pathlib import Path

from calmoe.errors import InputError
from calmoe.experiments.engine import results_table
from calmoe.experiments.store import ENVIRONMENT, RESULTS, SPEC, RunFolder, read_results
from calmoe.files import write_whole
from calmoe.report import Grid, beyond, compare, comparison_table, is_published, paired, paired_table


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
        far = len(beyond(cells))
        caption = f"{dataset}, published protocol beside the paper; {far} of {len(cells)} cells beyond 2"
        grids["comparison"] = comparison_table(cells, f"{caption} combined standard errors")
    return grids


def write_report(run: Path, to: Path) -> list[str]:
    """Write tables.md, a LaTeX and a CSV file a table, and copy the run's rows, spec and environment."""
    grids = tables(run)
    (to / "tables").mkdir(parents=True, exist_ok=True)
    write_whole(to / "tables.md", "\n".join(grid.markdown() for grid in grids.values()).encode())
    for name, grid in grids.items():
        write_whole(to / "tables" / f"{name}.tex", grid.latex().encode())
        write_whole(to / "tables" / f"{name}.csv", grid.csv().encode())
    for name in (RESULTS, SPEC, ENVIRONMENT):
        shutil.copyfile(run / name, to / name)
    return list(grids)
