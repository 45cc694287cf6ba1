"""A run's cells beside the paper's."""

from dataclasses import replace
from pathlib import Path

from calmoe.errors import InputError
from calmoe.experiments.records import record_of
from calmoe.experiments.spec import run_name
from calmoe.experiments.store import read_results
from calmoe.report import Grid, compare, comparison_table, is_published
from calmoe.report.comparison import no_test
from calmoe.report.published import table_of
from calmoe.report.titles import changes, run_title


def beside_the_paper(run: Path, dataset: str | None = None) -> Grid:
    """The paper's table that fits the run, or `dataset` where its record names no target, beside its own."""
    record = record_of(run)
    own, target = record["spec"]["dataset"], record["spec"].get("target", "")
    fitting = table_of(own, target)
    table = dataset or fitting
    if not is_published(table):
        raise InputError(f"the paper has no table for {table!r}: it has cifar10h, pacs_sketch and the like")
    if table != fitting and (target or not table.startswith(f"{own}_")):
        raise InputError(f"{run} is a run on {run_name(record['spec'])}: {table} is another table")
    if record.get("sweep"):
        raise InputError(f"{run} is a sweep: the paper's table is of `calmoe run {own}`")
    if "published" not in record["protocols"]:
        raise InputError(
            f"{run} is not judged under the published protocol: `calmoe run {own} --protocol published`"
        )
    cells = compare(read_results(run), table)
    if all(cell.mean != cell.mean for cell in cells):
        raise InputError(f"{run} has no method of the paper's table: add some with `calmoe run {own}`")
    grid = comparison_table(cells, why=no_test("published", *changes(record["spec"], table)))
    return replace(grid, caption=f"{run_title(record['spec'], table)}: {grid.caption}")
