"""All tables of a run: results, proper scores, paired differences, published cells, sweeps."""

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from calmoe.errors import InputError
from calmoe.experiments.run import Run
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.store import read_results
from calmoe.experiments.sweep import row_point
from calmoe.methods import card, in_order, method_title
from calmoe.render.grid import Grid
from calmoe.render.wording import listed
from calmoe.report.columns import columns_in
from calmoe.report.comparison import compare, comparison_table, no_test, verdict
from calmoe.report.eta_gamma import eta_gamma_table
from calmoe.report.published import is_published, published, table_of
from calmoe.report.rows_over_seeds import known_columns, paired, summarise
from calmoe.report.sources import Sources
from calmoe.report.sweep_points import settings_of, sweep_title
from calmoe.report.sweeps import sweep_table
from calmoe.report.tables import main_table, paired_table
from calmoe.report.titles import changes, run_title


def results_table(
    rows: Sequence[dict[str, Any]], spec: RunSpec, protocol: str, swept: Collection[str] = ()
) -> Grid:
    """The paper's table under one protocol, with the proper scores beside it; a sweep's by point."""
    dataset = run_title(spec, but=swept)
    seeds = sorted({row["seed"] for row in rows if row["protocol"] == protocol})
    title = f"{protocol} protocol; mean ± standard error over seeds {', '.join(map(str, seeds))}"
    title += views_note({row["method"] for row in rows}, spec)
    if point := row_point(rows[0]):
        return sweep_table(rows, protocol, f"{dataset}, sweep of {sweep_title([*point])}, {title}")
    summary = summarise(rows, protocol)
    columns = known_columns(summary, columns_in("main"))
    return main_table(summary, columns, f"{dataset}, {title}")


def views_note(methods: Collection[str], spec: RunSpec) -> str:
    """Which rows of a table are of pooled views, beside others that are not.

    >>> from calmoe.experiments.spec import load_preset
    >>> views_note(["vanilla", "recommended"], load_preset("digits"))
    '; Recommended: mean over all views of an image'
    """
    pooled = [method_title(method) for method in in_order(methods) if card(method).pools_views]
    texts = spec.model.backbone == "encoder"  # which have one view
    return f"; {listed(pooled)}: mean over all views of an image" if pooled and not texts else ""


def tables(sources: Sources) -> dict[str, Grid]:
    """By name: the paper's table under each protocol, seed-paired differences, published cells, sweeps."""
    record, rows = sources.record, sources.rows
    spec, protocols = record.spec, record.protocols
    dataset, paper = run_title(spec), table_of(spec.dataset, spec.target)
    grids = {}
    if rows:
        grids = {protocol: results_table(rows, spec, protocol) for protocol in protocols}
        for protocol in protocols:
            summary = summarise(rows, protocol)
            columns = known_columns(summary, columns_in("scores"))
            worst = ", and the worst group of at least 30 rows" * ("worst_group_ece" in columns)
            pooled = views_note(summary, spec)
            caption = f"{dataset}, {protocol} protocol; proper scores{worst}{pooled}"
            grids[f"{protocol}-scores"] = main_table(summary, columns, caption)
    for protocol in protocols:
        if any(row["method"] == "vanilla" for row in rows):
            columns = known_columns(summarise(rows, protocol), columns_in("paired"))
            differences = paired(rows, protocol, columns=columns)
            caption = f"{dataset}, {protocol} protocol; seed-paired difference to Vanilla MoE, 95 % interval"
            grids[f"{protocol}-paired"] = paired_table(differences, caption)
    if rows and "published" in protocols and is_published(paper):
        cells, why = compare(rows, paper), no_test("published", *changes(spec))
        beside = f"{dataset}, published protocol beside the paper's {published(paper)['table']}"
        grids["comparison"] = comparison_table(cells, f"{beside}; {verdict(cells, why)}", why)
    for name, sweep in sources.sweeps.items():
        for protocol in protocols:
            swept = settings_of(sweep.rows)
            grids[f"sweep_{name}-{protocol}"] = results_table(sweep.rows, spec, protocol, swept)
    if "eta" in sources.sweeps:
        with suppress(InputError):  # nothing that tilts was swept
            grid = eta_gamma_table(sources.sweeps["eta"].rows, spec.dataset)
            changed = ", ".join(filter(None, changes(spec, but=("eta",))))
            grids["eta_gamma"] = replace(grid, caption=f"{changed}: {grid.caption}") if changed else grid
    return grids


def beside_the_paper(run: Run, dataset: str | None = None) -> Grid:
    """The paper's table that fits the run, or `dataset` where its record names no target, beside its own."""
    spec, path = run.spec, run.path
    fitting = table_of(spec.dataset, spec.target)
    table = dataset or fitting
    if not is_published(table):
        raise InputError(f"the paper has no table for {table!r}: it has cifar10h, pacs_sketch and the like")
    if table != fitting and (spec.target or not table.startswith(f"{spec.dataset}_")):
        raise InputError(f"{path} is a run on {spec.name}: {table} is another table")
    if run.sweep:
        raise InputError(f"{path} is a sweep: the paper's table is of `calmoe run {spec.dataset}`")
    if "published" not in run.record.protocols:
        raise InputError(
            f"{path} is not judged under the published protocol: "
            f"`calmoe run {spec.dataset} --protocol published`"
        )
    cells = compare(read_results(path), table)
    if all(math.isnan(cell.mean) for cell in cells):
        raise InputError(
            f"{path} has no method of the paper's table: add some with `calmoe run {spec.dataset}`"
        )
    grid = comparison_table(cells, why=no_test("published", *changes(spec, table)))
    return replace(grid, caption=f"{run_title(spec, table)}: {grid.caption}")
