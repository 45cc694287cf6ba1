"""Audits that learn little, for tests of all but what is learned."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting

from calmoe.auditing.repairs import candidates

ROUNDS = 3  # of boosting and of repair, instead of 20 to 100


def hurry() -> Callable[[], None]:
    """From here on audits take half of their time; what is returned undoes it."""
    fit, rounds = BaseHistGradientBoosting.fit, candidates.ROUNDS

    def stop_early(self: Any, *arguments: Any, **options: Any) -> Any:
        self.max_iter = min(self.max_iter, ROUNDS)
        return fit(self, *arguments, **options)

    def undo() -> None:
        BaseHistGradientBoosting.fit = fit
        candidates.ROUNDS = rounds

    BaseHistGradientBoosting.fit = stop_early
    candidates.ROUNDS = (ROUNDS,)
    return undo


@contextmanager
def hastily() -> Iterator[None]:
    undo = hurry()
    try:
        yield
    finally:
        undo()
