"""A run's page: what it found in words, its tables and figures, its facts."""

from collections.abc import Mapping
from dataclasses import replace

from calmoe.data import DATASETS
from calmoe.render.grid import Grid
from calmoe.render.page import Page, Picture, Point, Section, footer
from calmoe.render.wording import many
from calmoe.report.facts import run_facts
from calmoe.report.figure_list import run_figures
from calmoe.report.page_sections import page_sections
from calmoe.report.published import table_of
from calmoe.report.reproduction import reproduce
from calmoe.report.run_summary import Asked, in_words
from calmoe.report.sections import RESULTS, RUN_TABLES
from calmoe.report.sources import Sources, has_hard, swept_defaults, validation_rows
from calmoe.report.sweeps import sweep_in_words
from calmoe.report.titles import changes, run_title


def run_page(
    sources: Sources, grids: Mapping[str, Grid], pictures: Mapping[str, Picture], missing: Mapping[str, str]
) -> Page:
    """All sources as a page."""
    record = sources.record
    counted = f"{many(len(record.methods), 'method')}, {many(len(record.seeds), 'seed')}"
    swept = f", {many(len(sources.sweeps), 'sweep')}" if sources.sweeps else ""
    return Page(
        title=f"Calibration on {record.spec.name}",
        subtitle=f"{counted}{swept}; a run of calmoe",
        summary=_summary(sources),
        sections=_sections(sources, grids, pictures, missing),
        facts=run_facts(record, sources.all, reproduce(sources)),
        footer=footer(),
    )


def _summary(sources: Sources) -> list[Point]:
    record, points = sources.record, []
    spec = record.spec
    if sources.runs:
        backbone, settings = changes(spec)
        asked = Asked(
            dataset=run_title(spec),
            table=table_of(spec.dataset, spec.target),
            methods=record.methods,
            seeds=record.spec.seeds,
            added=[added.method for added in record.added],
            protocols=record.protocols,
            backbone=backbone,
            settings=settings,
            validation=validation_rows(sources),
        )
        points = in_words(sources.rows, asked)
    for sweep in sources.sweeps.values():
        points.append(sweep_in_words(sweep.rows, spec.protocol, swept_defaults(sources), sweep.missing))
    return points


def _sections(
    sources: Sources, grids: Mapping[str, Grid], pictures: Mapping[str, Picture], missing: Mapping[str, str]
) -> list[Section]:
    """The tables' sections, then the figures' and the sweeps'; that of the results says what is hard."""
    spec = sources.record.spec
    sections = page_sections(
        RUN_TABLES,
        run_figures(sources.sweeps),
        grids,
        pictures,
        missing,
        protocol=spec.protocol,
        hard=has_hard(sources),
    )
    hard = DATASETS[spec.dataset].hard if spec.dataset in DATASETS else ""
    notes = [hard] if hard else []
    return [replace(s, notes=notes) if s.heading == RESULTS.heading else s for s in sections]
