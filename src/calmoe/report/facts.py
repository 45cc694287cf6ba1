"""The facts at the foot of a page: what was run, where and how."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calmoe.experiments.environment import portable
from calmoe.experiments.plugins import Plugin
from calmoe.experiments.record import Record
from calmoe.experiments.spec import dotted
from calmoe.experiments.sweep import unread
from calmoe.methods import card, method_title
from calmoe.render.grid import Entry, Grid, Heading, label
from calmoe.render.page import Code, Fact
from calmoe.report.sources import Source


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
    if record.plugins:
        lines = [
            [*map(_shown, (p.kind, p.name, p.origin, p.digest[:16], _loaded(p)))] for p in record.plugins
        ]
        titles = ("Kind", "Name", "Origin", "Digest", "For this report")
        facts["Plug-ins"] = _listing("What comes from outside of calmoe", titles, lines)
    if sessions:
        names = ("date", "device", "cores", "python", "torch", "calmoe", "commit", "command")
        lines = [[_shown({**s, "command": _typed(s)}.get(name)) for name in names] for s in sessions]
        facts["Sessions"] = _listing("One line a session", [name.capitalize() for name in names], lines)
    return facts


def _loaded(plugin: Plugin) -> str:
    return "loaded" if plugin.is_here else "not loaded: as the run's record says"


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
    document.pop("plugins", None)  # they have a table of their own
    settings = {name: name.rpartition(".")[2] for name in dotted(table)}
    idle = unread(record.spec, settings.values())
    lines = [
        [name, _shown(value) + " (no method reads it)" * (settings.get(name) in idle)]
        for name, value in {**dotted(table), **document}.items()
    ]
    backbone = record.spec.model.backbone
    return lines + [
        [f"{setting} of {method_title(method)}", "all" if setting == "views" and not value else _shown(value)]
        for method in record.methods
        for setting, value in card(method).fixed_with(backbone).items()
    ]


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
