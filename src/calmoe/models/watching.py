"""Who watches a fit: scikit-learn fixes the arguments of `fit`, so a watcher comes from around it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Watcher = Callable[[str, int, int], None]
"""(what is being done, how much of it is done, how much there is)"""

T = TypeVar("T")
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher` of every step of the fits inside.

    >>> with watched(lambda *step: print(*step)):
    ...     squares = list(each_told("squares", (n * n for n in range(2)), 2))
    squares 0 2
    squares 1 2
    squares 2 2
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell(task: str, done: int, total: int) -> None:
    """A step of a fit is done."""
    if (watcher := _watcher.get()) is not None:
        watcher(task, done, total)


def each_told(task: str, results: Iterable[T], total: int) -> Iterator[T]:
    """The results, each told of as it comes."""
    tell(task, 0, total)
    for done, result in enumerate(results, 1):
        tell(task, done, total)
        yield result
