"""The streamed audit itself: pass over a shard, and make one report out of sums and sample."""

from collections.abc import Callable

from threadpoolctl import threadpool_limits

from calmoe.auditing.audit_report import AuditReport, audit
from calmoe.auditing.steps import Progress, silent
from calmoe.auditing.streaming.counting import count
from calmoe.auditing.streaming.sample import Draw
from calmoe.auditing.streaming.shards import WHOLE, Place, Shard, Task
from calmoe.auditing.streaming.source import Source
from calmoe.auditing.streaming.whole import on_all_rows
from calmoe.defaults import LEVEL
from calmoe.errors import InputError

MOST = 200_000
"""Rows of the sample: as many as the audit's models learn from."""

Passed = Callable[[int], None]
"""Hears how many more rows were read."""


def pass_over(source: Source, task: Task, place: Place = WHOLE, passed: Passed = lambda rows: None) -> Shard:
    """Read the rows of one shard once, and keep their sums and their part of the sample."""
    draw, sums = Draw(task.most, task.rows, task.seed), None
    with threadpool_limits(1):
        for first, predictions in source.batches(*place.bounds(task.rows)):
            part = count(predictions, task.of, task.bins)
            sums = part if sums is None else sums.merge(part)
            draw.add(first, predictions)
            passed(len(predictions))
    if sums is None:
        raise InputError("there are no rows")
    return Shard(task=task, place=place, sums=sums, sample=draw.sample())


def report_on(whole: Shard, *, level: float = LEVEL, progress: Progress = silent) -> AuditReport:
    """The report on a table from all of its shards, merged.

    Where the sample is the whole table, this is the audit in memory.
    """
    task, sample = whole.task, whole.sample
    if sample is None:
        raise InputError("the sample is empty: give more rows to it with --sample")
    report = audit(
        sample.predictions, of=task.of, bins=task.bins, level=level, seed=task.seed, progress=progress
    )
    return report if len(sample.numbers) == task.rows else on_all_rows(report, whole.sums, sample)
