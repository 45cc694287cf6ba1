"""The overview over several targets of one dataset: its tables, its figures, its page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from calmoe.data import DATASETS
from calmoe.experiments.record import Record
from calmoe.experiments.spec import RunSpec
from calmoe.ownership import OWNER
from calmoe.render.grid import Grid
from calmoe.render.page import Page, Picture, Section, footer
from calmoe.render.wording import listed, many
from calmoe.report.columns import columns_in
from calmoe.report.comparison import no_test, verdict
from calmoe.report.curves import Curves
from calmoe.report.facts import run_facts
from calmoe.report.figure_cards import Captioned, TargetNumbers, draw_figures
from calmoe.report.figure_list import TARGET_FIGURES
from calmoe.report.page_sections import page_sections
from calmoe.report.published import target_titles
from calmoe.report.reproduction import AGAIN, commands
from calmoe.report.rows_over_targets import MEAN, compare_by_target, paired_by_target
from calmoe.report.sections import TARGET_SECTIONS
from calmoe.report.sources import Rows, Source, Sources, united, validation_rows
from calmoe.report.tables import paired_table
from calmoe.report.targets_summary import AskedTargets, targets_in_words
from calmoe.report.targets_tables import targets_comparison_table, targets_paired_table, targets_table
from calmoe.report.titles import changes

OWN_FILES = {
    "figures",
    "tables",
    "tables.md",
    "report.html",
    "results.jsonl",
    "sources.json",
    OWNER,
}  # the overview's own


class Overview(NamedTuple):
    """Sources by target, in the report's order."""

    targets: dict[str, Sources]

    @property
    def titles(self) -> dict[str, str]:
        return target_titles(self.spec.dataset, self.targets)

    @property
    def folders(self) -> dict[str, str]:
        """Each target's folder in the report: its name, unless that is a name of the overview's own files."""
        taken = {name.casefold() for name in self.targets} | OWN_FILES
        folders = {}
        for target in self.targets:
            name = target
            while name.casefold() in (OWN_FILES if name == target else taken):
                name = f"target-{name}"
            folders[target] = name
        return folders

    @property
    def all(self) -> list[Source]:
        return [source for sources in self.targets.values() for source in sources.all]

    @property
    def record(self) -> Record:
        """One record for all: the methods and seeds of any target, and the protocols of every one."""
        first, *others = [sources.record for sources in self.targets.values()]
        whole = united([*others, first])
        common = tuple(p for p in first.protocols if all(p in record.protocols for record in others))
        spec = replace(whole.spec, target=", ".join(self.targets))
        return replace(whole, spec=spec, protocols=common, fingerprint="", training_fingerprint="")

    @property
    def spec(self) -> RunSpec:
        """What all targets share."""
        return next(iter(self.targets.values())).record.spec

    @property
    def rows(self) -> Rows:
        return [{"target": t, **row} for t, sources in self.targets.items() for row in sources.rows]

    @property
    def changes(self) -> tuple[str, str]:
        """Backbone and settings where they are not the paper's or the preset's: the same on every target."""
        return changes(self.spec)

    @property
    def name(self) -> str:
        """As captions call it."""
        return ", ".join(filter(None, [f"{self.spec.dataset} by target", *self.changes]))


def overview_of(targets: Mapping[str, Sources]) -> Overview:
    """The targets in the paper's order, or by name."""
    dataset = next(iter(targets.values())).record.spec.dataset
    return Overview({target: targets[target] for target in target_titles(dataset, targets)})


def overview_tables(overview: Overview) -> dict[str, Grid]:
    """By name, under each protocol: the paper's table, proper scores, paired differences, published cells."""
    rows, titles, record = overview.rows, overview.titles, overview.record
    grids: dict[str, Grid] = {}
    mean = f"mean over {listed(list(titles.values()))} within a seed"
    for protocol in record.protocols:
        named = f"{overview.name}, {protocol} protocol"
        means = f"{named}; mean ± standard error over seeds; last the {mean}, of the seeds that have them all"
        grids[protocol] = targets_table(rows, protocol, titles, caption=means)
        scores = columns_in("targets scores")
        grids[f"{protocol}-scores"] = targets_table(rows, protocol, titles, scores, f"{means}; proper scores")
        differences = paired_by_target(rows, protocol, titles)
        less = f"{named}; seed-paired difference to Vanilla MoE, 95 % interval"
        if differences[MEAN]:
            grids[f"{protocol}-mean"] = paired_table(differences[MEAN], f"{less}; {mean}")
        if any(differences[target] for target in titles):
            grids[f"{protocol}-paired"] = targets_paired_table(differences, titles, f"{less}, by target")
        cells = compare_by_target(rows, record.spec.dataset, protocol, titles)
        if cells:
            why = no_test(protocol, *overview.changes)
            judged = verdict(chain.from_iterable(cells.values()), why)
            caption = f"{named}; the paper's cells beside ours; {judged}"
            grids[f"{protocol}-comparison"] = targets_comparison_table(cells, titles, caption, tested=not why)
    return grids


def overview_figures(
    overview: Overview, curves: Mapping[str, list[Curves]]
) -> tuple[dict[str, Captioned], dict[str, str]]:
    """All figures by name, and by name why one is missing. curves: those of each target."""
    numbers = TargetNumbers(overview.rows, overview.spec.protocol, overview.titles, curves)
    return draw_figures(TARGET_FIGURES, numbers)


def overview_page(
    overview: Overview,
    grids: Mapping[str, Grid],
    pictures: Mapping[str, Picture],
    missing: Mapping[str, str],
    older: Sequence[str] = (),
) -> Page:
    """All targets as a page, with links to each one's own. older: folders of an older report beside them."""
    record, titles = overview.record, overview.titles
    spec = record.spec
    sections = page_sections(
        TARGET_SECTIONS, TARGET_FIGURES, grids, pictures, missing, protocol=spec.protocol, hard=False
    )
    pages = {title: f"{overview.folders[target]}/report.html" for target, title in titles.items()}
    links = {f"{title}: {page}": page for title, page in pages.items()}
    own = Section(
        heading="Each target",
        how="A whole report of each, in folders beside this page.",
        links=links,
        notes=[f"Of an older report and not of this one: {', '.join(older)}."] if older else [],
    )
    named = f"{spec.dataset}, target {', '.join(titles)}"
    counted = [(record.methods, "method"), (record.seeds, "seed"), (titles, "target")]
    return Page(
        title=f"Calibration on {spec.dataset}, by target",
        subtitle=f"{', '.join(many(len(of), noun) for of, noun in counted)}; runs of calmoe",
        summary=targets_in_words(overview.rows, _asked(overview)),
        sections=[*sections, own],
        facts=run_facts(record, overview.all, _reproduce(overview)) | {"Dataset": named},
        footer=footer(),
    )


def _asked(overview: Overview) -> AskedTargets:
    record, titles = overview.record, overview.titles
    spec, (backbone, settings) = record.spec, overview.changes
    known = DATASETS[spec.dataset].domains if spec.dataset in DATASETS else ()
    absent = [domain for domain in known if domain not in titles]
    return AskedTargets(
        dataset=spec.dataset,
        methods=record.methods,
        seeds=record.seeds,
        protocols=record.protocols,
        titles=titles,
        absent=list(target_titles(spec.dataset, absent).values()),
        backbone=backbone,
        settings=settings,
        validation=[rows for sources in overview.targets.values() for rows in validation_rows(sources)],
    )


def _reproduce(overview: Overview) -> str:
    """The commands that give all this again."""
    records = [sources.record for sources in overview.targets.values()]
    folders = [f"{AGAIN}/{record.spec.name}" for record in records]
    return commands(records, folders, ["--to", f"{AGAIN}/{overview.spec.dataset}-report"])
