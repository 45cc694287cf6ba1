"""The commands `calmoe audit-shard` and `calmoe audit-merge`: one table, audited on many machines."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calmoe.commands.audits import has_report, on_one_class, show_audit
from calmoe.commands.options import FOLDER, Judged, Sample, reads_columns
from calmoe.commands.program import app, say
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError

if TYPE_CHECKING:
    from calmoe.auditing.streaming.shards import Place
    from calmoe.formats import Columns


@app.command("audit-shard")
@reads_columns()
def audit_shard_command(
    files: Annotated[
        list[Path], typer.Argument(help="All parquet files of the table, in their order; one will do.")
    ],
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Which shard, such as 3/8: the third of eight ranges of rows.")
    ],
    out: Annotated[Path, typer.Option("--out", "--to", help="The shard's sums, a .sums file.", **FOLDER)],
    of: Judged = "top",
    *,
    columns: "Columns",
    bins: Annotated[int, typer.Option(min=1, help="Bins of confidence.")] = BINS,
    seed: Annotated[int, typer.Option(min=0, help="Says which rows teach and which are judged.")] = 0,
    sample: Sample = None,
) -> None:
    """Count one shard of a table that is larger than memory; `calmoe audit-merge` makes one audit of all.

    Every machine gives the same files and another shard. The files count as one table, which is cut into N
    ranges of rows; only the shard's own rows are read. Where labels are names, give --classes as well: else
    every shard reads all labels to know them.

    Example: calmoe audit-shard part-*.parquet --shard 3/8 --out sums/3.sums

    Then: calmoe audit-merge sums/*.sums --out audit
    """
    from calmoe.auditing.streaming.files import shard_file
    from calmoe.auditing.streaming.run import MOST

    counted = shard_file(
        files,
        columns,
        place=_place(shard),
        out=out,
        of=of,
        bins=bins,
        seed=seed,
        sample=MOST if sample is None else sample,
    )
    say(f"{out} holds the sums of {counted.sums.rows:,} rows, shard {shard} of {counted.task.rows:,} rows")


@app.command("audit-merge")
def audit_merge_command(
    files: Annotated[list[Path], typer.Argument(help="What calmoe audit-shard wrote: every shard, once.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "--to", help="A folder for report.html, audit.json, figures.", **FOLDER),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals, between 0 and 1.")] = LEVEL,
) -> None:
    """Merge the shards of a table into one audit: the sums add up, and the sample is the whole table's.

    Example: calmoe audit-merge sums/*.sums --out audit
    """
    from calmoe.auditing.streaming.files import merge_files

    earlier = has_report(out)
    report, page, notes = merge_files(files, out=out, level=level)
    show_audit(notes, report.summary().split("\n"), page, on_one_class(report), earlier)


def _place(text: str) -> "Place":
    from calmoe.auditing.streaming.shards import Place

    numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if numbers is None or not 1 <= int(numbers[1]) <= int(numbers[2]):
        raise InputError(f"--shard {text!r}: give I/N with I from 1 to N, such as 3/8")
    return Place(int(numbers[1]), int(numbers[2]))
