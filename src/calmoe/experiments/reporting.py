"""What a run leaves behind for readers: a page, tables, figures, and where they came from."""

import json
import math
import shlex
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

import calmoe
from calmoe.errors import InputError
from calmoe.experiments.curves import run_curves
from calmoe.experiments.engine import results, results_table
from calmoe.experiments.records import Record
from calmoe.experiments.sealing import read_sealed
from calmoe.experiments.spec import load_preset
from calmoe.experiments.store import ENVIRONMENT, HISTORY, RESULTS, SPEC, RunFolder, read_results
from calmoe.files import write_json, write_whole
from calmoe.predictions import Predictions
from calmoe.report import Grid, beyond, compare, comparison_table, is_published, paired, paired_table
from calmoe.report.curves import read_curves, write_curves
from calmoe.report.drawing import save
from calmoe.report.figures import draw
from calmoe.report.grid import Entry, Heading, label
from calmoe.report.page import Code, Fact, Page, Picture, Section
from calmoe.report.summary import Asked, in_words
from calmoe.report.tables import METHODS

Rows = list[dict[str, Any]]


def _record(run: Path) -> Record:
    record = RunFolder(run).record()
    if record is None:
        raise InputError(f"{run} is not a run folder: it has no {SPEC}; `calmoe run` makes one")
    return record


def _rows(run: Path, record: Record, finished: Iterable[tuple[str, int]]) -> Rows:
    """The sealed results; computed anew where the run stopped before it wrote all of them."""
    try:
        rows = read_results(run)
    except InputError:
        rows = []
    there = {(row["method"], row["seed"]) for row in rows}
    return rows if there.issuperset(finished) else results(RunFolder(run), record)


def tables(rows: Rows, record: Record) -> dict[str, Grid]:
    """By name: the paper's table under each protocol, seed-paired differences, and the published cells."""
    dataset = record["spec"]["dataset"]
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Many small operations: on a busy machine, threads that wait for each other take ten times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Written(NamedTuple):
    """The page, the names of the tables and figures, and why a figure is missing."""

    page: Path
    tables: list[str]
    figures: list[str]
    missing: dict[str, str]


def write_report(run: Path, to: Path) -> Written:
    """Write the page, the tables in three formats, curves.json, the figures, and where it all comes from."""
    record = _record(run)
    with one_thread():
        of_runs = run_curves(run)
        rows = _rows(run, record, {(c["method"], c["seed"]) for c in of_runs})
    grids = tables(rows, record)
    (to / "tables").mkdir(parents=True, exist_ok=True)
    write_whole(to / "tables.md", "\n".join(grid.markdown() for grid in grids.values()).encode())
    for name, grid in grids.items():
        write_whole(to / "tables" / f"{name}.tex", grid.latex().encode())
        write_whole(to / "tables" / f"{name}.csv", grid.csv().encode())
    write_whole(to / RESULTS, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode())
    for name in (SPEC, ENVIRONMENT):
        if (run / name).exists():
            write_whole(to / name, (run / name).read_bytes())
    write_json(to / "timing.json", timing(run))
    drawn, missing = draw(read_curves(write_curves(of_runs, to)))  # as anyone can from that file
    (to / "figures").mkdir(exist_ok=True)
    pictures = {}
    for name, figure in drawn.items():
        (path,) = save(figure, to / "figures" / name, formats=("png",))
        pictures[name] = Picture(name, path.read_bytes(), figure.alt, CAPTIONS.get(name, name))
    page = run_page(record, _sessions(run), rows, grids, pictures, missing)
    write_whole(to / "report.html", page.html().encode())
    return Written(to / "report.html", list(grids), list(drawn), missing)


# --- the page -----------------------------------------------------------------------------------------------

CAPTIONS = {
    "reliability": "Reliability, as trained. Points above the dotted line: less sure than right; below: more "
    "sure than right. Bars are 95 % intervals; the strip shows how many rows have that confidence.",
    "reliability_scaled": "Reliability, after the temperature that validation chose.",
    "histograms": "How confident each method is, as trained. The gap is mean confidence minus accuracy: "
    "above zero is overconfident.",
    "histograms_scaled": "How confident each method is, after the temperature that validation chose.",
    "groups": "Accuracy and ECE of every group, as trained. Compare methods within a group: small groups "
    "have an inflated ECE.",
    "groups_scaled": "Accuracy and ECE of every group, after the temperature that validation chose.",
    "levels": "Accuracy and mean confidence by level of agreement. Where confidence lies above accuracy, the "
    "method is overconfident on those rows.",
    "frontier": "ECE against hard ECE as one temperature sweeps, and the lowest hard ECE that any "
    "temperature reaches within a budget of ECE. Curves that coincide differ by their temperature alone.",
    "tilt": "The tilted objectives during training: how many examples are pushed away, and how far the "
    "adversary's weights are from even (Γ_eff = 1 is even).",
    "routing": "How evenly the router spreads its weight, and how much the experts disagree, on easy and on "
    "hard rows.",
}
HOW = {
    "results": "ECE is the average gap between confidence and accuracy; NLL and Brier also reward being "
    "right. “+TS” is after one temperature fitted on validation, “hard” is the hard subset. Bold is the best "
    "mean, which alone proves nothing. Select a heading to sort.",
    "paired": "Each method minus Vanilla MoE, seed by seed. Below zero is better. Bold intervals leave out "
    "zero; they are not corrected for their number.",
    "comparison": "The paper's cells beside ours. A difference of more than two combined standard errors is "
    "marked.",
    "confidence": "Is a method right as often as it says? Perfect calibration lies on the dotted line. "
    "All figures: {protocol} protocol, with temperatures fitted to convergence.",
    "groups": "A method can be calibrated on average and not within any group.",
    "frontier": "Much of a method's advantage can be its temperature. This asks what is left when every "
    "method may choose its own.",
    "inside": "What the objective, the router and the experts do.",
}
FIGURES = {
    "Confidence and accuracy": (
        "confidence",
        ("reliability", "reliability_scaled", "histograms", "histograms_scaled"),
    ),
    "Groups": ("groups", ("groups", "groups_scaled", "levels")),
    "What a temperature can do": ("frontier", ("frontier",)),
    "Inside the mixture": ("inside", ("tilt", "routing")),
}


def run_page(
    record: Record,
    sessions: Sequence[Mapping[str, Any]],
    rows: Rows,
    grids: Mapping[str, Grid],
    pictures: Mapping[str, Picture],
    missing: Mapping[str, str],
) -> Page:
    """A run as a page: what it found in words, its tables and figures, and how to run it again."""
    spec = record["spec"]
    asked = Asked(
        dataset=spec["dataset"],
        methods=spec["methods"],
        seeds=spec["seeds"],
        protocols=record["protocols"],
    )
    return Page(
        title=f"Calibration on {spec['dataset']}",
        subtitle=f"{_many(spec['methods'], 'method')}, {_many(spec['seeds'], 'seed')}; a run of calmoe",
        summary=in_words(rows, asked),
        sections=[*_table_sections(grids), *_figure_sections(pictures, missing, spec["protocol"])],
        facts=_facts(record, sessions),
        footer=f"Written by calmoe {calmoe.__version__}. This file is whole: it needs no network.",
    )


def _table_sections(grids: Mapping[str, Grid]) -> list[Section]:
    paired_grids = [grid for name, grid in grids.items() if name.endswith("-paired")]
    comparison = [grid for name, grid in grids.items() if name == "comparison"]
    others = [grid for grid in grids.values() if grid not in (*paired_grids, *comparison)]
    sections = {
        "Results": ("results", others),
        "Against Vanilla MoE": ("paired", paired_grids),
        "Beside the paper": ("comparison", comparison),
    }
    return [
        Section(heading=heading, how=HOW[how], tables=of) for heading, (how, of) in sections.items() if of
    ]


def _figure_sections(
    pictures: Mapping[str, Picture], missing: Mapping[str, str], protocol: str
) -> list[Section]:
    known = [name for _, names in FIGURES.values() for name in names]
    others = tuple(name for name in (*pictures, *missing) if name not in known)
    figures = FIGURES | ({"More figures": ("", others)} if others else {})
    return [
        Section(
            heading=heading,
            how=HOW.get(how, "").format(protocol=protocol),
            figures=[pictures[name] for name in names if name in pictures],
            notes=[f"Not drawn, {name}: {missing[name]}." for name in names if name in missing],
        )
        for heading, (how, names) in figures.items()
    ]


def _facts(record: Record, sessions: Sequence[Mapping[str, Any]]) -> dict[str, Fact]:
    spec = record["spec"]
    facts: dict[str, Fact] = {
        "Dataset": spec["dataset"],
        "Protocols": ", ".join(record["protocols"]),
        "Methods": ", ".join(METHODS.get(method, method) for method in spec["methods"]),
        "Seeds": ", ".join(map(str, spec["seeds"])),
        "Hardware": _told(s["device"] for s in sessions),
        "Code": _told(_version(s) for s in sessions),
        "Dates": _told(str(s["date"])[:10] for s in sessions),
        "To reproduce": Code(reproduce(record, sessions)),
        "Settings": _listing("All settings of the run", ("Setting", "Value"), _flat(record)),
    }
    if sessions:
        names = ("date", "device", "cores", "python", "torch", "calmoe", "commit", "command")
        typed = [{**session, "command": shlex.join(session["command"])} for session in sessions]
        lines = [[_shown(session.get(name)) for name in names] for session in typed]
        facts["Sessions"] = _listing("One line a session", [name.capitalize() for name in names], lines)
    return facts


def reproduce(record: Record, sessions: Sequence[Mapping[str, Any]] = ()) -> str:
    """The commands that give this run again; what the preset says already is left out."""
    spec = record["spec"]
    try:
        preset = json.loads(json.dumps(asdict(load_preset(spec["dataset"]))))
    except InputError:  # not one of the presets: as it was typed
        return shlex.join(sessions[-1]["command"]) if sessions else "not recorded"
    words = ["calmoe", "run", spec["dataset"], *([] if spec["dataset"] == "digits" else ["--data", "DIR"])]
    for name in ("methods", "seeds", "protocol"):
        if spec[name] != preset[name]:
            value = spec[name] if name == "protocol" else ",".join(map(str, spec[name]))
            words += [f"--{name}", value]
    for section in ("model", "training"):
        changed = {key for key, value in spec[section].items() if value != preset[section].get(key)}
        changed |= {"warmup"} if "epochs" in changed else set()  # which would follow the epochs
        for key in sorted(changed):
            words += ["--set", f"{key}={json.dumps(spec[section][key])}"]
    return f"{shlex.join(words)}\ncalmoe report runs/{spec['dataset']}"


def _sessions(run: Path) -> list[dict[str, Any]]:
    """Who worked on the run; nothing where that file is gone or damaged."""
    try:
        return list(read_sealed(run / ENVIRONMENT)["sessions"])
    except (OSError, InputError):
        return []


def _version(session: Mapping[str, Any]) -> str:
    """ "calmoe 0.1.0, commit 1a2b3c4 (changed since)"."""
    commit = session.get("commit")
    told = f"calmoe {session.get('calmoe')}" + (f", commit {commit[:10]}" if commit else "")
    return told + (" (changed since)" if session.get("dirty") else "")


def _told(values: Iterable[object]) -> str:
    """Each once; "not recorded" for none."""
    return ", ".join(dict.fromkeys(map(str, values))) or "not recorded"


def _flat(record: Record) -> list[list[str]]:
    spec = record["spec"]
    plain = {name: value for name, value in spec.items() if not isinstance(value, dict)}
    nested = {f"{part}.{k}": v for part in ("model", "training") for k, v in spec[part].items()}
    rest = {name: value for name, value in record.items() if name != "spec"}
    return [[name, _shown(value)] for name, value in (plain | nested | rest).items()]


def _listing(caption: str, titles: Sequence[str], lines: Iterable[Sequence[str]]) -> Grid:
    def row(line: Sequence[str]) -> tuple[Entry, ...]:
        return tuple(label(text, text) for text in line)

    return Grid(
        caption, tuple(Heading(title, (title.lower(),)) for title in titles), (tuple(map(row, lines)),)
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _many(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"
