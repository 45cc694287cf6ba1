"""The streamed audit of files: by one process, by shards on many machines, or over a Ray cluster."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.progress import ProgressColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Task as BarTask
from rich.text import Text

from calmoe.arrays import as_count, as_number, check_bins
from calmoe.auditing.audit_report import AuditReport
from calmoe.auditing.files import asked_words, origin
from calmoe.auditing.folder import AUDIT
from calmoe.auditing.sections.auditors import check_number
from calmoe.auditing.streaming.run import MOST, Passed, pass_over, report_on
from calmoe.auditing.streaming.shards import KIND, Place, Shard, Task, merged
from calmoe.auditing.streaming.source import Source
from calmoe.auditing.streaming.whole import EVERYTHING
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError
from calmoe.files import legible
from calmoe.formats import NOTE, Columns
from calmoe.ownership import owned
from calmoe.progress_bar import progress_bar
from calmoe.render.wording import listed

FEWEST = 1000  # rows of a sample: with fewer there is next to nothing to learn from
SAMPLE_BYTES = 2**30
"""Of memory for the sample: of very wide rows it holds fewer than asked for."""

Outcome = tuple[AuditReport, Path | None, list[str]]
Over = Callable[[Source, Task, Passed], Shard]
"""Passes over all rows of a table, and hears of the progress."""


def in_one_process(source: Source, task: Task, passed: Passed) -> Shard:
    """One pass, here."""
    return pass_over(source, task, passed=passed)


def stream_files(
    paths: Sequence[Path],
    columns: Columns,
    *,
    out: Path | None,
    of: str = "top",
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    sample: int = MOST,
    over: Over = in_one_process,
) -> Outcome:
    """The report on parquet files as one table, its page if it goes into `out`, and how they were read."""
    _check(out, level)
    source, task = _asked(paths, columns, of, bins, seed, sample)
    whole = _under_a_bar("reading", task.rows, lambda passed: over(source, task, passed))
    return _written(whole, out, level, asked_words(columns))


def shard_file(
    paths: Sequence[Path],
    columns: Columns,
    *,
    place: Place,
    out: Path,
    of: str = "top",
    bins: int = BINS,
    seed: int = 0,
    sample: int = MOST,
) -> Shard:
    """Pass over one shard of the table, and write its sums to `out`."""
    if out.suffix != KIND:
        raise InputError(f"--out {legible(out)}: end the name in {KIND}")
    if not out.parent.is_dir():
        raise InputError(f"--out {legible(out)}: there is no folder {legible(out.parent)}: create it first")
    source, task = _asked(paths, columns, of, bins, seed, sample)
    first, last = place.bounds(task.rows)
    name = f"shard {place.number} of {place.shards}"
    shard = _under_a_bar(name, last - first, lambda passed: pass_over(source, task, place, passed))
    shard.save(out)
    return shard


def merge_files(paths: Sequence[Path], *, out: Path | None, level: float = LEVEL) -> Outcome:
    """The report on the table whose shards these files are."""
    _check(out, level)
    return _written(merged((legible(path), Shard.load(path)) for path in paths), out, level)


def _check(out: Path | None, level: float) -> None:
    """What would be refused after the work is refused before it."""
    if out is not None:
        owned(out, AUDIT)
    if not 0 < as_number("level", level) < 1:
        raise InputError(f"level must lie between 0 and 1, got {level}")


def _asked(
    paths: Sequence[Path], columns: Columns, of: str, bins: int, seed: int, sample: int
) -> tuple[Source, Task]:
    check_bins(bins)
    as_count("seed", seed, least=0, most=2**32 - 1)
    as_count("sample", sample, least=FEWEST)
    source = Source(paths, columns)
    head = source.head()
    check_number(head.num_experts, bins)
    width = sum(part[0].numel() * part.element_size() for part in head.output)
    most = min(sample, max(SAMPLE_BYTES // width, FEWEST))
    return source, Task.on(source, of=of, bins=bins, seed=seed, most=most)


def _under_a_bar(name: str, rows: int, work: Callable[[Passed], Shard]) -> Shard:
    done = TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows")
    with progress_bar(done, _Rate(), TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task(name, total=rows)
        return work(lambda more: bar.advance(task, more))


class _Rate(ProgressColumn):
    """Rows a second."""

    def render(self, task: BarTask) -> Text:
        return Text(f"{task.speed:,.0f} rows/s" if task.speed else "")


def _written(whole: Shard, out: Path | None, level: float, words: dict[str, str] | None = None) -> Outcome:
    with progress_bar(TaskProgressColumn(), TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task("learning", total=1.0)
        report = report_on(
            whole,
            level=level,
            progress=lambda section, done: bar.update(task, description=section, completed=done),
        )
        bar.update(task, description="writing")
        page = None if out is None else report.save(out, _origin(whole.task) | (words or {}))
    notes = [f"{_named(whole.task)}: {whole.task.metadata[NOTE]}"] if NOTE in whole.task.metadata else []
    return report, page, [*notes, *_sampled(report, out)]


def _sampled(report: AuditReport, out: Path | None) -> list[str]:
    """What rests on the sample, and where to find what it fitted."""
    sample = report.sampled
    if sample is None:
        return []
    learned = listed([name for name, text in sample.numbers.items() if text == EVERYTHING])
    notes = [
        f"reliability, accuracy, log loss, groups and ECE rest on all {report.rows:,} rows; {learned} on a "
        f"sample of {sample.rows:,} of them"
    ]
    if report.verdict.action.kind == "repair":
        where = "repair.json in the folder of --out" if out is None else legible(out / "repair.json")
        notes.append(f"the repair, fitted on the sample, is {where}: calmoe apply takes it as it is")
    return notes


def _named(task: Task) -> str:
    """The files in words."""
    names = [name for name, _ in task.files]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)} files as one table)"


def _origin(task: Task) -> dict[str, str]:
    """Where the rows come from; a file alone is named as such, for the commands on the page."""
    facts = {"file" if len(task.files) == 1 else "files": _named(task)}
    facts |= {"SHA-256 of the parquet footers": task.footers[:16]}
    if NOTE in task.metadata:
        facts["read as"] = task.metadata[NOTE]
    return facts | origin({})
