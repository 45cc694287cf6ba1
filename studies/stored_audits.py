"""What the audit finds hidden in stored predictions, and where it comes from."""

from pathlib import Path
from typing import Annotated, Any

import typer

from calmoe.auditing import Configurations, Estimate, hidden
from calmoe.auditing.statistics.sequential import Lessons
from calmoe.predictions import Predictions
from calmoe.render.grid import Entry, Grid, Heading, label
from calmoe.threads import threads
from studies.processes import answers
from studies.rows import read_lines, write_lines

STORED = Path("results/audit/stored.jsonl")


def stored_audits(
    files: Annotated[list[Path] | None, typer.Argument(help="Predictions with labels.")] = None,
    rows: Annotated[Path, typer.Option(help="Written with files, else read.")] = STORED,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """How much is hidden in stored predictions, and what shows it?

    A row a file: the ECE; how far configurations are off at least; how much of that the mixture's own vector
    shows without routing; what routing adds; and where it comes from. Without files, the rows kept.

    Example: python -m studies stored-audits results/pacs/predictions/*-test.npz
    """
    if files:
        by_file = dict(answers(audited, [str(file) for file in files], jobs, "files"))
        write_lines(rows, [by_file[str(file)] for file in files])
    print(table(read_lines(rows)).markdown())


def audited(file: str) -> dict[str, Any]:
    """What is hidden in one file."""
    predictions = Predictions.load(file)
    seen = Configurations.of(predictions)
    with threads(1):
        answer = hidden(seen, Lessons(seen, 0), seed=0)

    def kept(estimate: Estimate) -> list[float]:
        return [round(value, 4) for value in (estimate.value, estimate.low)]

    return {
        "file": file,
        "rows": len(predictions),
        "ece": kept(answer.level_set),
        "witness": kept(answer.witness),
        "without_routing": kept(answer.without_routing),
        "routing_adds": kept(answer.routing_adds),
        "p_hidden": answer.p_hidden,
        "p_routing": answer.p_routing,
        "origin": answer.origin if answer.decided else "not decided",
    }


def table(rows: list[dict[str, Any]]) -> Grid:
    """A line a file; bounds are lower ends, at least 0."""

    def bound(pair: list[float]) -> Entry:
        low = max(pair[1], 0.0)
        return Entry(f"{low:.3f}", (low,))

    def line(row: dict[str, Any]) -> tuple[Entry, ...]:
        name = Path(row["file"]).stem.removesuffix("-test")
        dataset = Path(row["file"]).parts[-3]
        ece, origin = row["ece"][0], row["origin"] or "nothing found"
        return (
            label(f"{dataset} {name}", name),
            Entry(f"{row['rows']:,}", (row["rows"],)),
            Entry(f"{ece:.3f}", (ece,)),
            *(bound(row[what]) for what in ("witness", "without_routing", "routing_adds")),
            label(origin, origin),
        )

    titles = ("File", "Rows", "ECE", "Off by at least", "Own vector shows", "Routing adds", "From where")
    headings = tuple(Heading(title, (title.lower(),)) for title in titles)
    return Grid("What is hidden in stored predictions", headings, (tuple(map(line, rows)),))
