"""Work in several processes: each has one thread, and answers come as soon as they are known."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

import torch
from rich.progress import MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn

from calmoe.errors import InputError
from calmoe.progress_bar import progress_bar

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def answers(
    work: Callable[[Task], Answer], tasks: Sequence[Task], jobs: int, name: str = "tasks"
) -> Iterator[tuple[Task, Answer]]:
    """Each task with its answer, under a progress bar; how many processes there are changes no answer."""
    if jobs < 1:
        raise InputError(f"--jobs must be at least 1, got {jobs}")
    with progress_bar(MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()) as bar:
        shown = bar.add_task(name, total=len(tasks))
        for task, answer in _in_processes(work, tasks, jobs):
            bar.advance(shown)
            yield task, answer


def _in_processes(
    work: Callable[[Task], Answer], tasks: Sequence[Task], jobs: int
) -> Iterator[tuple[Task, Answer]]:
    if jobs == 1 or len(tasks) < 2:
        yield from ((task, work(task)) for task in tasks)
        return
    with ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn"), _one_thread) as pool:
        waiting = {pool.submit(work, task): task for task in tasks}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _one_thread() -> None:
    """The processes share the machine."""
    torch.set_num_threads(1)
