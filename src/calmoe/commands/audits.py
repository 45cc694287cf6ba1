"""The command `calmoe audit`: audit a file of predictions, or several side by side."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calmoe.commands.options import (
    FOLDER,
    Cluster,
    Judged,
    Sample,
    check_cases,
    predictions_at,
    reads_columns,
)
from calmoe.commands.program import app, say
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError

if TYPE_CHECKING:
    from calmoe.auditing import AuditReport
    from calmoe.auditing.streaming.files import Outcome
    from calmoe.formats import Columns


@app.command("audit")
@reads_columns()
def audit_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Predictions with labels: safetensors, npz, csv or parquet, one file a model; or the folder "
            "of a model, for the rows that it held out."
        ),
    ],
    target: Annotated[
        Path | None, typer.Option(help="Predictions elsewhere, labels not needed: what will they be worth?")
    ] = None,
    labelled_target: Annotated[
        Path | None, typer.Option(help="Some rows from there with labels, to test the assumption.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "--to", help="A folder for report.html, audit.json, figures.", **FOLDER),
    ] = None,
    of: Judged = "top",
    *,
    columns: "Columns",
    cluster: Cluster = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of confidence.")] = BINS,
    level: Annotated[float, typer.Option(help="Of the intervals, between 0 and 1.")] = LEVEL,
    seed: Annotated[int, typer.Option(min=0, help="Says which rows teach and which are judged.")] = 0,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", metavar="", help="Read a parquet file in parts: it need not fit into memory."
        ),
    ] = False,
    as_one: Annotated[
        bool,
        typer.Option("--as-one", metavar="", help="With --stream: several files are parts of one table."),
    ] = False,
    sample: Sample = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="With --stream: spread it over a Ray cluster; local starts one."
        ),
    ] = None,
) -> None:
    """Audit a model's probabilities: are they true, for whom not, what breaks them, and what to do.

    Several files, one a model, are compared: which to deploy, and why.

    A safetensors or npz file holds probs [N, C] and labels [N] and, for a mixture, routing [N, K] and
    expert_probs [N, K, C]; csv and parquet files have columns prob_0, …, label, routing_0, …,
    expert_0_prob_0, … (docs/audit.md). Name columns of other tools by options; what is certain needs none.

    Example: calmoe audit credit-model --out audit

    Example: calmoe audit test.csv --out audit

    Example: calmoe audit validation.safetensors --target elsewhere.safetensors

    Example: calmoe audit preds.csv --label y --probs p_cat,p_dog --groups region

    Example: calmoe audit vanilla.npz robust.npz --out comparison

    A parquet file larger than memory is streamed: sums of all rows, and a sample that the learning parts see.

    Example: calmoe audit part-*.parquet --stream --as-one --out audit
    """
    from calmoe.arrays import check_bins
    from calmoe.auditing.files import audit_files, compare_files
    from calmoe.auditing.presentation.comparison_page import comparison_lines

    check_bins(bins)
    given, files = files, [predictions_at(file) for file in files]
    for file in given:
        check_cases(file, cluster)
    earlier = has_report(out)
    targeted = target is not None or labelled_target is not None
    if stream:
        _check_streamed(len(files), as_one, targeted, cluster)
    elif as_one or sample is not None or ray is not None:
        raise InputError("--as-one, --sample and --ray go with --stream: give it as well")
    if len(files) > 1 and targeted:
        raise InputError("--target goes with one file: audit one model at a time")
    asked: dict[str, Any] = {"out": out, "of": of, "bins": bins, "level": level, "seed": seed}
    if stream or (len(files) == 1 and not targeted and cluster is None and _too_large(files[0])):
        report, page, notes = _streamed(files, columns, sample, ray, **asked)
        lines = report.summary(str(files[0]) if len(files) == 1 else None, None, columns.words).split("\n")
        more = on_one_class(report)
    elif len(files) > 1:
        comparison, page, notes = compare_files(files, columns, cluster=cluster, **asked)
        lines, more = comparison_lines(comparison), ""
    else:
        paths = (files[0], target, labelled_target)
        report, page, notes = audit_files(paths, columns, cluster=cluster, **asked)
        model = str(given[0]) if given != files else None
        lines = report.summary(str(given[0]), model, columns.words, cluster).split("\n")
        more = on_one_class(report)
    show_audit(notes, lines, page, more, earlier)


def has_report(out: Path | None) -> bool:
    """Whether the folder holds a report already, which the audit will replace."""
    from calmoe.ownership import PAGE

    return out is not None and (out / PAGE).is_file()


def show_audit(
    notes: Iterable[str], lines: Iterable[str], page: Path | None, more: str, earlier: bool
) -> None:
    """What the file was read as, the summary, what more the command can tell, and where the page is.

    earlier: whether the page replaced another one.
    """
    for note in notes:
        say(f"note: {note}")
    for line in lines:
        say(line)
    place = "for the page with its figures: add --out audit" if page is None else f"the report is {page}"
    say(more + place + ", in place of an earlier one" * earlier)


def on_one_class(report: "AuditReport") -> str:
    """That of two classes the second can be judged by itself; nothing where one is, or for more classes."""
    positive = report.skill.positive
    if report.of != "top" or positive is None:
        return ""
    name = str(positive if report.class_names is None else report.class_names[positive])
    return f"to judge the probability of {name} itself: --of {shlex.quote(name)}; "


def _too_large(file: Path) -> bool:
    """Whether the file is streamed though nobody asked for it; a note says why."""
    if file.suffix != ".parquet":
        return False
    from calmoe.auditing.streaming.memory import why_streamed

    why = why_streamed(file)
    if why is not None:
        say(f"note: {file}: {why}")
    return why is not None


def _streamed(
    files: list[Path], columns: "Columns", sample: int | None, ray: str | None, **asked: Any
) -> "Outcome":
    from calmoe.auditing.streaming.files import in_one_process, stream_files
    from calmoe.auditing.streaming.ray_cluster import on_ray
    from calmoe.auditing.streaming.run import MOST

    over = in_one_process if ray is None else on_ray(ray)
    return stream_files(files, columns, sample=MOST if sample is None else sample, over=over, **asked)


def _check_streamed(files: int, as_one: bool, targeted: bool, cluster: str | None) -> None:
    if files > 1 and not as_one:
        raise InputError(
            "--stream takes one file; add --as-one where several are parts of one table, or audit models one "
            "by one"
        )
    if cluster is not None:
        raise InputError("--cluster goes with a file that fits into memory: leave out --stream")
    if targeted:
        raise InputError(
            "--target goes with a file that fits into memory: leave out --stream, and give some of its rows"
        )
