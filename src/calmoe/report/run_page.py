"""A run's page: what it found in words, its tables and figures, and how to run it again."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calmoe.data import DATASETS
from calmoe.experiments.environment import portable
from calmoe.experiments.record import Record
from calmoe.experiments.spec import dotted, load_preset, preset_names, setting_text
from calmoe.experiments.sweep import paper_sweep
from calmoe.methods import method_title
from calmoe.render.grid import Entry, Heading, label
from calmoe.render.page import Code, Fact, Page, Picture, Point, Section, footer
from calmoe.render.wording import many, shortest
from calmoe.report import Grid
from calmoe.report.figure_cards import page_sections
from calmoe.report.figure_list import run_figures
from calmoe.report.published import table_of
from calmoe.report.sections import RESULTS, RUN_TABLES
from calmoe.report.sources import Source, Sources
from calmoe.report.summary import Asked, in_words
from calmoe.report.sweeps import sweep_in_words
from calmoe.report.titles import changed_settings, changes, run_title


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


def validation_rows(sources: Sources) -> list[int]:
    """On how many rows each model's temperature is fitted."""
    return [curves["validation_rows"] for curves in sources.curves]


def has_hard(sources: Sources) -> bool:
    """Whether the test rows have a hard subset."""
    return any(row.get("n_hard") for row in sources.rows)


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
    for setting, sweep in sources.sweeps.items():
        default = spec.training.value(setting)
        points.append(sweep_in_words(sweep.rows, spec.protocol, default, sweep.missing))
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


def run_facts(record: Record, sources: Sequence[Source], commands: str) -> dict[str, Fact]:
    """What was run, where and how."""
    sessions = [session for source in sources for session in source.sessions]
    facts: dict[str, Fact] = {
        "Dataset": record.spec.name,
        "Protocols": ", ".join(record.protocols),
        "Methods": ", ".join(method_title(method) for method in record.methods),
        "Seeds": ", ".join(map(str, record.seeds)),
        "Hardware": _each_once(s["device"] for s in sessions),
        "Code": _each_once(_version(s) for s in sessions),
        "Dates": _each_once(str(s["date"])[:10] for s in sessions),
        "To reproduce": Code(commands),
        "Settings": _listing("All settings of the run", ("Setting", "Value"), _settings(record)),
    }
    if sessions:
        names = ("date", "device", "cores", "python", "torch", "calmoe", "commit", "command")
        lines = [[_shown({**s, "command": _typed(s)}.get(name)) for name in names] for s in sessions]
        facts["Sessions"] = _listing("One line a session", [name.capitalize() for name in names], lines)
    return facts


def reproduce(sources: Sources) -> str:
    """The commands that give all this again; what the preset says already is left out."""
    name = sources.record.spec.name
    records = ([sources.record] if sources.runs else []) + [s.record for s in sources.sweeps.values()]
    folders = [f"runs/{name}"] if sources.runs else []
    folders += [f"runs/{name}-{setting}" for setting in sources.sweeps]
    return commands(records, folders)


def commands(records: Sequence[Record], report: Sequence[str]) -> str:
    """Those behind the records, then `calmoe report` with these words."""
    data = _data_option(records[0].spec.dataset)
    return "\n".join([*map(command, records), shlex.join(["calmoe", "report", *report, *data])])


def command(record: Record) -> str:
    """The `calmoe run` or `calmoe sweep` behind a record."""
    spec, sweep = record.spec, record.sweep
    words = ["calmoe", *(["sweep", sweep.setting] if sweep else ["run"]), spec.dataset]
    words += _data_option(spec.dataset)
    if sweep and sweep != paper_sweep(sweep.setting, spec.training.epochs):
        words += ["--values", ",".join(map(shortest, sweep.values))]
    defaults = load_preset(spec.dataset) if spec.dataset in preset_names() else None
    for name in ("target", "methods", "seeds", "protocol"):
        value, default = getattr(spec, name), getattr(defaults, name, "")
        if value != (("robust",) if sweep and name == "methods" else default):
            words += [f"--{name}", value if isinstance(value, str) else ",".join(map(str, value))]
    for key, value in sorted(changed_settings(spec).items()):
        words += ["--set", portable(f"{key}={setting_text(value)}")]
    return shlex.join(words)


def _data_option(dataset: str) -> list[str]:
    return ["--data", "DIR"] if dataset not in DATASETS or DATASETS[dataset].needs_folder else []


def _typed(session: Mapping[str, Any]) -> str:
    """The session's command, without the folders of one machine or of the program."""
    return shlex.join(["calmoe", *portable(session["command"][1:])])


def _version(session: Mapping[str, Any]) -> str:
    """ "calmoe 0.1.0, commit 1a2b3c4 (changed since)"."""
    commit = session.get("commit")
    version = f"calmoe {session.get('calmoe')}" + (f", commit {commit[:10]}" if commit else "")
    return version + (" (changed since)" if session.get("dirty") else "")


def _each_once(values: Iterable[object]) -> str:
    """Each once; "not recorded" for none."""
    return ", ".join(dict.fromkeys(map(str, values))) or "not recorded"


def _settings(record: Record) -> list[list[str]]:
    document = record.as_json()
    table = document.pop("spec")
    return [[name, _shown(value)] for name, value in {**dotted(table), **document}.items()]


def _listing(caption: str, titles: Sequence[str], lines: Iterable[Sequence[str]]) -> Grid:
    def row(line: Sequence[str]) -> tuple[Entry, ...]:
        return tuple(label(text, text) for text in line)

    return Grid(
        caption, tuple(Heading(title, (title.lower(),)) for title in titles), (tuple(map(row, lines)),)
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else portable(str(value))
